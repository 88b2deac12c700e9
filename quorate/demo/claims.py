"""The demo's claims, checked against evidence alone: the consumers' own files, and the log.

Every function returns `Claim`s; a claim that did not hold names its contradiction. Nothing here talks to a
node, as they have stopped by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from history.checking.commits import Commit, Key
from quorate.demo.evidence import ConsumerEvidence

SHOWN_MAX = 3  # counter-examples in one line; the first says most


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim in words; `contradiction` says what refutes it, and is empty if it held."""

    text: str
    contradiction: str = ""

    @property
    def held(self) -> bool:
        return not self.contradiction

    def words(self) -> str:
        return f"{self.text}: {self.contradiction}" if self.contradiction else self.text


def acknowledged_commits(
    group: str, topic: str, evidence: Iterable[ConsumerEvidence]
) -> list[tuple[Key, int]]:
    """Every (key, offset) that was acknowledged as committed to any consumer."""
    return [
        ((group, topic, partition), offset)
        for one in evidence
        for commit in one.acknowledged
        for partition, offset in commit.offsets.items()
    ]


def all_in_the_logs(
    acknowledged: Sequence[tuple[Key, int]], logs: Mapping[str, Mapping[Key, Sequence[Commit]]]
) -> Claim:
    """The claim that every acknowledged commit is in every node's log; `logs` is by the node's name."""
    text = f"every one of the {len(acknowledged):,} acknowledged commits is in each of the {len(logs)} logs"
    if not acknowledged:
        return Claim(text, "no commit was acknowledged")
    missing: list[str] = []
    for name, log in logs.items():
        written = {(key, commit.offset) for key, commits in log.items() for commit in commits}
        missing += [
            f"{key[1]}-{key[2]} offset {n} in {name}" for key, n in acknowledged if (key, n) not in written
        ]
    return Claim(text, _some(missing))


def final_offsets_match(
    acknowledged: Sequence[tuple[Key, int]], replayed: Mapping[Key, int], *, num_partitions: int
) -> Claim:
    """The claim that the replayed offset of each partition is the last acknowledged one."""
    newest: dict[Key, int] = {}
    for key, offset in acknowledged:
        newest[key] = max(offset, newest.get(key, -1))
    text = f"the replayed offsets of all {num_partitions} partitions are the last acknowledged ones"
    if len(newest) != num_partitions:
        return Claim(text, f"only {len(newest)} partitions were ever committed")
    differing = (
        f"{key[1]}-{key[2]} acknowledged {offset}, replayed {replayed.get(key, 'nothing')}"
        for key, offset in sorted(newest.items())
        if replayed.get(key) != offset
    )
    return Claim(text, _some(differing))


def no_partition_moved(
    before: Mapping[str, frozenset[int]], after: Mapping[str, ConsumerEvidence], since_ms: int
) -> Claim:
    """The claim that no partition changed its owner, and no client had a callback, since `since_ms`."""
    text = "no partition moved, no client saw a revocation or a loss"
    against = _callbacks(before, after, since_ms)
    against += [
        f"{name} owned {sorted(owned)}, now {sorted(after[name].owned)}"
        for name, owned in before.items()
        if after[name].owned != owned
    ]
    return Claim(text, _some(against))


def nothing_noticed(before: Mapping[str, int], after: Mapping[str, ConsumerEvidence], since_ms: int) -> Claim:
    """The claim that no callback and no failed commit occurred since `since_ms`.

    `before` is the number of failed commits up to then, by client.
    """
    waited_ms = max((after[name].longest_gap_ms(since_ms) for name in before), default=0)
    text = f"no client noticed: no callback, no failed commit, no acknowledgement later than {waited_ms} ms"
    against = _callbacks(before, after, since_ms)
    against += [
        f"a commit of {name} failed: {failure}"
        for name, failed in before.items()
        for failure in after[name].failures[failed:]
    ]
    return Claim(text, _some(against))


def _callbacks(names: Iterable[str], after: Mapping[str, ConsumerEvidence], since_ms: int) -> list[str]:
    return [
        f"{name} saw {sorted(change.partitions)} {change.kind}"
        for name in names
        for change in after[name].changes
        if change.at_ms >= since_ms
    ]


def _some(against: Iterable[str]) -> str:
    found = list(against)
    if not found:
        return ""
    more = len(found) - SHOWN_MAX
    return "; ".join(found[:SHOWN_MAX]) + (f"; and {more:,} more" if more > 0 else "")
