"""Calls of the application that a manager works on, each with one request after the other until it ends.

Callers that ask for the same share a call. An answer ends it, or makes it wait for the next attempt
(retry.backoff.ms, longer with each failure). At its own deadline, each caller gets `TimedOut` with what the
last attempt met.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from client.core.backoff import Backoff, retry_backoff
from client.core.env import Environment
from client.core.errors import ConsumerError, KafkaError, TimedOut
from client.core.futures import complete, fail
from client.core.requests import FOREVER, ClientResponse, RequestFailure
from client.core.settings import ConsumerSettings
from wire.errors import ErrorCode

CALLS_MAX: Final = 1_000
"""Most callers that wait for calls of one kind; a further one is refused."""

Then = Callable[[Any, Exception | None], None]
"""Takes the result of a call, or the error that ended it."""

_FINAL: Final = {
    RequestFailure.UNSUPPORTED_VERSION: ErrorCode.UNSUPPORTED_VERSION,
    RequestFailure.AUTHENTICATION: ErrorCode.SASL_AUTHENTICATION_FAILED,
}
"""Failures that another attempt would meet again, with Kafka's code."""

K = TypeVar("K", bound=Hashable)


MISSING: Final = ErrorCode.UNKNOWN_SERVER_ERROR
"""The code for a partition that an answer does not mention; another attempt may bring it."""


class _Waiter(NamedTuple):
    then: Then
    deadline_ms: float


class PendingCall(Generic[K]):
    """A call that is being worked on: its key, those who wait for it, and the time of the next attempt."""

    __slots__ = ("_backoff", "has_begun", "in_flight", "key", "next_ms", "trouble", "waiters", "what")

    def __init__(self, key: K, what: str, backoff: Backoff) -> None:
        self.key = key
        self.what = what
        self.waiters: list[_Waiter] = []
        self.in_flight = 0
        """Its requests that have no answer yet."""
        self.has_begun = False
        """Whether a part of its result is there, which is too old for a further caller."""
        self.next_ms = 0.0
        self.trouble = "there was no answer"
        """The failure of the last attempt, for `TimedOut`."""
        self._backoff = backoff

    @property
    def deadline_ms(self) -> float:
        """The last deadline of those who wait."""
        return max((waiter.deadline_ms for waiter in self.waiters), default=-FOREVER)

    def end(self, result: Any = None, error: Exception | None = None) -> None:
        """Tell everybody. A call ends once."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.then(result, error)

    def retry_later(self, why: str, now_ms: float) -> None:
        """Make another attempt after the back-off."""
        self.trouble = why
        self.next_ms = now_ms + self._backoff.next_ms()

    def unanswered(self, response: ClientResponse) -> None:
        """Take note that a request has no answer: try again if that may help."""
        failure = response.failure
        assert failure is not None
        words = response.words or failure.value
        if failure is RequestFailure.CANCELLED:
            self.end(error=ConsumerError(f"{self.what} was given up: {failure.value}"))
        elif failure in _FINAL:
            self.end(error=KafkaError(_FINAL[failure], f"{self.what} failed: {words}"))
        else:
            self.retry_later(words, response.received_ms)

    def expire(self, now_ms: float) -> None:
        """Tell those whose time is over."""
        late = [waiter for waiter in self.waiters if waiter.deadline_ms <= now_ms]
        self.waiters = [waiter for waiter in self.waiters if waiter.deadline_ms > now_ms]
        for waiter in late:
            waiter.then(None, TimedOut(f"{self.what} did not end in time: {self.trouble}"))


class PendingCalls(Generic[K]):
    """The calls of one kind, in the order in which they were made."""

    def __init__(self, settings: ConsumerSettings, env: Environment, *, one_by_one: bool = False) -> None:
        self._settings = settings
        self._env = env
        self._one_by_one = one_by_one
        """Whether each call begins when the one before it has ended."""
        self._calls: list[PendingCall[K]] = []

    def add(self, key: K, what: str, then: Then, deadline_ms: float) -> None:
        """Make a call, or join an equal one. `what` names it in errors."""
        if sum(len(call.waiters) for call in self._calls) >= CALLS_MAX:
            then(None, ConsumerError(f"{what} was refused: {CALLS_MAX:,} such calls wait already"))
            return
        call = self._joinable(key)
        if call is None:
            call = PendingCall(key, what, retry_backoff(self._settings, self._env))
            self._calls.append(call)
        call.waiters.append(_Waiter(then, deadline_ms))

    def _joinable(self, key: K) -> PendingCall[K] | None:
        """Return an equal call whose result is as good as that of a new one.

        One in flight may have read its answer already, one that has begun has a part of it, and one without
        waiters has ended. In a queue, only the last call may be joined."""
        if self._one_by_one:
            return self._calls[-1] if self._calls and self._calls[-1].key == key else None
        return next(
            (
                call
                for call in self._calls
                if call.key == key and call.waiters and not (call.in_flight or call.has_begun)
            ),
            None,
        )

    def __contains__(self, call: object) -> bool:
        return call in self._calls

    def due(self, now_ms: float) -> list[PendingCall[K]]:
        """End calls that are late. Returns those whose next attempt is due."""
        if not self._calls:
            return []
        for call in self._calls:
            call.expire(now_ms)
        self._calls = [call for call in self._calls if call.waiters or call.in_flight]
        first = self._calls[:1] if self._one_by_one else self._calls
        return [call for call in first if not call.in_flight and call.next_ms <= now_ms]

    def timeout_ms(self, call: PendingCall[K], now_ms: float) -> float:
        """Return the time limit of a request for a call, which nobody waits for after its deadline."""
        return min(self._settings.request_timeout_ms, call.deadline_ms - now_ms)

    def wait_ms(self, now_ms: float) -> float:
        """Return the time until an attempt is due, or a caller's deadline."""
        if not self._calls:
            return FOREVER
        ends = [waiter.deadline_ms for call in self._calls for waiter in call.waiters]
        first = self._calls[:1] if self._one_by_one else self._calls
        attempts = [call.next_ms for call in first if not call.in_flight]
        return max(min([*ends, *attempts], default=FOREVER) - now_ms, 0.0)


def completes(future: Future[Any] | None) -> Then:
    """Return a function that completes a future with the end of a call."""
    return partial(_complete, future)


def _complete(future: Future[Any] | None, result: Any, error: Exception | None) -> None:
    if error is None:
        complete(future, result)
    else:
        fail(future, error)
