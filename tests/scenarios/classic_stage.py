"""Members of the classic protocol on the stage, and what `explain` says of their group.

Requests of theirs may wait for others: `answer` tells what has come. A leader assigns by range. The ids that
the node gave are shown as the names that the story uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from cluster.runtime.shard_runtime import AnyShardRuntime
from cluster.simulator import WireClient
from cluster.simulator.client import Call
from history.reading.node import NodeLog
from history.render import UTC_STYLE
from history.telling.explain import explain
from history.telling.prose import explanation_text
from records.ids import METADATA_SHARD
from tests.scenarios.wording import error_words, ranges
from tests.support.memory_log import MemoryReader
from tests.support.single_replica import committed
from wire.apis import ApiKey
from wire.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitionsByName,
    decode,
    encode,
)
from wire.errors import ErrorCode
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.heartbeat import HeartbeatRequest
from wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_MS, REBALANCE_MS = 10_000, 30_000
PROTOCOL = "range"


class ScriptedMember:
    """A client of the classic protocol; `epoch` is its generation."""

    def __init__(self, client: WireClient, group_id: str, name: str, *topics: str) -> None:
        self.client = client
        self.group_id = group_id
        self.name = name
        self.topics = topics
        self.instance_id: str | None = None
        self.member_id = ""
        self.epoch = -1
        self.members: dict[str, bytes] = {}
        """The members and their metadata, if it leads."""
        self.call: Call | None = None
        """The request that waits."""

    def join(self, reason: str | None = None) -> None:
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(
                    name=PROTOCOL, metadata=encode(ConsumerProtocolSubscription(topics=list(self.topics)), 0)
                )
            ],
            reason=reason,
        )
        if not self.member_id and self.instance_id is None:
            required = self.client.ask(ApiKey.JOIN_GROUP, 9, request)
            if required.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                raise AssertionError(f"joined without a member id: {required}")
            self.member_id = request.member_id = required.member_id
        self.call = self.client.send(ApiKey.JOIN_GROUP, 9, request)

    def sync(self, num_partitions: dict[str, int]) -> None:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=self._assign(num_partitions),
        )
        self.call = self.client.send(ApiKey.SYNC_GROUP, 5, request)

    def leave(self, reason: str | None = None) -> int:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id, reason=reason)
        request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        answer = self.client.ask(ApiKey.LEAVE_GROUP, 5, request)
        return int(answer.error_code or answer.members[0].error_code)

    def _assign(self, num_partitions: dict[str, int]) -> list[SyncGroupRequestAssignment]:
        """Give each member of this leader its range of each topic."""
        topics = {
            member_id: decode(ConsumerProtocolSubscription, metadata).topics
            for member_id, metadata in self.members.items()
        }
        given: dict[str, list[TopicPartitionsByName]] = {member_id: [] for member_id in topics}
        for topic, number in sorted(num_partitions.items()):
            takers = [member_id for member_id, wanted in topics.items() if topic in wanted]
            ends = [number * (at + 1) // len(takers) for at in range(len(takers))]
            for member_id, begin, end in zip(takers, [0, *ends], ends, strict=False):
                given[member_id].append(
                    TopicPartitionsByName(topic=topic, partitions=list(range(begin, end)))
                )
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=encode(ConsumerProtocolAssignment(assigned_partitions=parts), 0),
            )
            for member_id, parts in given.items()
        ]


def assigned(data: bytes) -> str:
    """An assignment in words."""
    if not data:
        return "nothing"
    parts = decode(ConsumerProtocolAssignment, data).assigned_partitions
    return " and ".join(f"{part.topic} {ranges(part.partitions)}" for part in parts) or "nothing"


class ClassicStage:
    """The commands of classic members. The stage itself brings the node, its members and its topics."""

    members: dict[str, Any]
    num_partitions: dict[str, int]
    names: dict[str, str]
    """The name of each member id that the node gave."""

    def classic_member(self, name: str) -> ScriptedMember:
        member = self.members[name]
        assert isinstance(member, ScriptedMember)
        return member

    def new_client(self, name: str, group: str) -> WireClient:
        raise NotImplementedError

    def ask_admin(self, api_key: ApiKey, version: int, body: Any) -> Any:
        raise NotImplementedError

    def runtime_of(self, shard: int | str) -> AnyShardRuntime:
        """The leader of a shard, or of the shard of a group."""
        raise NotImplementedError

    def classic_join(
        self, name: str, group: str, *topics: str, instance: str | None = None, reason: str | None = None
    ) -> list[str]:
        member = self.members[name] = ScriptedMember(self.new_client(name, group), group, name, *topics)
        member.instance_id = instance
        return self.rejoin(name, reason=reason)

    def rejoin(self, name: str, *topics: str, reason: str | None = None) -> list[str]:
        member = self.classic_member(name)
        member.topics = topics or member.topics
        member.join(reason and reason.replace("_", " "))
        return self.answer(name)

    def sync(self, name: str) -> list[str]:
        self.classic_member(name).sync(self.num_partitions)
        return self.answer(name)

    def answer(self, name: str) -> list[str]:
        """Tell the answer to the member's request that waits, if it comes within 50 ms."""
        member = self.classic_member(name)
        call = member.call
        if call is None:
            return [f"{name}: nothing waits"]
        member.client.world.run_until(lambda: call.response is not None or call.is_lost, within_ms=50)
        if call.is_lost:
            return [f"{name}: no answer, the connection is gone"]
        if call.response is None:
            return [f"{name}: waits"]
        member.call = None
        said = call.response
        if said.error_code:
            return [f"{name}: {error_words(said.error_code)}"]
        if call.api_key == ApiKey.SYNC_GROUP:
            return [f"{name}: assigned {assigned(said.assignment)}"]
        member.member_id, member.epoch = said.member_id, said.generation_id
        self.names[said.member_id] = name
        member.members = {one.member_id: one.metadata for one in said.members}
        who = " and ".join(self.names.get(member_id, "a new member") for member_id in member.members)
        leads = f"leads {who}" if who else f"{self.names.get(said.leader, 'a former process')} leads"
        return [f"{name}: generation {said.generation_id}, {leads}"]

    def beat(self, *names: str) -> list[str]:
        lines = []
        for name in names:
            member = self.classic_member(name)
            request = HeartbeatRequest(
                group_id=member.group_id,
                generation_id=member.epoch,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
            )
            answer = member.client.ask(ApiKey.HEARTBEAT, 4, request)
            lines.append(f"{name}: {error_words(answer.error_code)}")
        return lines

    def classic_leave(self, name: str, reason: str | None = None) -> list[str]:
        code = self.classic_member(name).leave(reason and reason.replace("_", " "))
        return [f"{name}: {error_words(code)}" if code else f"{name}: left"]

    def classic_describe(self, group: str) -> list[str]:
        found = self.ask_admin(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[group])).groups[0]
        lines = [
            " ".join(f"{group}: {found.group_state} {found.protocol_type} {found.protocol_data}".split())
        ]
        for member in found.members:
            name = self.names.get(member.member_id, "a new member")
            who = f"{name} ({member.group_instance_id})" if member.group_instance_id else name
            lines.append(f"  {who}: {assigned(member.member_assignment)}")
        return lines

    def explain(self, group: str) -> list[str]:
        """The output of `quorate log explain` for the group."""
        runtime = self.runtime_of(group)
        readers = {
            shard: MemoryReader(written=committed(self.runtime_of(shard).replica))
            for shard in (METADATA_SHARD, runtime.shard)
        }
        log = NodeLog(path="the leader", readers=readers)
        text = explanation_text(explain(log, group, shard=runtime.shard, style=UTC_STYLE), UTC_STYLE)
        return [f"  | {self.named(line)}".rstrip() for line in text]

    def named(self, text: str) -> str:
        """Replace the ids of classic members by their names."""
        known = sorted(self.names, key=len, reverse=True)
        pattern = "|".join(map(re.escape, known)) or r"(?!)"
        return re.sub(pattern, lambda found: self.names[found[0]], text)


CLASSIC_COMMANDS: dict[str, Callable[..., list[str]]] = {
    "classic-join": ClassicStage.classic_join,
    "rejoin": ClassicStage.rejoin,
    "sync": ClassicStage.sync,
    "answer": ClassicStage.answer,
    "beat": ClassicStage.beat,
    "classic-leave": ClassicStage.classic_leave,
    "classic-describe": ClassicStage.classic_describe,
    "explain": ClassicStage.explain,
}
