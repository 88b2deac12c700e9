"""Computing the whole group's assignment, when the coordinator asks this member to (KIP-848).

PrepareAssignment shows the group at one moment, COMPUTE_ASSIGNMENT runs the assignor on the application side,
and InstallAssignment sends the result. Neither request renews the session: heartbeats go on meanwhile. The
answer to each heartbeat says whether the member must still compute, so a computation that failed for a reason
that may pass is begun again, and one that another member has taken over is forgotten.

An assignor that raises must not leave the group without an assignment until this member's time is over. The
member then installs a target that cannot be valid and says why. The coordinator refuses it, shows the reason
in its description of the group, and asks the next member, and in the end its own assignor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from client.core.assignors import GroupToAssign, MemberPart, MemberToAssign, OfferedMetadata
from client.core.backoff import retry_backoff
from client.core.env import Environment
from client.core.errors import KafkaError
from client.core.events import ComputeAssignmentEvent, ErrorEvent, InstallAssignmentEvent
from client.core.member.fields import by_topic, parts_of
from client.core.member.membership import MembershipManager
from client.core.member.states import IN_GROUP
from client.core.member.wants import Emit
from client.core.requests import FOREVER, NOTHING, ClientResponse, Destination, PollResult, UnsentRequest
from client.core.settings import ConsumerSettings
from client.core.types import TopicIdPartition, TopicPartition
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import consumer_group_install_assignment as install
from wire.messages import consumer_group_prepare_assignment as prepare
from wire.protocol import encode_request

REASON_CHARS_MAX: Final = 200
"""Limit on the characters of an assignor's exception that the coordinator is told."""

_NOT_ASKED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
"""Errors of a member that is not the one that computes, or not any more; the next heartbeat tells."""

Computing = prepare.ConsumerGroupPrepareAssignmentRequest | install.ConsumerGroupInstallAssignmentRequest


class ComputingManager:
    """Prepares and installs assignments, one computation at a time."""

    def __init__(
        self, settings: ConsumerSettings, env: Environment, emit: Emit, membership: MembershipManager
    ) -> None:
        self._settings = settings
        self._emit = emit
        self._membership = membership
        self._backoff = retry_backoff(settings, env)
        self._retry_ms = -FOREVER
        self._round = 0
        """The number of the computation that runs, or the last one; answers of earlier ones are ignored."""
        self._is_running = False
        self._shown: prepare.ConsumerGroupPrepareAssignmentResponse | None = None
        """The group of the computation that runs."""
        self._next: UnsentRequest | None = None
        """The request that the next pass sends."""

    def poll(self, now_ms: float) -> PollResult:
        """Begin to compute if the coordinator asks for it, and send what was computed."""
        if not self._membership.must_compute or self._membership.state not in IN_GROUP:
            self._is_running, self._next = False, None
            return NOTHING
        if not self._is_running:
            if now_ms < self._retry_ms:
                return PollResult((), self._retry_ms - now_ms)
            self._is_running = True
            self._round += 1
            self._next = self._request(
                ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT,
                prepare.ConsumerGroupPrepareAssignmentRequest(),
                self._prepared,
            )
        request, self._next = self._next, None
        return PollResult((request,), FOREVER) if request is not None else NOTHING

    def computed(self, event: InstallAssignmentEvent, now_ms: float) -> None:
        """Handle INSTALL_ASSIGNMENT: send every member's part."""
        shown = self._shown
        if event.round != self._round or not self._is_running or shown is None:
            return
        try:
            members = _members(shown, event.result)
        except Exception as error:
            reason = f"the assignor {shown.assignor_name} failed: {error!r}"
            members = [install.Member(member_id=reason[:REASON_CHARS_MAX])]
        self._next = self._request(
            ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT,
            install.ConsumerGroupInstallAssignmentRequest(group_epoch=shown.group_epoch, members=members),
            self._installed,
        )

    def _prepared(self, response: ClientResponse) -> None:
        shown: prepare.ConsumerGroupPrepareAssignmentResponse = response.body
        self._shown = shown
        self._emit(
            ComputeAssignmentEvent(round=self._round, assignor=shown.assignor_name, group=_group(shown))
        )

    def _installed(self, response: ClientResponse) -> None:
        self._end()
        self._backoff.reset()

    def _end(self) -> None:
        """Compute no more until a heartbeat's answer asks for it again."""
        self._is_running, self._shown, self._membership.must_compute = False, None, False

    def _failed(self, response: ClientResponse) -> None:
        """Begin again, unless it is not this member's turn or the coordinator refused its result."""
        code = response.body.error_code if response.failure is None else ErrorCode.NONE
        if code == ErrorCode.INVALID_ASSIGNMENT:
            words = f"The coordinator refused the assignment: {response.body.error_message}"
            self._emit(ErrorEvent(error=KafkaError(code, words)))
            self._end()
        elif code in _NOT_ASKED:
            self._end()
        else:
            self._is_running = False
            self._retry_ms = response.received_ms + self._backoff.next_ms()

    def _request(self, api: ApiKey, body: Computing, then: Callable[[ClientResponse], None]) -> UnsentRequest:
        member, number = self._membership, self._round

        def build(version: int) -> Computing:
            body.group_id, body.member_id, body.member_epoch = (
                member.group_id,
                member.member_id,
                member.member_epoch,
            )
            return body

        def answered(response: ClientResponse) -> None:
            if number != self._round or not self._is_running:
                return
            is_fine = response.failure is None and not response.body.error_code
            (then if is_fine else self._failed)(response)

        return UnsentRequest(api, build, Destination.COORDINATOR, answered, self._settings.request_timeout_ms)


