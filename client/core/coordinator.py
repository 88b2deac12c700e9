"""Finds the group's coordinator (FindCoordinator), and finds it again as soon as it is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from client.core.backoff import STEADY_ATTEMPTS, doubled, retry_backoff
from client.core.env import Environment
from client.core.errors import FatalError, KafkaError, error_name
from client.core.events import BackgroundEvent, ErrorEvent
from client.core.network.addresses import Address
from client.core.network.connection import Purpose
from client.core.network.delegate import NetworkDelegate
from client.core.requests import (
    NOTHING,
    ClientResponse,
    Destination,
    PollResult,
    RequestFailure,
    UnsentRequest,
)
from client.core.settings import ConsumerSettings
from wire.apis import ApiKey
from wire.errors import ErrorCode, is_retriable
from wire.messages.find_coordinator import (
    FIRST_WITH_MANY_KEYS,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP_KEY_TYPE: Final = 0

FIRST_ANSWER_MS: Final = 2_000.0
"""Time for an answer before another node is asked; doubled with each failure, up to request.timeout.ms."""

FATAL: Final[dict[int, str]] = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the client is not authorized to use group {group!r}",
    ErrorCode.INVALID_GROUP_ID: "{group!r} is not a valid group id",
}
"""Errors after which the coordinator is not looked for any more, with their sentences."""


class _Found(NamedTuple):
    error_code: int
    words: str
    node_id: int
    address: Address


class CoordinatorManager:
    """Knows the coordinator of one group. Without a group it has nothing to do."""

    def __init__(
        self,
        settings: ConsumerSettings,
        env: Environment,
        delegate: NetworkDelegate,
        emit: Callable[[BackgroundEvent], None],
    ) -> None:
        self.node_id: int | None = None
        """The coordinator's node id, None while it is unknown."""
        self.unknown_because = "it was not looked for yet"
        """The reason why the coordinator is unknown, for `explain()`."""
        self.fatal: FatalError | None = None
        """The error for which the group cannot be used; it was emitted, and nothing is sent any more."""
        self._group_id = settings.group_id
        self._request_timeout_ms = float(settings.request_timeout_ms)
        self._delegate = delegate
        self._emit = emit
        self._is_asking = False
        self._told_code = ErrorCode.NONE.value
        """The unforeseen error that the application was told of, until there is a coordinator."""
        self._next_ms = 0.0
        self._found_ms = 0.0
        self._settled_ms = settings.retry_backoff_max_ms
        self._backoff = retry_backoff(settings, env, steady=STEADY_ATTEMPTS)
        delegate.lost_listeners.append(self._connection_lost)

    def poll(self, now_ms: float) -> PollResult:
        """Ask any node for the coordinator while it is unknown."""
        if self._group_id is None or self.node_id is not None or self._is_asking or self.fatal is not None:
            return NOTHING
        if now_ms < self._next_ms:
            return PollResult((), self._next_ms - now_ms)
        self._is_asking = True
        timeout_ms = doubled(FIRST_ANSWER_MS, self._backoff.failures, self._request_timeout_ms)
        request = UnsentRequest(
            api=ApiKey.FIND_COORDINATOR,
            build=self._build,
            to=Destination.ANY,
            then=self._answered,
            timeout_ms=timeout_ms,
            versions=(1, 6),
        )
        return PollResult((request,), NOTHING.wait_ms)

    def lost(self, node_id: int, why: str, now_ms: float) -> None:
        """Look for the coordinator again, as `node_id` is not it or does not answer.

        At once, but later if it was found only just before. News about another node is old, and ignored."""
        if node_id != self.node_id or self.node_id is None:
            return
        self.node_id = None
        if now_ms >= self._found_ms + self._settled_ms:
            self._backoff.reset()
            self._next_ms = now_ms
            self.unknown_because = why
        else:
            self._later(why, now_ms)
        self._delegate.clear_coordinator(why, now_ms)

    def _connection_lost(self, node_id: int, purpose: Purpose, why: str, now_ms: float) -> None:
        if purpose is Purpose.COORDINATOR:
            self.lost(node_id, why, now_ms)

    def _build(self, version: int) -> FindCoordinatorRequest:
        assert self._group_id is not None
        if version >= FIRST_WITH_MANY_KEYS:
            return FindCoordinatorRequest(key_type=GROUP_KEY_TYPE, coordinator_keys=[self._group_id])
        return FindCoordinatorRequest(key=self._group_id, key_type=GROUP_KEY_TYPE)

    def _answered(self, response: ClientResponse) -> None:
        self._is_asking = False
        now_ms = response.received_ms
        if response.failure is not None:
            self._later(response.words, now_ms)
            return
        found = _read(response.body, response.version, self._group_id or "")
        if found.error_code == ErrorCode.NONE and not found.address.is_valid:
            self._later(
                f"FindCoordinator named node {found.node_id} at {found.address}, which is no address", now_ms
            )
        elif found.error_code == ErrorCode.NONE:
            self._found_ms, self._told_code = now_ms, ErrorCode.NONE.value
            self.node_id = found.node_id
            self._delegate.set_coordinator(found.node_id, found.address)
        elif sentence := FATAL.get(found.error_code):
            self._give_up(found.error_code, sentence.format(group=self._group_id), now_ms)
        else:
            words = f"FindCoordinator was answered with {found.words}"
            if not is_retriable(found.error_code) and self._told_code != found.error_code:
                self._told_code = found.error_code
                self._emit(ErrorEvent(error=KafkaError(found.error_code, words)))
            self._later(words, now_ms)

    def _later(self, why: str, now_ms: float) -> None:
        self.unknown_because = why
        self._next_ms = now_ms + self._backoff.next_ms()

    def _give_up(self, code: int, words: str, now_ms: float) -> None:
        self.fatal = FatalError(code, words)
        self.unknown_because = str(self.fatal)
        self._emit(ErrorEvent(error=self.fatal, is_fatal=True))
        self._delegate.fail_waiting(
            Destination.COORDINATOR, RequestFailure.UNREACHABLE, self.unknown_because, now_ms
        )


def _read(body: FindCoordinatorResponse, version: int, group_id: str) -> _Found:
    """Read an answer of any version."""
    one: FindCoordinatorResponse | Coordinator = body
    if version >= FIRST_WITH_MANY_KEYS:
        of_group = [each for each in body.coordinators if each.key == group_id]
        if not of_group:
            return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no coordinator at all", -1, Address("", 0))
        one = of_group[0]
    name = error_name(one.error_code)
    words = f"{name}: {one.error_message}" if one.error_message else name
    return _Found(one.error_code, words, one.node_id, Address(one.host, one.port))
