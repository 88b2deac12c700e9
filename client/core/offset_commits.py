"""Commits of the application side: their offsets, the times of automatic ones, and their callbacks.

The offsets are the positions after what was handed out, or what store_offsets() stored if
enable.auto.offset.store is false. A commit that nobody waits for ends with its callback, which a later call
of the consumer runs; without one, a failure is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from client.core.consumed import ConsumedRecords, to_commit
from client.core.effects import CallAnswer, Steps
from client.core.env import Environment
from client.core.errors import ConsumerError
from client.core.events import ApplicationEvent, BackgroundEvent, CommitEndedEvent, CommitEvent
from client.core.settings import ConsumerSettings
from client.core.types import OffsetAndMetadata, Position, TopicPartition, partition_names

_log = logging.getLogger("quorate.consumer")

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Exception | None, Offsets], Any]


class OffsetCommits:
    """Makes the commit events of one consumer."""

    def __init__(
        self,
        settings: ConsumerSettings,
        env: Environment,
        records: ConsumedRecords,
        send: Callable[[ApplicationEvent], None],
        tell: Callable[[BackgroundEvent], None],
    ) -> None:
        self.releasing: dict[TopicPartition, Position] = {}
        """The last positions of partitions whose on_revoke has not ended; it may commit them."""
        self.on_commit: CommitCallback | None = settings.on_commit
        self._settings = settings
        self._now_ms = env.now_ms
        self._records = records
        self._send = send
        self._tell = tell
        self._stored: dict[TopicPartition, OffsetAndMetadata] = {}
        self._next_ms = env.now_ms() + settings.auto_commit_interval_ms
        self._pending: dict[Future[None], None] = {}
        """Commits that nobody waits for, in the order in which they were made."""

    def offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets of partitions that a commit without offsets has."""
        if not self._settings.enable_auto_offset_store:
            return {at: stored for at, stored in self._stored.items() if at in partitions}
        leaving = {at: position for at, position in self.releasing.items() if at in partitions}
        return to_commit(leaving | self._records.positions(partitions))

    def store(self, offsets: Offsets) -> None:
        self._stored.update(offsets)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the offsets of partitions that this consumer has no more."""
        for partition in partitions:
            self._stored.pop(partition, None)
            self.releasing.pop(partition, None)

    def commit(self, offsets: Offsets, deadline_ms: float, *, releases: bool = False) -> Steps[None]:
        """Commit and wait for the end. Raises `ConsumerError`."""
        future = self._start(offsets, deadline_ms, releases=releases)
        if future is not None:
            yield CallAnswer(future, deadline_ms)

    def commit_async(
        self, offsets: Offsets, callback: CommitCallback | None, *, retries: bool = True
    ) -> None:
        """Commit without waiting. The callback, or on_commit, is called by a later call of the consumer."""
        deadline_ms = self._now_ms() + self._settings.default_api_timeout_ms
        future = self._start(offsets, deadline_ms, retries=retries)
        if future is not None:
            self._pending[future] = None
            future.add_done_callback(partial(self._ended, offsets, callback))

    def wait_for_pending(self, deadline_ms: float) -> Steps[None]:
        """Wait for the commits that nobody else waits for; each tells its own end."""
        for future in list(self._pending):
            try:
                yield CallAnswer(future, deadline_ms)
            except ConsumerError:
                continue

    def commit_before_release(
        self, partitions: Collection[TopicPartition], deadline_ms: float
    ) -> Steps[None]:
        """Commit automatically what was consumed of partitions that are given up.

        A failure is told, not raised: their records are handed out again, which at-least-once allows."""
        if not self._settings.commits_automatically:
            return
        offsets = self.offsets(partitions)
        try:
            yield from self.commit(offsets, deadline_ms, releases=True)
        except ConsumerError as error:
            self._tell(CommitEndedEvent(error=error, offsets=offsets, callback=self.on_commit))
        else:
            if offsets and self.on_commit is not None:
                self._tell(CommitEndedEvent(error=None, offsets=offsets, callback=self.on_commit))

    def next_ms(self) -> float:
        """Return the time of the next automatic commit."""
        return self._next_ms if self._settings.commits_automatically else float("inf")

    def commit_periodically(self, partitions: Collection[TopicPartition]) -> None:
        """Commit automatically if it is time to, and no earlier commit is under way."""
        now_ms = self._now_ms()
        if now_ms < self.next_ms():
            return
        self._next_ms = now_ms + self._settings.auto_commit_interval_ms
        if not self._pending:
            self.commit_async(self.offsets(partitions), None, retries=False)

    def _start(self, offsets: Offsets, deadline_ms: float, **how: bool) -> Future[None] | None:
        if not offsets:
            return None
        future: Future[None] = Future()
        self._send(CommitEvent(offsets=dict(offsets), future=future, deadline_ms=deadline_ms, **how))
        return future

    def _ended(self, offsets: Offsets, callback: CommitCallback | None, future: Future[None]) -> None:
        """Called on the background side: pass the end to the application side."""
        self._pending.pop(future, None)
        error = future.exception()
        callback = callback or self.on_commit
        if callback is not None or error is not None:
            assert error is None or isinstance(error, Exception)
            self._tell(CommitEndedEvent(error=error, offsets=offsets, callback=callback))


def log_failure(event: CommitEndedEvent) -> None:
    """Report a commit that failed and has no callback."""
    names = partition_names(*event.offsets, most=3)
    _log.warning("the automatic commit of %s failed: %s", names, event.error)
