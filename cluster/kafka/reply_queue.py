"""The unanswered requests of one connection, in order, and the replies that wait for earlier ones.

Invariants:

- A reply is ready to leave once all replies before it have left the queue.
- Every byte kept is counted: the frames of unanswered requests, replies that wait for an earlier one, and
  replies that wait for time to pass.
- Requests after one that is served alone are not to be served until that is answered.
"""

from __future__ import annotations

from collections import deque

from cluster.kafka.exchange import Exchange


class ReplyQueue:
    """Exchanges enter with their requests, are answered in any order, and leave in the order of entry."""

    __slots__ = (
        "_alone",
        "_asked_bytes",
        "_early_bytes",
        "_num_requests",
        "_patient_bytes",
        "_pause_bytes",
        "_requests_max",
        "unanswered",
    )

    def __init__(self, requests_max: int, pause_bytes: int) -> None:
        self._requests_max = requests_max
        self._pause_bytes = pause_bytes
        self._alone: set[Exchange] = set()  # later requests are not served until these are answered
        self._num_requests = 0  # unanswered
        self._asked_bytes = 0  # frames of unanswered requests
        self._early_bytes = 0  # replies that wait for an earlier one
        self._patient_bytes = 0  # replies that wait for time to pass
        self.unanswered: deque[Exchange] = deque()
        """In order; the first has no reply yet."""

    def add(self, exchange: Exchange) -> None:
        """Take in a request; its reply may be there already and wait only for earlier ones."""
        self._asked_bytes += exchange.asked_bytes
        if exchange.data is not None:
            self._early_bytes += len(exchange.data)
        self._num_requests += exchange.num_requests
        self.unanswered.append(exchange)

    def serve_alone(self, exchange: Exchange) -> None:
        """Be full until this request is answered."""
        self._alone.add(exchange)

    def answered(self, exchange: Exchange, ready: list[bytes]) -> None:
        """Take a reply; if it is the first in order, append it and those that waited for it to `ready`."""
        data = exchange.data
        assert data is not None
        if self._alone:
            self._alone.discard(exchange)
        self._asked_bytes -= exchange.asked_bytes
        unanswered = self.unanswered
        if unanswered[0] is not exchange:
            self._early_bytes += len(data)
            return
        unanswered.popleft().connection = None
        self._num_requests -= exchange.num_requests
        ready.append(data)
        while unanswered and (data := unanswered[0].data) is not None:
            early = unanswered.popleft()
            early.connection = None
            self._num_requests -= early.num_requests
            ready.append(data)
            self._early_bytes -= len(data)

    def may_wait_with(self, num_bytes: int) -> bool:
        """Whether a reply of this size may wait for time to pass: one may, several if they are small."""
        return not self._patient_bytes or self._patient_bytes + num_bytes <= self._pause_bytes

    def waits_with(self, exchange: Exchange, num_bytes: int) -> None:
        """Count a reply that waits for time to pass; a negative number ends the wait."""
        self._asked_bytes -= exchange.asked_bytes  # the request itself is no longer needed
        exchange.asked_bytes = 0
        self._patient_bytes += num_bytes

    def is_full(self) -> bool:
        """Whether no further request is to be served until one of `unanswered` is answered."""
        return (
            self._num_requests >= self._requests_max
            or self._asked_bytes + self._early_bytes > self._pause_bytes
            or bool(self._alone)
        )

    @property
    def num_free(self) -> int:
        """The number of further requests that may be served before one of `unanswered` is answered."""
        return self._requests_max - self._num_requests

    @property
    def reply_bytes(self) -> int:
        """The number of bytes of replies that wait, for an earlier one or for time to pass."""
        return self._early_bytes + self._patient_bytes

    @property
    def num_bytes(self) -> int:
        """The number of bytes kept for unanswered requests."""
        return self._asked_bytes + self._early_bytes + self._patient_bytes

    def clear(self) -> None:
        """Forget everything: the connection is gone."""
        self.unanswered.clear()
        self._num_requests = 0
        self._alone.clear()
