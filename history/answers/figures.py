"""The figures of a group in a window of time, and their sum over groups.

What must stay true: over groups every figure is a sum, but those in `LARGEST` and `SMALLEST`; over windows
that touch each other too, but for those of partitions (``committed``, ``stalled``) and for ``findings``. A
window is half open: what happens at its first millisecond is in it, what happens at ``until_ms`` is not, and
what lasts is cut at both ends. Time in entries that are missing is counted nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

EXACT_BITS = 8
"""Spans below 256 ms are counted exactly, longer ones to 8 leading bits: less than 0.8 % too short."""
LARGEST = ("members_max", "settle_max_ms", "longest_silence_ms")
SMALLEST = ("members_min",)


@dataclass(slots=True, kw_only=True)
class Figures:
    """Times in ms; times of partitions, members are summed over them (partition-milliseconds)."""

    epochs: int = 0
    """Group epochs that began in the window, as far as the log has their beginning."""
    rebalances: int = 0
    """Those of them that left a group with members: the others had nobody to give anything to."""
    by_trigger: Counter[str] = field(default_factory=Counter)
    """Rebalances by the trigger of the entry that began them; they sum up to ``rebalances``."""
    by_reason: Counter[str] = field(default_factory=Counter)
    """Rebalances by reason; one that has two reasons counts for each."""
    overtaken: int = 0
    """Rebalances behind which another epoch began before the group was Stable."""
    existed_ms: int = 0
    """How long the group was there, with members or without."""
    unstable_ms: int = 0
    """How long it was neither Stable nor Empty: from the entry that began an epoch to the one that settled it
    or began the next, and when it lapsed again within an epoch."""
    owned_ms: int = 0
    revoking_ms: int = 0
    """Partition-time: a member still had it and was told to give it up."""
    unowned_ms: int = 0
    """Partition-time: nobody's, though the group has members and subscribes to the topic."""
    moves: int = 0
    """Partitions that targets written in the window took from one member and gave to another."""
    given: int = 0
    """Partitions that such targets gave to a member and that were in nobody's target."""
    taken: int = 0
    """Partitions that such targets took from a member and gave to nobody."""
    joined: int = 0
    """Members that were admitted."""
    rejoined: int = 0
    """Members that joined again with epoch 0."""
    ended: Counter[str] = field(default_factory=Counter)
    """Members that went, by how (`SessionEnd`)."""
    member_ms: int = 0
    """The number of members, summed over the time that the group was there."""
    members_min: int | None = None
    members_max: int | None = None
    settled: Counter[int] = field(default_factory=Counter)
    """Times to Stable that ended in the window (to `EXACT_BITS`) and how often. Counted from the first epoch
    that began behind a Stable or Empty one: epochs that were overtaken are a part of what overtook them."""
    settle_max_ms: int | None = None
    commits: int = 0
    """Records of offset commits, one for each partition."""
    removals: int = 0
    """Committed offsets that were deleted or expired."""
    committed: int = 0
    """Partitions that had at least one commit in the window."""
    longest_silence_ms: int | None = None
    """The longest time in the window that a partition went without a commit after it had one, up to its next
    one, its removal or the end."""
    stalled: int = 0
    """Stalled partitions at the end of the window (`history.answers.stalls`)."""
    failovers: int = 0
    """Take-overs and hand-overs of the group's shard while it was there; in the sum each counts once."""
    findings: Counter[str] = field(default_factory=Counter)
    """Diagnoses by kind (docs/history.md)."""

    def settle(self, span_ms: int) -> None:
        """The group came to Stable, so long after it ceased to be."""
        self.settled[rounded(span_ms)] += 1
        self.settle_max_ms = span_ms if self.settle_max_ms is None else max(self.settle_max_ms, span_ms)

    def members(self, count: int, span_ms: int) -> None:
        """So many members for so long."""
        self.member_ms += count * span_ms
        self.members_min = count if self.members_min is None else min(self.members_min, count)
        self.members_max = count if self.members_max is None else max(self.members_max, count)

    @property
    def unstable_share(self) -> float | None:
        return self.unstable_ms / self.existed_ms if self.existed_ms else None

    @property
    def members_mean(self) -> float | None:
        """Over the time that the group was there, empty times included."""
        return self.member_ms / self.existed_ms if self.existed_ms else None

    def settled_within(self, share: float) -> int | None:
        """The time within which at least this share of the times to Stable ended (nearest rank)."""
        total = sum(self.settled.values())
        seen = 0
        for span_ms, count in sorted(self.settled.items()):
            seen += count
            if seen >= share * total:
                return span_ms
        return None


def summed(parts: Iterable[Figures]) -> Figures:
    """The figures of all together; ``failovers`` as well, which is for who sums to put right."""
    total = Figures()
    for part in parts:
        for spec in fields(Figures):
            old, new = getattr(total, spec.name), getattr(part, spec.name)
            if isinstance(new, Counter):
                old.update(new)
            elif spec.name in LARGEST or spec.name in SMALLEST:
                known = [one for one in (old, new) if one is not None]
                pick = max if spec.name in LARGEST else min
                setattr(total, spec.name, pick(known) if known else None)
            else:
                setattr(total, spec.name, old + new)
    return total


def rounded(span_ms: int) -> int:
    """Down to `EXACT_BITS` leading bits: so many different values at most, however long the log."""
    shift = max(span_ms.bit_length() - EXACT_BITS, 0)
    return span_ms >> shift << shift
