"""The ends of the sessions of consumers: one heap for all groups of a shard.

A heartbeat only moves its session's deadline. The heap has one entry for each session, which may be early; it
is looked at again then.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from lineage.rewrite.groups import Now, RewriteSession

SessionOf = Callable[[str, str], RewriteSession | None]
"""(group id, consumer id) → the session, if there still is one."""


class SessionDeadlines:
    """The deadlines of one shard, in monotonic ms."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str, str]] = []

    @property
    def next_ms(self) -> float | None:
        """The time at which `passed` may find something; it may also find nothing."""
        return self._heap[0][0] if self._heap else None

    def arm(self, group_id: str, consumer_id: str, session: RewriteSession, now: Now) -> None:
        """Give the session its whole time from now on."""
        session.armed, session.deadline_ms = now, now.monotonic + session.timeout_ms
        if session.queued_ms is None or session.queued_ms > session.deadline_ms:
            self._queue(group_id, consumer_id, session)

    def passed(self, now: Now, session_of: SessionOf) -> Iterator[tuple[str, str]]:
        """Yield group and consumer of each session that has ended; a session without deadline has not."""
        while self._heap and self._heap[0][0] <= now.monotonic:
            queued_ms, group_id, consumer_id = heapq.heappop(self._heap)
            session = session_of(group_id, consumer_id)
            if session is None or session.queued_ms != queued_ms:
                continue
            session.queued_ms = None
            if session.deadline_ms is not None and session.deadline_ms <= now.monotonic:
                yield group_id, consumer_id
            else:
                self._queue(group_id, consumer_id, session)

    def _queue(self, group_id: str, consumer_id: str, session: RewriteSession) -> None:
        if session.deadline_ms is not None:
            heapq.heappush(self._heap, (session.deadline_ms, group_id, consumer_id))
            session.queued_ms = session.deadline_ms
