"""Group commit: all entries appended in one turn of the loop get one write and one sync at its end.

    idle --append--> queued --turn's end--> (a leader sends) --next turn--> syncing --> idle, or queued again

Syncs run on the loop as long as they take less than `inline_sync_ms_max` on average, else on the disk thread.
Invariants: one group in flight; a leader sends entries to its peers before its own sync blocks the
loop; after a failure no group is accepted as durable.

The mark of what is synced (`raftlog.storage.sync_mark`) is part of a group's work, after its sync, at most
every `MARK_EVERY_MS`; after a burst a group without entries brings it up to date.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from raftlog.env.host import Host
from raftlog.env.settings import LogSettings
from raftlog.storage.journal import Journal

AVERAGE_WEIGHT = 0.125
"""The newest sync's weight in the running average: a slow one moves syncs off the loop for a while."""


MARK_EVERY_MS = 10.0
"""Milliseconds between two marks of what is synced.

A mark costs about 10 µs, a twentieth of a small group.  A kill within this time leaves entries that no mark
covers; damage to just these looks like a torn write.
"""


class GroupCommit:
    """The groups of one shard's journal."""

    def __init__(
        self,
        host: Host,
        journal: Journal,
        settings: LogSettings,
        *,
        is_over: Callable[[], bool],
        send_first: Callable[[], bool],
        synced: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`send_first` sends the peers their entries and returns whether this node leads any.

        `synced` is called after each group that is durable; if another group is due, it is already queued.
        """
        self._host = host
        self._journal = journal
        self._inline_ms_max = settings.inline_sync_ms_max
        self._is_over = is_over
        self._send_first = send_first
        self._synced = synced
        self._fail = fail
        self._is_queued = False
        self._is_sync_queued = False
        self._started_ms: float | None = None
        self._has_entries = False
        self._mark_due_ms = -math.inf
        self._is_mark_queued = False
        self.average_ms = 0.0
        """The running average of the newest syncs, in ms."""
        self.count = 0
        """The number of groups synced since the start."""

    def queue(self) -> None:
        """Write and sync at the end of this turn."""
        if not self._is_queued:
            self._is_queued = True
            self._host.call_soon(self._flush)

    @property
    def outstanding_ms(self) -> float:
        """Milliseconds for which the disk has been working on the group in flight; 0 without one."""
        return 0.0 if self._started_ms is None else self._host.monotonic_ms() - self._started_ms

    def _flush(self) -> None:
        self._is_queued = False
        if self._is_over():
            return
        try:
            has_sent = self._send_first()
        except Exception as error:
            self._fail(error)
            return
        if not has_sent:
            self._sync()
        elif not self._is_sync_queued:
            self._is_sync_queued = True
            self._host.call_soon(self._sync)

    def _sync(self) -> None:
        self._is_sync_queued = False
        now_ms, journal = self._host.monotonic_ms(), self._journal
        with_mark = now_ms >= self._mark_due_ms
        has_entries = journal.is_dirty
        if self._is_over() or not (has_entries or (with_mark and journal.is_mark_behind)):
            return
        try:
            work = journal.begin_flush(with_mark=with_mark)
        except Exception as error:
            self._fail(error)
            return
        if with_mark:
            self._mark_due_ms = now_ms + MARK_EVERY_MS
        self._started_ms, self._has_entries = now_ms, has_entries
        if self.average_ms >= self._inline_ms_max:
            self._host.run_on_disk(lambda: self._timed(work), self._done)
            return
        try:
            took_ms: object = self._timed(work)
        except Exception as error:
            self._done(None, error)
        else:
            self._done(took_ms, None)

    def _timed(self, work: Callable[[], None]) -> float:
        """Run a group's work, on the loop or the disk thread; returns its duration in ms."""
        started_ms = self._host.monotonic_ms()
        work()
        return self._host.monotonic_ms() - started_ms

    def _done(self, took_ms: object, error: BaseException | None) -> None:
        if self._is_over():
            return
        if error is not None:
            self._fail(error)
            return
        assert isinstance(took_ms, float | int)
        if self._has_entries:
            self.average_ms += AVERAGE_WEIGHT * (took_ms - self.average_ms)
            self.count += 1
        self._started_ms = None
        self._journal.end_flush()
        if self._journal.is_dirty:
            self.queue()
        elif self._journal.is_mark_behind and not self._is_mark_queued:
            self._is_mark_queued = True
            self._host.call_later(MARK_EVERY_MS, self._mark)
        self._synced()

    def _mark(self) -> None:
        self._is_mark_queued = False
        self._mark_due_ms = -math.inf
        if not self._is_over():
            self.queue()