def _group(shown: prepare.ConsumerGroupPrepareAssignmentResponse) -> GroupToAssign:
    """Return the group by topic names, as assignors see it. Topics that are deleted by now are left out."""
    names = {topic.topic_id: topic.topic_name for topic in shown.topics}
    members = {
        member.member_id: MemberToAssign(
            member.instance_id,
            member.rack_id,
            frozenset(names[topic_id] for topic_id in member.subscribed_topic_ids if topic_id in names),
            frozenset(
                TopicPartition(names[part.topic_id], part.partition)
                for part in parts_of(member.topic_partitions)
                if part.topic_id in names
            ),
            OfferedMetadata(member.metadata_version, member.metadata_bytes, member.reason),
        )
        for member in shown.members
    }
    topics = {topic.topic_name: topic.num_partitions for topic in shown.topics}
    return GroupToAssign(shown.assignor_version, members, topics)


def _members(
    shown: prepare.ConsumerGroupPrepareAssignmentResponse, result: Mapping[str, MemberPart] | Exception
) -> list[install.Member]:
    """Return every member's part on the wire. Raises what the assignor raised, and for a result that is no
    assignment or that no request can carry: it is the user's, and must not end the background side."""
    if isinstance(result, Exception):
        raise result
    if not isinstance(result, Mapping):
        raise TypeError(f"assign() returned {result!r:.100}, not a mapping of member ids to MemberPart")
    ids = {topic.topic_name: topic.topic_id for topic in shown.topics}
    members = [_part(member_id, part, ids) for member_id, part in result.items()]
    trial = install.ConsumerGroupInstallAssignmentRequest(members=members)
    encode_request(ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT, 0, 0, "", trial)
    return members


def _part(member_id: str, part: MemberPart, ids: Mapping[str, bytes]) -> install.Member:
    """Return a member's part on the wire; the coordinator refuses topics that the group does not have."""
    partitions = frozenset(
        TopicIdPartition(ids.get(partition.topic, bytes(16)), partition.partition)
        for partition in part.partitions
    )
    return install.Member(
        member_id=member_id,
        error=part.data.error,
        topic_partitions=by_topic(partitions),
        metadata_version=part.data.version,
        metadata_bytes=part.data.data,
    )
