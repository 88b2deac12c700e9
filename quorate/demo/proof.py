"""From the files of the stopped node alone: is the log whole, is everything in it, and does it say why.

The readers are those of `quorate log verify`, `replay`, `explain` and `timeline`; the demo has none of its
own.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from history.commits import Key, commits
from history.explain import Explanation, explain
from history.replay import replay
from history.timeline import timeline, timeline_text
from history.verify import verify
from quorate.demo.claims import Claim, acknowledged_commits, all_in_the_log, final_offsets_match
from quorate.demo.evidence import Evidence

WIDTH_WITHOUT_TERMINAL = 120


@dataclass(frozen=True, slots=True)
class Proof:
    """What the files say: claims with what contradicts them, and the timeline as lines."""

    claims: tuple[Claim, ...]
    num_acknowledged: int
    timeline: tuple[str, ...]


def prove(
    data: Path,
    group: str,
    topic: str,
    num_partitions: int,
    evidence: dict[str, Evidence],
    told: dict[str, str],
) -> Proof:
    """Check a stopped node's directory against the clients' evidence.

    `told` maps client ids to the word that the log must use for the last thing each did: joined, left,
    expired.
    """
    acknowledged = acknowledged_commits(group, topic, evidence.values())
    explanation = explain(str(data), group)
    return Proof(
        claims=(
            _verified(data),
            all_in_the_log(acknowledged, commits(str(data), [group])),
            final_offsets_match(acknowledged, _replayed(data, group), num_partitions=num_partitions),
            _says_why(explanation, told),
        ),
        num_acknowledged=len(acknowledged),
        timeline=tuple(
            timeline_text(
                timeline(explanation), width=shutil.get_terminal_size((WIDTH_WITHOUT_TERMINAL, 24)).columns
            )
        ),
    )


def _says_why(explanation: Explanation, told: dict[str, str]) -> Claim:
    reasons = [reason for epoch in explanation.epochs for reason in epoch.why]
    text = f"each of the {len(explanation.epochs)} epochs has its reason in the log, naming who did what"
    silent = [str(epoch.epoch) for epoch in explanation.epochs if not epoch.why]
    if silent:
        return Claim(text, f"epochs {', '.join(silent)} have none")
    unsaid = [
        f"{name} {word}"
        for name, word in told.items()
        if not any(name in reason and word in reason for reason in reasons)
    ]
    return Claim(text, f"the log does not say that {', '.join(unsaid)}" if unsaid else "")


def _verified(data: Path) -> Claim:
    report = verify(str(data))
    entries = sum(shard.entries for shard in report.shards)
    text = f"the log is whole: {entries:,} entries verified, every byte and every invariant"
    return Claim(text, "" if report.ok else f"{report.findings} findings, see `quorate log verify {data}`")


def _replayed(data: Path, group: str) -> dict[Key, int]:
    """The committed offsets of the state that a replay of the log comes to."""
    state = replay(str(data), group=group)
    return {(group, one.topic, one.partition): one.offset for found in state.groups for one in found.offsets}
