"""Checks the files of the stopped nodes: that the logs are equal, complete, and explain what happened.

The readers are those of `quorate log compare`, `verify`, `replay`, `explain` and `timeline`; the demo has
none of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from history.checking.commits import Key, commits
from history.checking.compare import Comparison, compare
from history.checking.verify import verify
from history.state.replay import replay
from history.telling.explain import Explanation, explain
from history.telling.story import TermStep
from history.telling.timeline import timeline, timeline_text
from quorate.demo.claims import Claim, acknowledged_commits, all_in_the_logs, final_offsets_match
from quorate.demo.evidence import ConsumerEvidence
from quorate.output import terminal_width


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of the check: claims with any contradictions, and the timeline as lines."""

    claims: tuple[Claim, ...]
    num_acknowledged: int
    timeline: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Takeover:
    """A change of the group shard's leader, by node id."""

    before: int
    after: int


def prove(
    data: Path,
    nodes: Mapping[str, Path],
    group: str,
    topic: str,
    num_partitions: int,
    evidence: Mapping[str, ConsumerEvidence],
    told: Mapping[str, str],
    takeovers: Sequence[Takeover],
) -> Proof:
    """Check a stopped cluster's directories against the clients' evidence.

    `data` holds the directories `nodes`, by name. `told` maps client ids to the word that the log must use
    for each one's last event: joined, left, expired. `takeovers` are those of the group's shard, in order.
    """
    acknowledged = acknowledged_commits(group, topic, evidence.values())
    explanation = explain(str(data), group)
    comparison = compare([str(path) for path in nodes.values()])
    return Proof(
        claims=(
            _same(comparison, data),
            _verified(nodes),
            all_in_the_logs(
                acknowledged, {name: commits(str(path), [group]) for name, path in nodes.items()}
            ),
            final_offsets_match(acknowledged, _replayed(data, group), num_partitions=num_partitions),
            _says_why(explanation, told),
            says_who_led(explanation, takeovers),
        ),
        num_acknowledged=len(acknowledged),
        timeline=tuple(timeline_text(timeline(explanation), width=terminal_width(sys.stdout))),
    )


def _same(comparison: Comparison, data: Path) -> Claim:
    """The claim that the logs are equal: both hashes are known for all nodes, in every shard."""
    entries = sum(shard.common_index or 0 for shard in comparison.shards)
    text = (
        f"the {len(comparison.members)} logs are the same: chain and state hash of all "
        f"{len(comparison.shards)} shards, {entries:,} entries"
    )
    if not comparison.ok:
        return Claim(text, f"{comparison.num_findings} findings, see `quorate log compare {data}`")
    unknown = [str(s.shard) for s in comparison.shards if s.chain_hash is None or s.state_hash is None]
    return Claim(text, f"unknown for shards {', '.join(unknown)}" if unknown else "")


def says_who_led(explanation: Explanation, takeovers: Sequence[Takeover]) -> Claim:
    """The claim that all observed takeovers are in the log, in order."""
    said = [
        Takeover(step.previous_leader, step.node_id)
        for step in explanation.steps
        if isinstance(step, TermStep) and step.is_takeover
    ]
    words = [f"from node {one.before} to node {one.after}" for one in takeovers]
    text = f"the log says who led: {', then '.join(words)}"
    found = "; ".join(f"from node {one.before} to node {one.after}" for one in said) or "nothing"
    rest = iter(said)
    return Claim(text, "" if all(one in rest for one in takeovers) else f"it says: {found}")


def _says_why(explanation: Explanation, told: Mapping[str, str]) -> Claim:
    reasons = [reason for epoch in explanation.epochs for reason in epoch.why]
    text = f"the log has the reason of each of the {len(explanation.epochs)} epochs and the members involved"
    silent = [str(epoch.epoch) for epoch in explanation.epochs if not epoch.why]
    if silent:
        return Claim(text, f"epochs {', '.join(silent)} have no reason")
    unsaid = [
        f"{name} {word}"
        for name, word in told.items()
        if not any(name in reason and word in reason for reason in reasons)
    ]
    return Claim(text, f"the log does not say that {', '.join(unsaid)}" if unsaid else "")


def _verified(nodes: Mapping[str, Path]) -> Claim:
    reports = {name: verify(str(path)) for name, path in nodes.items()}
    entries = sum(shard.entries for report in reports.values() for shard in report.shards)
    text = f"each log is whole: {entries:,} entries verified, every byte and every invariant"
    damaged = [name for name, report in reports.items() if not report.ok]
    return Claim(text, f"see `quorate log verify` of {', '.join(damaged)}" if damaged else "")


def _replayed(data: Path, group: str) -> dict[Key, int]:
    """The committed offsets in the replayed state."""
    state = replay(str(data), group=group)
    return {(group, one.topic, one.partition): one.offset for found in state.groups for one in found.offsets}
