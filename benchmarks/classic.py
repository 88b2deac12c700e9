"""Raw members of a group of the classic protocol, one connection each, that act in step.

Every phase is sent by all before any reply is read, so the members wait for each other only at the
coordinator.
"""

from __future__ import annotations

from typing import Any

from benchmarks import load
from wire.apis import ApiKey
from wire.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitionsByName,
    encode,
)
from wire.errors import ErrorCode
from wire.messages.heartbeat import HeartbeatRequest
from wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from wire.protocol import decode_response, encode_request

JOIN, SYNC, HEARTBEAT, LEAVE = 9, 5, 4, 5
SESSION_MS, REBALANCE_MS = 30 * 60_000, 5 * 60_000
SUBSCRIPTION = bytes(200)
ASSIGNMENT = bytes(100)
"""The sizes of a subscription with a topic or two, and of an assignment; their contents are the client's."""


class Opaque:
    """Bytes that members and their leader send and a coordinator does not read."""

    subscription = SUBSCRIPTION

    def assignment(self, place: int, count: int) -> bytes:
        """The assignment of one of `count` members."""
        return ASSIGNMENT


class Embedded(Opaque):
    """Consumers that share the partitions of some topics, as the consumer protocol's coordinator reads it."""

    def __init__(self, topics: list[str], partitions: int) -> None:
        self.subscription = encode(ConsumerProtocolSubscription(topics=topics), 1)
        self._all = [(topic, number) for topic in topics for number in range(partitions)]

    def assignment(self, place: int, count: int) -> bytes:
        numbers_of: dict[str, list[int]] = {}
        for topic, number in self._all[place::count]:
            numbers_of.setdefault(topic, []).append(number)
        assigned = [
            TopicPartitionsByName(topic=topic, partitions=numbers) for topic, numbers in numbers_of.items()
        ]
        return encode(ConsumerProtocolAssignment(assigned_partitions=assigned), 1)


OPAQUE = Opaque()


class ClassicMember:
    """One member and its connection."""

    def __init__(self, peer: load.Peer, group_id: str, says: Opaque = OPAQUE) -> None:
        self.peer = peer
        self.group_id = group_id
        self.says = says
        self.member_id = ""
        self.generation = -1
        self.leads: list[str] = []
        """The ids of all members, on the leader."""

    def send_join(self) -> None:
        protocol = JoinGroupRequestProtocol(name="range", metadata=self.says.subscription)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self._send(ApiKey.JOIN_GROUP, JOIN, request)

    def read_join(self) -> int:
        answer = self._read(ApiKey.JOIN_GROUP, JOIN)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.leads = [member.member_id for member in answer.members]
        return int(answer.error_code)

    def send_sync(self) -> None:
        given = [
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=self.says.assignment(place, len(self.leads))
            )
            for place, member_id in enumerate(self.leads)
        ]
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=given,
        )
        self._send(ApiKey.SYNC_GROUP, SYNC, request)

    def read_sync(self) -> int:
        return int(self._read(ApiKey.SYNC_GROUP, SYNC).error_code)

    def heartbeat_frame(self) -> bytes:
        request = HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id
        )
        return encode_request(ApiKey.HEARTBEAT, HEARTBEAT, 0, load.CLIENT_ID, request)

    def send_heartbeat(self) -> None:
        self.peer.socket.sendall(self.heartbeat_frame())

    def read_heartbeat(self) -> int:
        return int(self._read(ApiKey.HEARTBEAT, HEARTBEAT).error_code)

    def leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id)
        self._send(ApiKey.LEAVE_GROUP, LEAVE, LeaveGroupRequest(group_id=self.group_id, members=[identity]))
        self._read(ApiKey.LEAVE_GROUP, LEAVE)

    def _send(self, api_key: ApiKey, version: int, request: Any) -> None:
        self.peer.socket.sendall(encode_request(api_key, version, 0, load.CLIENT_ID, request))

    def _read(self, api_key: ApiKey, version: int) -> Any:
        length = int.from_bytes(self.peer.exactly(4), "big")
        return decode_response(api_key, version, self.peer.exactly(length))[1]


def rebalance(members: list[ClassicMember]) -> None:
    """Let all join and send SyncGroup; those that have no member id yet are given one first."""
    for wanted in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NONE):
        asking = [one for one in members if wanted is ErrorCode.NONE or not one.member_id]
        for member in asking:
            member.send_join()
        _expect(wanted, {member.read_join() for member in asking})
    for member in members:
        member.send_sync()
    _expect(ErrorCode.NONE, {member.read_sync() for member in members})


def rejoin_after_leaving(members: list[ClassicMember]) -> list[ClassicMember]:
    """Let the last member leave and all others join again once a heartbeat tells them; return these."""
    members[-1].leave()
    left = members[:-1]
    for member in left:
        member.send_heartbeat()
    _expect(ErrorCode.REBALANCE_IN_PROGRESS, {member.read_heartbeat() for member in left})
    rebalance(left)
    return left


def stable_members(opened: list[load.Peer], group_id: str, says: Opaque = OPAQUE) -> list[ClassicMember]:
    """Members that have joined together, one on each connection.

    The first one begins the group, as its generation ends at once without an initial delay."""
    members = [ClassicMember(peer, group_id, says) for peer in opened]
    rebalance(members[:1])
    for wanted in (ErrorCode.MEMBER_ID_REQUIRED, None):
        for member in members[1:]:
            member.send_join()
        if wanted is not None:
            _expect(wanted, {member.read_join() for member in members[1:]})
    first = members[0]
    first.send_heartbeat()
    _expect(ErrorCode.REBALANCE_IN_PROGRESS, {first.read_heartbeat()})
    first.send_join()
    _expect(ErrorCode.NONE, {member.read_join() for member in members})
    for member in members:
        member.send_sync()
    _expect(ErrorCode.NONE, {member.read_sync() for member in members})
    return members


def steady_heartbeats(
    address: tuple[str, int],
    *pids: int,
    connections: int = 50,
    in_flight: int = 16,
    duration_s: float = 5.0,
    group_id: str = "bench-classic",
) -> load.Rate:
    """Heartbeats of one stable group, one member per connection."""
    with load.peers(address, connections) as opened:
        members = stable_members(opened, group_id)
        frames = [member.heartbeat_frame() for member in members]
        rate = load.sliding_window(opened, frames, in_flight, duration_s, *pids)
        for member in members:
            member.send_heartbeat()
        _expect(ErrorCode.NONE, {member.read_heartbeat() for member in members})
        return rate


def _expect(wanted: ErrorCode, found: set[int]) -> None:
    if found and found != {wanted}:
        raise RuntimeError(f"errors {sorted(found)} instead of {wanted.name}")
