"""Members of either protocol that live by themselves: they heartbeat, join again when told to, and commit.

`live` lets all of them act in turns for a while, and tells what changed for whom. Every commit raises the
offset of a partition; in the end every commit that was accepted must be found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.simulator import WireClient
from tests.scenarios.classic_stage import ScriptedMember, assigned
from tests.support.requests import commit_request
from tests.support.sim_node import Consumer
from wire.apis import ApiKey
from wire.embedded import ConsumerProtocolAssignment, decode
from wire.errors import ErrorCode
from wire.messages.heartbeat import HeartbeatRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

HEARTBEAT_MS = 3_000.0


class LivingMember:
    """One process. `tell` returns what has changed for it."""

    name: str
    group_id: str
    client: WireClient

    def act(self, num_partitions: dict[str, int]) -> str | None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    @property
    def who(self) -> tuple[str, int]:
        """Member id, and epoch or generation."""
        raise NotImplementedError

    @property
    def owned(self) -> list[tuple[str, int]]:
        raise NotImplementedError


class LivingClassic(LivingMember):
    """A member of the classic protocol, which gives up everything before it joins again."""

    def __init__(self, client: WireClient, group_id: str, name: str, *topics: str) -> None:
        self.member = ScriptedMember(client, group_id, name, *topics)
        self.name, self.group_id, self.client = name, group_id, client
        self._waits_for: ApiKey | None = None
        self._assignment: bytes | None = None

    @property
    def who(self) -> tuple[str, int]:
        return self.member.member_id, self.member.epoch

    @property
    def owned(self) -> list[tuple[str, int]]:
        if not self._assignment:
            return []
        parts = decode(ConsumerProtocolAssignment, self._assignment).assigned_partitions
        return [(part.topic, number) for part in parts for number in part.partitions]

    def act(self, num_partitions: dict[str, int]) -> str | None:
        member, call = self.member, self.member.call
        if call is None and self._assignment is not None:
            request = HeartbeatRequest(
                group_id=self.group_id, generation_id=member.epoch, member_id=member.member_id
            )
            self._told(self.client.ask(ApiKey.HEARTBEAT, 4, request).error_code)
        if call is None and self._assignment is None:
            member.join()
            self._waits_for = ApiKey.JOIN_GROUP
        elif call is not None and call.response is not None:
            return self._answered(call.response, num_partitions)
        return None

    def _answered(self, said: Any, num_partitions: dict[str, int]) -> str | None:
        member = self.member
        member.call = None
        if said.error_code:
            self._told(said.error_code)
        elif self._waits_for is ApiKey.JOIN_GROUP:
            member.member_id, member.epoch = said.member_id, said.generation_id
            member.members = {one.member_id: one.metadata for one in said.members}
            member.sync(num_partitions)
            self._waits_for = ApiKey.SYNC_GROUP
        else:
            self._assignment = said.assignment
            return f"{self.name}: generation {member.epoch}, assigned {assigned(said.assignment)}"
        return None

    def _told(self, code: int) -> None:
        if code:
            self._assignment = None
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member.member_id = ""

    def leave(self) -> None:
        self.member.leave()


class LivingConsumer(LivingMember):
    """A member of the consumer protocol."""

    def __init__(self, client: WireClient, group_id: str, name: str, *topics: str) -> None:
        self.member = Consumer(client, group_id, name, *topics)
        self.name, self.group_id, self.client = name, group_id, client

    @property
    def who(self) -> tuple[str, int]:
        return self.name, self.member.epoch

    @property
    def owned(self) -> list[tuple[str, int]]:
        return [(self.member.topics[0], number) for number in self.member.partitions]

    def act(self, num_partitions: dict[str, int]) -> str | None:
        before = self.member.partitions
        self.member.heartbeat()
        after = self.member.partitions
        if before == after:
            return None
        return f"{self.name}: epoch {self.member.epoch}, owns {len(after)}"

    def leave(self) -> None:
        self.member.leave()


KINDS: dict[str, type[LivingClassic | LivingConsumer]] = {
    "classic": LivingClassic,
    "consumer": LivingConsumer,
}


class LivingStage:
    """The commands for members that live by themselves. The stage brings clients, topics and time."""

    world: Any
    num_partitions: dict[str, int]
    names: dict[str, str]

    def __init__(self) -> None:
        self.living: dict[str, LivingMember] = {}
        self.accepted: dict[tuple[str, int], int] = {}
        self.offset = 0

    def new_client(self, name: str, group: str) -> WireClient:
        raise NotImplementedError

    def ask_admin(self, api_key: ApiKey, version: int, body: Any) -> Any:
        raise NotImplementedError

    def start(self, kind: str, name: str, group: str, *topics: str) -> list[str]:
        self.living[name] = KINDS[kind](self.new_client(name, group), group, name, *topics)
        return []

    def end(self, name: str) -> list[str]:
        """Let a member leave."""
        member = self.living.pop(name)
        member.leave()
        return [f"{name}: left"]

    def live(self, duration_ms: str, every: str = str(HEARTBEAT_MS)) -> list[str]:
        """Let all members act; say what they were told, and what became of their commits."""
        lines: list[str] = []
        counts = {True: 0, False: 0}
        end_ms = self.world.now_ms + float(duration_ms)
        while self.world.now_ms < end_ms:
            for member in list(self.living.values()):
                said = member.act(self.num_partitions)
                lines += [said] if said is not None else []
                if member.who[0]:
                    self.names.setdefault(member.who[0], member.name)
                self._check_owners()
                if member.owned:
                    counts[self._commit(member)] += 1
            is_busy = any(isinstance(one, LivingClassic) and not one.owned for one in self.living.values())
            self.world.run_for(100.0 if is_busy else float(every))
        lines.append(f"{counts[True]} commits were accepted, {counts[False]} refused")
        return lines

    def _check_owners(self) -> None:
        owned = [part for member in self.living.values() for part in member.owned]
        assert len(owned) == len(set(owned)), f"a partition has two owners: {owned}"

    def _commit(self, member: LivingMember) -> bool:
        """Commit one of a member's partitions; whether that was accepted."""
        self.offset += 1
        topic, number = member.owned[self.offset % len(member.owned)]
        member_id, epoch = member.who
        request = commit_request(
            member.group_id, {number: self.offset}, topic=topic, member_id=member_id, epoch=epoch
        )
        answer = member.client.ask(ApiKey.OFFSET_COMMIT, 9, request)
        is_accepted = not answer.topics[0].partitions[0].error_code
        if is_accepted:
            self.accepted[topic, number] = self.offset
        return is_accepted

    def committed(self, group: str) -> list[str]:
        """Tells for each partition whether the newest accepted commit is there."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        found = {
            (topic.name, part.partition_index): part.committed_offset
            for topic in self.ask_admin(ApiKey.OFFSET_FETCH, 9, request).groups[0].topics
            for part in topic.partitions
        }
        lost = [part for part, offset in self.accepted.items() if found.get(part) != offset]
        return [f"lost: {lost}" if lost else f"every accepted commit of {len(found)} partitions is there"]


LIVING_COMMANDS: dict[str, Callable[..., list[str]]] = {
    "start": LivingStage.start,
    "end": LivingStage.end,
    "live": LivingStage.live,
    "committed": LivingStage.committed,
}
