"""The heartbeats of a member: their times, and the meaning of their answers.

One heartbeat is on its way at a time. It is due an interval after the last one was sent; the interval is the
coordinator's and comes with each answer. It is due at once when the member joins, acknowledges an
assignment, or changed its subscription, and restarts the interval then. After a failure nothing is due
before the back-off has passed. Only the heartbeat that leaves does not wait for the one on its way: that
one's answer means nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from client.core.assignors import AssignorData
from client.core.backoff import retry_backoff
from client.core.env import Environment
from client.core.errors import FatalError, KafkaError, error_name
from client.core.events import ErrorEvent, SubscribeEvent
from client.core.member.fields import (
    LEASES_VERSION,
    OWN_ID_VERSION,
    REGEX_VERSION,
    Heartbeat,
    HeartbeatFields,
    on_the_wire,
    parts_of,
    tokens_of,
)
from client.core.member.membership import JOIN_EPOCH, MembershipManager
from client.core.member.states import (
    COORDINATOR_MOVED,
    FATAL_ERRORS,
    FENCING,
    IN_GROUP,
    NO_LEASES,
    TOPIC_REFUSED,
    UNKNOWN_ERROR,
    MemberState,
)
from client.core.member.wants import Emit, GroupCoordinator
from client.core.requests import (
    FOREVER,
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
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from wire.messages.extended_consumer_group_heartbeat import AssignedTopicPartitions
from wire.messages.extended_consumer_group_heartbeat import Assignment as ExtendedAssignment

HEARTBEAT_INTERVAL_MS_MIN: Final = 50.0
"""The shortest interval that is followed, so that an answer without one does not cause a storm."""

HEARTBEAT_INTERVAL_MS_MAX: Final = 60_000.0
"""The longest interval that is followed. More heartbeats than asked for harm nobody, and a member that sends
none would learn of no rebalance."""

ANSWER_MS: Final = 10_000
"""Time for the answer, if request.timeout.ms is not shorter: a coordinator that hangs must be noticed well
within the session, which is 45 seconds by default."""

JOIN_AGAIN_MS_MAX: Final = 60_000
"""Limit on the time in which a static member tries to join although a registration of its own may be in the
way. That one ends with its session."""

_AT_ONCE: Final = frozenset({MemberState.JOINING, MemberState.ACKNOWLEDGING})
"""The states in which a heartbeat is due without waiting for the interval."""


class _Sent(NamedTuple):
    """A heartbeat on its way."""

    api: ApiKey
    epoch: int
    subscription: SubscribeEvent
    fields: HeartbeatFields
    now_ms: float

    @property
    def joins(self) -> bool:
        return self.epoch == JOIN_EPOCH


class HeartbeatManager:
    """Sends the heartbeats of one member."""

    def __init__(
        self,
        settings: ConsumerSettings,
        env: Environment,
        emit: Emit,
        membership: MembershipManager,
        coordinator: GroupCoordinator,
    ) -> None:
        self.trouble = ""
        """The reason why the last heartbeat failed, for people; empty if it did not."""
        self.is_waiting = False
        """Whether a heartbeat is on its way."""
        self._settings = settings
        self._emit = emit
        self._membership = membership
        self._coordinator = coordinator
        self._backoff = retry_backoff(settings, env)
        self._interval_ms = 0.0
        self._sent_ms = -FOREVER
        self._retry_ms = -FOREVER
        """The end of the back-off after a failure."""
        self._number = 0
        """The number of the request on its way, or of the last one."""
        self._told: _Sent | None = None
        """The last heartbeat, if it was accepted; None while it is not certain what the coordinator knows."""
        self._registered_ms: float | None = None
        """The time since which the coordinator may hold a registration of this member that is not its present
        one: after a join or a leave without an answer, and after FENCED_MEMBER_EPOCH."""
        self._is_extension_refused = False
        """Whether the coordinator does not serve the extended heartbeat."""
        self._reported_ms = -FOREVER
        """The time at which an error that does not end the member was last reported to the application."""

    def poll(self, now_ms: float) -> PollResult:
        """Send the heartbeat that leaves, or the next one if it is due."""
        member = self._membership
        if member.farewell is not None:
            return PollResult((self._farewell(now_ms),), 0)
        if self._coordinator.fatal is not None:
            member.fail(self._coordinator.fatal, now_ms)
        if self.is_waiting or not self._is_member:
            return NOTHING
        wait_ms = self.due_ms(now_ms) - now_ms
        if wait_ms > 0:
            return PollResult((), wait_ms)
        return PollResult((self._heartbeat(now_ms),), FOREVER)

    def due_ms(self, now_ms: float) -> float:
        """Return the time of the next heartbeat, if nothing happens before and none is on its way."""
        is_changed = self._told is None or self._told.subscription != self._membership.subscription
        if is_changed or self._membership.state in _AT_ONCE:
            return max(self._retry_ms, now_ms)
        return max(self._retry_ms, self._sent_ms + self._interval_ms)

    @property
    def _is_member(self) -> bool:
        member = self._membership
        leaves = member.state is MemberState.PREPARE_LEAVING and member.member_epoch > JOIN_EPOCH
        return leaves or member.state in IN_GROUP

    # Sending.

    def _fields(self) -> HeartbeatFields:
        member, settings = self._membership, self._settings
        subscription = member.subscription
        return HeartbeatFields(
            rack_id=settings.client_rack or None,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            subscribed_topic_names=tuple(sorted(subscription.topics)),
            subscribed_topic_regex=subscription.regex or "",
            server_assignor=settings.group_remote_assignor,
            client_assignors=tuple(map(on_the_wire, subscription.assignors)),
            owned=member.told,
            fencing_tokens=subscription.leases,
        )

    @property
    def _api(self) -> ApiKey:
        """The extended heartbeat for leases, and for assignors if the coordinator serves it, else Kafka's."""
        subscription = self._membership.subscription
        if subscription.leases or (subscription.assignors and not self._is_extension_refused):
            return ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT
        return ApiKey.CONSUMER_GROUP_HEARTBEAT

    def _heartbeat(self, now_ms: float) -> UnsentRequest:
        member = self._membership
        sent = _Sent(self._api, member.member_epoch, member.subscription, self._fields(), now_ms)
        told = None if sent.joins or self._told is None else self._told.fields
        acknowledges = member.state is MemberState.ACKNOWLEDGING
        self.is_waiting, self._sent_ms = True, now_ms
        request = self._request(
            sent.api,
            sent.epoch,
            lambda version: sent.fields.body(told, sent.api, version, acknowledges=acknowledges),
            lambda response: self._ended(sent, response),
            min(self._settings.request_timeout_ms, ANSWER_MS),
        )
        if sent.fields.subscribed_topic_regex and sent.api is ApiKey.CONSUMER_GROUP_HEARTBEAT:
            request.versions = (REGEX_VERSION, REGEX_VERSION)
        if sent.fields.fencing_tokens:
            request.versions = (LEASES_VERSION, LEASES_VERSION)
        member.heartbeat_sent(now_ms)
        return request

    def _farewell(self, now_ms: float) -> UnsentRequest:
        """Make the heartbeat that leaves; the answer to the one on its way is forgotten."""
        member = self._membership
        epoch = member.take_farewell()
        self.is_waiting, self._told, self.trouble = False, None, ""
        self._retry_ms, self._registered_ms = -FOREVER, now_ms

        def ended(response: ClientResponse) -> None:
            why = _why_not(response)
            if not why:
                self._registered_ms = None
            words = f"the coordinator may not know: {why}" if why else "the coordinator knows"
            member.left(words, response.received_ms)

        timeout_ms = max(min(self._settings.request_timeout_ms, member.leave_deadline_ms - now_ms), 1.0)
        return self._request(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            epoch,
            lambda _version: ConsumerGroupHeartbeatRequest(),
            ended,
            timeout_ms,
        )

    def _request(
        self,
        api: ApiKey,
        epoch: int,
        build: Callable[[int], Heartbeat],
        then: Callable[[ClientResponse], None],
        timeout_ms: float,
    ) -> UnsentRequest:
        """Make a request to the coordinator, whose answer is heard only if no other was sent after it."""
        member = self._membership
        self._number += 1
        number = self._number

        def build_with_identity(version: int) -> Heartbeat:
            body = build(version)
            body.group_id, body.member_epoch = member.group_id, epoch
            body.member_id = member.member_id
            body.instance_id = member.group_instance_id
            if _gives_id(api, version) and not member.has_given_id:
                body.member_id = ""
            return body

        def answered(response: ClientResponse) -> None:
            if number == self._number:
                self._number += 1  # an answer is heard once
                then(response)

        return UnsentRequest(api, build_with_identity, Destination.COORDINATOR, answered, timeout_ms)

    # Answers.

    def _ended(self, sent: _Sent, response: ClientResponse) -> None:
        self.is_waiting = False
        if response.failure is not None:
            self._failed(sent, response)
        elif response.body.error_code:
            self._refused(sent, response)
        elif response.body.member_epoch <= JOIN_EPOCH:
            self._again(
                f"the coordinator answered the epoch {response.body.member_epoch}", response.received_ms
            )
        else:
            self._accepted(sent, response)

    def _accepted(self, sent: _Sent, response: ClientResponse) -> None:
        member, body = self._membership, response.body
        self.trouble, self._told, self._registered_ms = "", sent, None
        self._backoff.reset()
        self._retry_ms = -FOREVER
        least_ms, most_ms = HEARTBEAT_INTERVAL_MS_MIN, HEARTBEAT_INTERVAL_MS_MAX
        self._interval_ms = min(max(float(body.heartbeat_interval_ms), least_ms), most_ms)
        if body.member_id and _gives_id(sent.api, response.version):
            member.member_id, member.has_given_id = body.member_id, True
        given, data, tokens = body.assignment, None, None
        if isinstance(given, ExtendedAssignment):
            data = AssignorData(given.error, given.metadata_version, given.metadata_bytes)
            if sent.fields.fencing_tokens:
                tokens = tokens_of(given.assigned_topic_partitions)
        member.must_compute = (
            sent.api is ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT and body.should_compute_assignment
        )
        parts = None if given is None else parts_of(_assigned(given))
        member.answered(body.member_epoch, parts, response.received_ms, data, tokens)

    def _refused(self, sent: _Sent, response: ClientResponse) -> None:
        member, now_ms = self._membership, response.received_ms
        code = response.body.error_code
        words = _why_not(response)
        is_gone = code == ErrorCode.GROUP_ID_NOT_FOUND and not sent.joins
        if (code in FENCING and not sent.joins) or is_gone:
            self._told, self._registered_ms = None, now_ms
            member.fence(words, now_ms, is_known=code == ErrorCode.FENCED_MEMBER_EPOCH)
        elif code in COORDINATOR_MOVED:
            self._lose_coordinator(response.node_id, words, now_ms)
            self._again(words, now_ms, at_once=True)
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._report(KafkaError(code, TOPIC_REFUSED), now_ms)
            self._again(words, now_ms)
        elif code in FENCING or is_retriable(code) or self._is_own_registration(code, now_ms):
            self._again(words, now_ms)
        else:
            self._fail(code, response.body.error_message, now_ms)

    def _failed(self, sent: _Sent, response: ClientResponse) -> None:
        now_ms, failure = response.received_ms, response.failure
        if sent.joins and self._registered_ms is None:
            self._registered_ms = sent.now_ms
        if failure is not RequestFailure.UNSUPPORTED_VERSION:
            words = _why_not(response)
            self._lose_coordinator(response.node_id, words, now_ms)
            self._again(words, now_ms)
        elif sent.fields.fencing_tokens:
            words = f"{NO_LEASES} ({response.words})"
            self._membership.fail(FatalError(ErrorCode.UNSUPPORTED_VERSION, words), now_ms)
        elif sent.api is ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT:
            self._is_extension_refused = True
            self._told = None
        else:
            self._fail(ErrorCode.UNSUPPORTED_VERSION, response.words, now_ms)

    def _fail(self, code: int, words: str | None, now_ms: float) -> None:
        """End the member with the sentence of an error and what the coordinator or the network says."""
        sentence = FATAL_ERRORS.get(code, UNKNOWN_ERROR)
        self._membership.fail(FatalError(code, f"{sentence}. {words or ''}".rstrip()), now_ms)

    def _lose_coordinator(self, node_id: int, why: str, now_ms: float) -> None:
        self._coordinator.lost(node_id, why, now_ms)
        self._is_extension_refused = False  # the next one may have it

    def _again(self, why: str, now_ms: float, *, at_once: bool = False) -> None:
        """Send everything again after a back-off; the first time at once, if that is likely to help."""
        self.trouble, self._told = why, None
        wait_ms = self._backoff.next_ms()
        self._retry_ms = now_ms + (0.0 if at_once and self._backoff.failures == 1 else wait_ms)

    def _report(self, error: KafkaError, now_ms: float) -> None:
        """Let the next poll raise the error; once for each poll, however often the heartbeat is refused."""
        if self._membership.polled_ms > self._reported_ms:
            self._reported_ms = now_ms
            self._emit(ErrorEvent(error=error))

    def _is_own_registration(self, code: int, now_ms: float) -> bool:
        """Whether a static member may be refused because of a registration of its own, which will expire."""
        since_ms = self._registered_ms
        is_recent = since_ms is not None and now_ms - since_ms < JOIN_AGAIN_MS_MAX
        return code == ErrorCode.UNRELEASED_INSTANCE_ID and is_recent


def _gives_id(api: ApiKey, version: int) -> bool:
    """Whether the coordinator chooses the member id."""
    return api is ApiKey.CONSUMER_GROUP_HEARTBEAT and version < OWN_ID_VERSION


def _why_not(response: ClientResponse) -> str:
    """Return the reason why a heartbeat was not accepted, for people; empty if it was."""
    if response.failure is not None:
        return response.words or response.failure.value
    code, message = response.body.error_code, response.body.error_message
    return f"{error_name(code)}: {message or 'the coordinator gave no reason'}" if code else ""


def _assigned(given: Any) -> Sequence[TopicPartitions | AssignedTopicPartitions]:
    """Return the partitions of either heartbeat's assignment that may be used now."""
    if isinstance(given, ExtendedAssignment):
        return given.assigned_topic_partitions
    parts: list[TopicPartitions] = given.topic_partitions
    return parts
