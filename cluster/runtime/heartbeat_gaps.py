"""The gaps between the heartbeats of each member: the longest of every minute, for the evidence file.

"Why did this member expire?" often has its answer minutes earlier, in gaps that grew. The log does not show
them, because steady heartbeats write nothing. So the gaps are measured here, on the slow path and on the fast
one, and passed to the evidence file every few seconds.

Invariants: measuring a steady heartbeat takes no more than two comparisons; the table is bounded; it
drops members that have been silent for longer than any session, and all members when another node leads,
since silence here is no gap then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from coordinator.leader_state.classic_groups import ClassicEntry
from coordinator.shard import FastEntry
from raftlog.env.host import Host, Timer
from raftlog.storage.evidence import Evidence

REPORT_EVERY_MS: Final = 5_000.0
"""Interval between two reports. A gap is noted in the minute of its report, so up to this much late."""

MEMBERS_MAX: Final = 100_000
"""At most this many members of a shard are measured, about 20 MB. Others are served but not measured."""

MEMBERS_PER_TURN: Final = 5_000
"""At most this many members are reported in one turn, which takes about 5 ms."""

SILENT_MAX_MS: Final = 1_800_000.0
"""The longest session timeout: whoever has been silent for longer is no longer a member."""


CoordinatorEntry = FastEntry | ClassicEntry


class HeartbeatGap:
    """The newest heartbeat of one member (monotonic ms) and the longest gap not yet reported."""

    __slots__ = ("last_ms", "longest_ms")

    def __init__(self, now_ms: float) -> None:
        self.last_ms = now_ms
        self.longest_ms = 0.0

    def measure(self, now_ms: float) -> None:
        gap_ms = now_ms - self.last_ms
        self.last_ms = now_ms
        if gap_ms > self.longest_ms:
            self.longest_ms = gap_ms


class MeasuredEntry:
    """A coordinator's entry that measures the gaps between its touches."""

    __slots__ = ("_gap", "_touch", "is_valid")

    def __init__(self, entry: CoordinatorEntry, gap: HeartbeatGap) -> None:
        self.is_valid = entry.is_valid
        self._touch = entry.touch
        self._gap = gap

    def touch(self, monotonic_ms: float, wall_ms: int) -> None:
        """Measure the gap, as `HeartbeatGap.measure` does but without the call, and restart the session."""
        gap = self._gap
        gap_ms = monotonic_ms - gap.last_ms
        gap.last_ms = monotonic_ms
        if gap_ms > gap.longest_ms:
            gap.longest_ms = gap_ms
        self._touch(monotonic_ms, wall_ms)


class LeasedEntry(MeasuredEntry):
    """A MeasuredEntry on a node with peers: valid only while no other node can lead."""

    __slots__ = ()

    def __init__(
        self,
        entry: CoordinatorEntry,
        gap: HeartbeatGap,
        has_lease: Callable[[float], bool],
        now_ms: Callable[[], float],
    ) -> None:
        super().__init__(entry, gap)
        # A bound method held by its own object would be a reference cycle, which only the collector frees.
        self.is_valid = partial(_is_leased, entry.is_valid, has_lease, now_ms)


def _is_leased(
    is_valid: Callable[[], bool], has_lease: Callable[[float], bool], now_ms: Callable[[], float]
) -> bool:
    return is_valid() and has_lease(now_ms())


Gaps = dict[tuple[str, str], HeartbeatGap]


class HeartbeatGaps:
    """The members of one shard. `has_lease` says whether leadership is certain; None means always."""

    def __init__(
        self, host: Host, evidence: Evidence, shard: int, has_lease: Callable[[float], bool] | None = None
    ) -> None:
        self._host = host
        self._evidence = evidence
        self._shard = shard
        self._has_lease = has_lease
        self._gaps: Gaps = {}
        self._timer: Timer | None = None

    def measure(self, group_id: str, member_id: str, now_ms: float) -> None:
        """Measure an accepted heartbeat."""
        gap = self._gaps.get((group_id, member_id))
        if gap is not None:
            gap.measure(now_ms)
        elif len(self._gaps) < MEMBERS_MAX:
            self._gaps[group_id, member_id] = HeartbeatGap(now_ms)

    def forget(self, group_id: str, member_id: str) -> None:
        """Drop a member that left."""
        self._gaps.pop((group_id, member_id), None)

    def measured(self, group_id: str, member_id: str, entry: CoordinatorEntry) -> MeasuredEntry:
        """Return a measured version of `entry`."""
        gap = self._gaps.get((group_id, member_id))
        if gap is None:  # new to this leader, and requested before its heartbeat is decided
            gap = HeartbeatGap(self._host.monotonic_ms())
            if len(self._gaps) < MEMBERS_MAX:
                self._gaps[group_id, member_id] = gap
        if self._has_lease is None:
            return MeasuredEntry(entry, gap)
        return LeasedEntry(entry, gap, self._has_lease, self._host.monotonic_ms)

    def shift(self, gap_ms: float) -> None:
        """Leave a standstill of the node itself, `gap_ms` long, out of every member's gap."""
        for gap in self._gaps.values():
            gap.last_ms += gap_ms

    def start(self) -> None:
        self._timer = self._host.call_later(REPORT_EVERY_MS, self._begin_report)

    def stop(self) -> None:
        """Stop the timer and report the remaining gaps."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._report(self._gaps, list(self._gaps), MEMBERS_MAX)

    def forget_all(self) -> None:
        """Report the remaining gaps and forget all members, which heartbeat to another node from now on."""
        gaps, self._gaps = self._gaps, {}
        if gaps:
            self._report(gaps, list(gaps), MEMBERS_PER_TURN)

    def _begin_report(self) -> None:
        self._timer = self._host.call_later(REPORT_EVERY_MS, self._begin_report)
        if self._gaps:
            self._report(self._gaps, list(self._gaps), MEMBERS_PER_TURN)

    def _report(self, gaps: Gaps, members: list[tuple[str, str]], at_once: int) -> None:
        silent_ms = self._host.monotonic_ms() - SILENT_MAX_MS
        for key in members[:at_once]:
            gap = gaps.get(key)
            if gap is None:
                continue
            if gap.longest_ms:
                self._evidence.heartbeat_gap(self._shard, *key, gap.longest_ms)
                gap.longest_ms = 0.0
            elif gap.last_ms < silent_ms:
                del gaps[key]
        if len(members) > at_once:
            self._host.call_soon(self._report, gaps, members[at_once:], at_once)
