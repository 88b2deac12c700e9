"""Replies that wait until their content is durable and this node's leadership is proven.

A reply is held with the index of the last entry that it may reveal and with a time since which leadership
must have been proven. For a read that is the time of its arrival; a write needs none, as the commit of its
entry is proof enough. Indexes, times and deadlines only grow, so one queue in order of arrival serves for
release, expiry and failure.

Invariants: each reply is given exactly once, in order of arrival, and not before its index is
committed and its proof obtained; none waits longer than the timeout.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from cluster.runtime.answers import Unavailable, refusal

LOG = logging.getLogger("quorate.runtime")

Reply = Callable[[object], None]

NO_PROOF = -math.inf
"""The time used for a reply that needs no proof of leadership."""


@dataclass(slots=True)
class PendingReply:
    """A reply to be given: a request and the function that answers it, enough to refuse it in its own shape.

    While it is held, it also has the response, the index that must be committed, the time since which
    leadership must have been proven, and a deadline.
    """

    api_key: int
    api_version: int
    request: object
    reply: Reply
    response: object = None
    index: int = 0
    proof_ms: float = NO_PROOF
    deadline_ms: float = 0.0
    has_written: bool = False
    """Whether any of its decisions wrote records."""
    num_requests: int = 1

    def each(self, response: Any) -> Iterable[tuple[object, object]]:
        """Return each request with its response."""
        return ((self.request, response),)

    def answer(self, response: object) -> None:
        """Pass the response on. The failure of one listener must not hold back other replies."""
        try:
            self.reply(response)
        except Exception:
            LOG.exception("a reply to API %d could not be delivered", self.api_key)

    def refuse(self, why: Unavailable, message: str = "") -> None:
        self.answer(self.refusal(why, message))

    def refusal(self, why: Unavailable, message: str = "") -> object:
        return refusal(why, self.api_key, self.api_version, self.request, message)


class PendingRun(PendingReply):
    """Requests of one API and version that came together, in `requests`; their responses are a list."""

    __slots__ = ()

    def __init__(self, api_key: int, api_version: int, requests: list[Any], reply: Reply) -> None:
        super().__init__(api_key, api_version, requests, reply, num_requests=len(requests))

    @property
    def requests(self) -> list[object]:
        return cast("list[object]", self.request)

    def each(self, response: Any) -> Iterable[tuple[object, object]]:
        return zip(self.requests, response, strict=True)

    def refusal(self, why: Unavailable, message: str = "") -> list[object]:
        return [refusal(why, self.api_key, self.api_version, one, message) for one in self.requests]


class ReadBarrier(PendingReply):
    """A pending reply without a request, used to learn when a read that arrives now would be answered.

    It is answered None then, or with the reason why such a read would be refused.
    """

    __slots__ = ()

    def __init__(self, told: Callable[[Any], None]) -> None:
        super().__init__(-1, 0, None, told)

    def refuse(self, why: Unavailable, message: str = "") -> None:
        self.answer(why)


class PendingReplies:
    """The replies of one shard that wait for its log or for its peers."""

    def __init__(self, timeout_ms: float) -> None:
        self._timeout_ms = timeout_ms
        self._queue: deque[PendingReply] = deque()
        self._num_requests = 0

    def __len__(self) -> int:
        return self._num_requests

    @property
    def next_deadline_ms(self) -> float | None:
        return self._queue[0].deadline_ms if self._queue else None

    def hold(
        self, index: int, now_ms: float, pending: PendingReply, response: object, proof_ms: float = NO_PROOF
    ) -> None:
        if self._queue:
            last = self._queue[-1]
            assert index >= last.index, "indexes only grow"
            proof_ms = max(proof_ms, last.proof_ms)
        pending.response, pending.index, pending.proof_ms = response, index, proof_ms
        pending.deadline_ms = now_ms + self._timeout_ms
        self._queue.append(pending)
        self._num_requests += pending.num_requests

    def release(self, commit_index: int, proven_ms: float = math.inf) -> None:
        """Answer, oldest first, every reply whose index is committed and whose proof is obtained."""
        queue = self._queue
        while queue and queue[0].index <= commit_index and queue[0].proof_ms <= proven_ms:
            pending = queue.popleft()
            self._num_requests -= pending.num_requests
            pending.answer(pending.response)

    def expire(self, now_ms: float) -> int:
        """Refuse those that have waited too long; return how many there were."""
        count = 0
        while self._queue and self._queue[0].deadline_ms <= now_ms:
            pending = self._queue.popleft()
            self._num_requests -= pending.num_requests
            pending.refuse(Unavailable.TIMED_OUT)
            count += pending.num_requests
        return count

    def fail(self, why: Unavailable) -> None:
        """Refuse all: this node will not learn their outcome any more."""
        queue, self._queue, self._num_requests = self._queue, deque(), 0
        for pending in queue:
            pending.refuse(why)

    def shift_deadlines(self, gap_ms: float) -> None:
        """Move the deadlines after the loop stood still for `gap_ms`, as the disk was not heard meanwhile."""
        for pending in self._queue:
            pending.deadline_ms += gap_ms
