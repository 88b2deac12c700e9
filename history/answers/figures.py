"""The figures of a group in a window of time, and their sum over groups.

Invariant: over groups, every figure is a sum except those in `LARGEST` and `SMALLEST`. Over adjacent windows
too, except for figures of partitions (``committed``, ``stalled``) and ``findings``.

A window is half open: it includes its first millisecond and excludes ``until_ms``; spans are cut at both
ends. Time in missing entries is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

EXACT_BITS = 8
"""Times below 256 ms are counted exactly, longer ones to 8 leading bits: less than 0.8 % too short."""
LARGEST = ("members_max", "settle_max_ms", "longest_silence_ms")
SMALLEST = ("members_min",)


@dataclass(slots=True, kw_only=True)
class Figures:
    """Times are in ms; times of partitions and members are summed over them (partition-milliseconds)."""

    epochs: int = 0
    """Group epochs that began in the window, if the log has their beginning."""
    rebalances: int = 0
    """Epochs that left a group with members; without members there is nothing to assign."""
    by_trigger: Counter[str] = field(default_factory=Counter)
    """Rebalances by trigger of the entry that began them; they sum up to ``rebalances``."""
    by_reason: Counter[str] = field(default_factory=Counter)
    """Rebalances by reason; a rebalance with two reasons counts for each."""
    overtaken: int = 0
    """Rebalances after which another epoch began before the group was Stable."""
    existed_ms: int = 0
    """The time for which the group existed, with members or without."""
    unstable_ms: int = 0
    """The time for which it was neither Stable nor Empty.

    This is from the entry that began an epoch to the one that settled it or began the next, and any relapse
    within an epoch."""
    owned_ms: int = 0
    revoking_ms: int = 0
    """Partition-time during which a member still owned the partition and had been asked to revoke it."""
    unowned_ms: int = 0
    """Partition-time without an owner, though the group has members and subscribes to the topic."""
    moves: int = 0
    """Partitions that targets written in the window moved from one member to another."""
    given: int = 0
    """Partitions that such targets gave to a member and that no member had in its target before."""
    taken: int = 0
    """Partitions that such targets took from a member and gave to no other."""
    joined: int = 0
    """Members that were admitted."""
    rejoined: int = 0
    """Members that joined again with epoch 0."""
    ended: Counter[str] = field(default_factory=Counter)
    """Members that were removed, by how their session ended (`SessionEnd`)."""
    member_ms: int = 0
    """The number of members, summed over the time that the group existed."""
    members_min: int | None = None
    members_max: int | None = None
    settled: Counter[int] = field(default_factory=Counter)
    """Times to Stable that ended in the window (`time_to_stable_ms`), to `EXACT_BITS` -> how often."""
    settle_max_ms: int | None = None
    commits: int = 0
    """Records of offset commits, one per partition."""
    removals: int = 0
    """Committed offsets that were deleted or expired."""
    committed: int = 0
    """Partitions with at least one commit in the window."""
    transactional: Counter[str] = field(default_factory=Counter)
    """Offsets in transactions: those that became `pending`, and those that were `committed` or `dropped`."""
    longest_silence_ms: int | None = None
    """The longest time within the window that a partition with a commit went without another, up to its
    next commit, its removal or the end."""
    stalled: int = 0
    """Stalled partitions at the end of the window (`history.answers.stalls`)."""
    failovers: int = 0
    """Failovers and hand-overs of the group's shard while the group existed; the sum counts each once."""
    findings: Counter[str] = field(default_factory=Counter)
    """Findings by kind (docs/history.md)."""

    def settle(self, span_ms: int) -> None:
        """Count one return to Stable, ``span_ms`` after the group ceased to be."""
        self.settled[rounded(span_ms)] += 1
        self.settle_max_ms = span_ms if self.settle_max_ms is None else max(self.settle_max_ms, span_ms)

    def members(self, count: int, span_ms: int) -> None:
        """Count ``count`` members for ``span_ms``."""
        self.member_ms += count * span_ms
        self.members_min = count if self.members_min is None else min(self.members_min, count)
        self.members_max = count if self.members_max is None else max(self.members_max, count)

    @property
    def unstable_share(self) -> float | None:
        return self.unstable_ms / self.existed_ms if self.existed_ms else None

    @property
    def members_mean(self) -> float | None:
        """Mean number of members while the group existed, including times without members."""
        return self.member_ms / self.existed_ms if self.existed_ms else None

    def settled_within(self, share: float) -> int | None:
        """The shortest time that at least this share of the times to Stable did not exceed (nearest rank)."""
        total = sum(self.settled.values())
        seen = 0
        for span_ms, count in sorted(self.settled.items()):
            seen += count
            if seen >= share * total:
                return span_ms
        return None


def summed(parts: Iterable[Figures]) -> Figures:
    """The sum over groups. ``failovers`` counts a failover once per group; the caller must correct it."""
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
    """Round down to `EXACT_BITS` leading bits, which bounds the number of different values."""
    shift = max(span_ms.bit_length() - EXACT_BITS, 0)
    return span_ms >> shift << shift
