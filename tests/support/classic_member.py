"""A member of the classic protocol in a `World`: what a client sends, and what it makes of the answers."""

from __future__ import annotations

from typing import Any

from coordinator.api import Later
from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.heartbeat import HeartbeatRequest
from wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_MS = 10_000
REBALANCE_MS = 60_000


class ClassicConsumer:
    """One client. It keeps its member id and generation, and the numbers of requests that wait."""

    def __init__(
        self,
        world: World,
        client_id: str,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        version: int = 9,
        is_one_of_several: bool = False,
    ) -> None:
        self.world = world
        self.client_id = client_id
        self.group_id = group_id
        self.instance_id = instance_id
        self.protocols = protocols or {"range": client_id.encode()}
        self.version = version
        self.is_one_of_several = is_one_of_several
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self.protocol: tuple[str | None, str | None] = (None, None)
        """Type and name of the generation's protocol."""
        self.members: dict[str, bytes] = {}
        self.assignment: bytes | None = None
        self._join: int | None = None
        self._sync: int | None = None

    def send_join(self, **changes: Any) -> Any:
        """Send JoinGroup once; return the reply, or None if it waits."""
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=data) for name, data in self.protocols.items()
            ],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        answer = self.world.handle(
            ApiKey.JOIN_GROUP,
            self.version,
            request,
            client_id=self.client_id,
            is_one_of_several=self.is_one_of_several,
        )
        if isinstance(answer, Later):
            self._join = answer.token
            return None
        return self._joined(answer)

    def join(self, **changes: Any) -> Any:
        """Join as a client does: again with the member id if one is required."""
        answer = self.send_join(**changes)
        if answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = self.send_join(**changes)
        return answer

    def joined(self) -> Any:
        """The reply to the JoinGroup that waited; None while it waits."""
        assert self._join is not None, "no JoinGroup waits"
        if self._join not in self.world.late_answers:
            return None
        answer = self.world.late_answers.pop(self._join)
        self._join = None
        return self._joined(answer)

    def take_joined(self) -> None:
        """Read the reply to the JoinGroup that waited, if there is one."""
        if self._join is not None and self._join in self.world.late_answers:
            self.joined()

    def _joined(self, answer: Any) -> Any:
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
        if answer.error_code == ErrorCode.NONE:
            self.generation, self.leader = answer.generation_id, answer.leader
            self.protocol = answer.protocol_type, answer.protocol_name
            self.members = {member.member_id: member.metadata for member in answer.members}
        return answer

    @property
    def is_leader(self) -> bool:
        return self.leader == self.member_id != ""

    def sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> Any:
        """Send SyncGroup; return the reply, or None if it waits."""
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol[0],
            protocol_name=self.protocol[1],
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        answer = self.world.handle(ApiKey.SYNC_GROUP, 5, request, client_id=self.client_id)
        if isinstance(answer, Later):
            self._sync = answer.token
            return self.synced()
        return self._synced(answer)

    def synced(self) -> Any:
        """The reply to the SyncGroup that waited; None while it waits."""
        assert self._sync is not None, "no SyncGroup waits"
        if self._sync not in self.world.late_answers:
            return None
        answer = self.world.late_answers.pop(self._sync)
        self._sync = None
        return self._synced(answer)

    def _synced(self, answer: Any) -> Any:
        if answer.error_code == ErrorCode.NONE:
            self.assignment = answer.assignment
        return answer

    def heartbeat(self, **changes: Any) -> int:
        """Send Heartbeat; return the error code."""
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return int(self.world.beat(ApiKey.HEARTBEAT, 4, request).error_code)

    def leave(self, reason: str | None = None) -> int:
        """Send LeaveGroup; return the error code of this member."""
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id, reason=reason)
        request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        answer = self.world.handle(ApiKey.LEAVE_GROUP, 5, request)
        return int(answer.error_code or answer.members[0].error_code)

    def commit(self, offsets: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Commit offsets as a member of the generation; return the error codes by partition."""
        return self.world.commit(
            offsets, group_id=self.group_id, member_id=self.member_id, epoch=self.generation, version=8
        )


def rebalanced(*consumers: ClassicConsumer) -> None:
    """Let those whose JoinGroup was answered send SyncGroup, the leader with an assignment for each."""
    for consumer in consumers:
        answer = consumer.joined()
        assert answer is not None
        assert answer.error_code == 0, answer
    followers = [consumer for consumer in consumers if not consumer.is_leader]
    (leader,) = (consumer for consumer in consumers if consumer.is_leader)
    for consumer in followers:
        assert consumer.sync() is None
    given = {member_id: b"for " + metadata for member_id, metadata in leader.members.items()}
    assert leader.sync(given).error_code == 0
    for consumer in followers:
        assert consumer.synced().error_code == 0
