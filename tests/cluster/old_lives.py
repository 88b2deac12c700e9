"""Random lives of a group of an older protocol on three nodes in virtual time, under all kinds of faults.

Every `LOOK_MS` of virtual time no partition may be consumed by two consumers that are both not silent. A
consumer of the push protocol is silent while it is stopped, has no connection on which the coordinator was
heard, or its way to that node is cut; and for `NOTICE_MS` after it could notice again. One of seed 000 is
silent from the end of its session on, counted from the sending of its last request that was accepted.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from cluster.lineage.push_client import PushClient
from cluster.lineage.rewrite_client import RewriteClient
from coordinator.shard import GroupShard
from lineage.push.machines import ConsumerState
from lineage.push.messages import (
    CommandResponse,
    PingRequest,
    PingResponse,
    RegisterRequest,
    partition_number,
)
from lineage.rewrite.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from raftlog.storage.frames import frames_in
from records import OffsetCommitKey, decode_key_and_value, iter_records
from tests.cluster.old_protocols import PING_MS, SESSION_MS, OldNodes
from tests.support.admin_requests import SET
from tests.support.sim_node import replayed
from tests.support.three_nodes import GROUP
from wire.schema import Message

LOOK_MS: Final = 50.0
WORK_MS: Final = 100.0
"""The interval at which positions move on, and offsets are committed without auto_commit."""
NOTICE_MS: Final = PING_MS + 200.0
"""A push consumer notices so soon that nobody pings it any more."""
RECENT_JOIN_MS: Final = 500.0
FAULT_MS_MAX: Final = 6_000.0
SETTLE_MS: Final = 40_000.0
CONSUMERS_MAX: Final = 6

VARIANTS: Final = ("log", "wait", "design", "thread")


@dataclass(slots=True)
class Member:
    """A consumer under watch."""

    client: PushClient | RewriteClient
    accepted_ms: float = 0.0
    sent: Message | None = None
    sent_ms: float = 0.0
    answered: dict[int, int] = field(default_factory=dict)
    blind_ms: float = 0.0
    """The time at which it was last stopped or cut off."""


class OldLife:
    """One life; `variant` is a push group's failover or a variant of seed 000."""

    def __init__(self, seed: int, variant: str) -> None:
        self.chance = random.Random(f"{seed}/{variant}")
        self.is_push = variant in ("log", "wait")
        self._variant = variant
        settings = {} if self.is_push else {"lineage_rewrite_variant": variant}
        self.nodes = OldNodes(seed, settings=settings)
        if self.is_push:
            self.nodes.configure(("push.failover", SET, variant), ("push.reregister.wait.ms", SET, "1500"))
        self.world = self.nodes.world
        self.members: dict[str, Member] = {}
        self.faults: Counter[str] = Counter()
        self.acknowledged: list[tuple[int, int, float]] = []
        """Partition, offset, wall ms."""
        self._joined = 0
        self._partitions = 12
        self._cuts: set[tuple[str, str]] = set()
        self._full: set[int] = set()

    # A life.

    def play(self, for_ms: float) -> None:
        """Let things happen for so long, then let all faults end, and check everything."""
        for _ in range(3):
            self.join()
        self.nodes.wait(lambda: self.nodes.is_shared(set(self.members)), SETTLE_MS)
        until_ms = self.world.now_ms + for_ms
        next_ms, work_ms = self.world.now_ms, self.world.now_ms
        while self.world.now_ms < until_ms:
            if self.world.now_ms >= next_ms:
                self._strike()
                next_ms = self.world.now_ms + self.chance.uniform(100, 1_800)
            if self.world.now_ms >= work_ms:
                self._work()
                work_ms = self.world.now_ms + WORK_MS
            self.world.run_for(LOOK_MS)
            self.look()
        self._rest()

    def _strike(self) -> None:
        kinds = [
            (3, self.join), (2, self.quit), (2, self.kill_consumer), (3, self.pause_consumer),
            (3, self.cut_consumer), (3, self.kill_node), (3, self.pause_node), (3, self.isolate_leader),
            (2, self.cut_nodes), (2, self.hand_over), (3, self.grow), (2, self.fill_disk),
            (1, self.reconfigure), (1, self.restart_all),
        ]  # fmt: skip
        (strike,) = self.chance.choices([one for _, one in kinds], [weight for weight, _ in kinds])
        if strike() is not False:
            self.faults[strike.__name__] += 1

    def _rest(self) -> None:
        """All faults end: everyone settles, nothing is lost, and all nodes agree with their logs."""
        nodes, cluster = self.nodes, self.nodes.cluster
        nodes.network.heal_all()
        self._cuts.clear()
        for node_id in list(self._full):
            self._empty_disk(node_id)
        for machine in cluster.machines.values():
            if not machine.is_up:
                machine.boot()

        self.world.run_for(FAULT_MS_MAX)

        def is_shared() -> bool:
            self._work()
            return nodes.is_shared(set(self.members), self._partitions)

        if not self.world.run_until(is_shared, within_ms=SETTLE_MS):
            states = {name: one.client.core.state for name, one in self.members.items()}
            raise AssertionError(f"not settled: {nodes.owners()} {states} {cluster.describe()}")
        self.world.run_for(3_000)
        self.look()
        assert is_shared()
        for one in self.members.values():
            one.client.quit()
        nodes.wait(self._is_quiet)
        self.check()

    def _is_quiet(self) -> bool:
        """Whether every node has applied the whole log of the shard."""
        runtimes = [self.nodes.runtime(node_id) for node_id in self.nodes.cluster.machines]
        ends = [(one.replica.last_index, one.replica.commit_index) for one in runtimes]
        applied = [(one.machine.applied_index,) * 2 for one in runtimes]
        return len({*ends, *applied}) == 1

    # Faults of consumers.

    def join(self) -> bool:
        if len(self.members) >= CONSUMERS_MAX:
            return False
        self._joined += 1
        name = f"consumer-{self._joined}"
        tap = functools.partial(self._tap, name)
        client: PushClient | RewriteClient
        if self.is_push:
            has_pings = self.chance.random() < 0.5
            client = self.nodes.push(name, auto_commit=has_pings, tap=tap)
        else:
            client = self.nodes.rewrite(
                name,
                variant=self._variant,
                tap=tap,
                positions=functools.partial(self._positions, name),
                settings={"commit_interval_ms": int(WORK_MS)},
            )
        self.members[name] = Member(client)
        return True

    def _forget(self) -> str | None:
        if len(self.members) < 2:
            return None
        name = self.chance.choice(sorted(self.members))
        del self.members[name]
        return name

    def quit(self) -> bool:
        name = self._forget()
        if name is None:
            return False
        client = self.nodes.pushed.pop(name, None) or self.nodes.rewriting.pop(name)
        client.quit()
        return True

    def kill_consumer(self) -> bool:
        name = self._forget()
        if name is None:
            return False
        self.nodes.kill_client(name)
        return True

    def pause_consumer(self) -> None:
        name = self.chance.choice(sorted(self.members))
        self.nodes.hosts[name].pause(self.chance.uniform(100, FAULT_MS_MAX))

    def cut_consumer(self) -> None:
        """Cut its way to a node, for a while."""
        name = self.chance.choice(sorted(self.members))
        node = self.nodes.cluster[self.chance.choice([1, 2, 3])].name
        self.nodes.network.cut(name, node)
        self._cuts.add((name, node))
        self._later(self._heal, name, node)

    def _heal(self, one: str, other: str) -> None:
        self._cuts.discard((one, other))
        self.nodes.network.heal(one, other)

    def _later(self, fn: Any, *args: Any) -> None:
        self.world.at(self.world.now_ms + self.chance.uniform(200, FAULT_MS_MAX), fn, *args, owner="test")

    # Faults of nodes.

    def kill_node(self) -> bool:
        cluster = self.nodes.cluster
        up = [one for one in cluster.up.values() if one.node.shards]
        if len(up) < 3:
            return False
        leader = cluster.leader_of(self.nodes.shard)
        machine = cluster[leader] if leader in cluster.up and self.chance.random() < 0.7 else up[0]
        self._empty_disk(machine.node_id)
        machine.kill()
        self._later(lambda: machine.is_up or machine.boot())
        return True

    def restart_all(self) -> None:
        for machine in self.nodes.cluster.machines.values():
            if machine.is_up:
                self._empty_disk(machine.node_id)
                machine.kill()
            self._later(lambda machine=machine: machine.is_up or machine.boot())

    def _some_node(self) -> Any:
        cluster = self.nodes.cluster
        leader = cluster.leader_of(self.nodes.shard)
        if leader is not None and self.chance.random() < 0.7:
            return cluster[leader]
        return cluster[self.chance.choice([1, 2, 3])]

    def pause_node(self) -> bool:
        machine = self._some_node()
        if not machine.is_up or machine.host.is_paused:
            return False
        machine.host.pause(self.chance.uniform(100, FAULT_MS_MAX))
        return True

    def isolate_leader(self) -> None:
        machine = self._some_node()
        self.nodes.cluster.isolate(machine.node_id)
        for other in self.nodes.cluster.names:
            if other != machine.name:
                self._later(self.nodes.network.heal, machine.name, other)

    def cut_nodes(self) -> None:
        one, other = self.chance.sample([1, 2, 3], 2)
        names = self.nodes.cluster[one].name, self.nodes.cluster[other].name
        cut = self.chance.choice([self.nodes.network.cut, self.nodes.network.cut_one_way])
        cut(*names)
        self._later(self.nodes.network.heal, *names)

    def hand_over(self) -> bool:
        leader = self.nodes.cluster.leader_of(self.nodes.shard)
        if leader is None or leader not in self.nodes.cluster.up:
            return False
        machine = self.nodes.cluster[leader]
        machine.host.call_soon(machine.node.transfer, self.nodes.shard, None, lambda said: None)
        return True

    def fill_disk(self) -> bool:
        """The leader's disk is full for a while: its log has no room."""
        machine = self._some_node()
        if not machine.is_up or machine.node_id in self._full:
            return False
        machine.disk.free = 1
        self._full.add(machine.node_id)
        self._later(self._empty_disk, machine.node_id)
        return True

    def _empty_disk(self, node_id: int) -> None:
        self._full.discard(node_id)
        self.nodes.cluster[node_id].disk.free = 1 << 40

    # Changes by operators.

    def grow(self) -> bool:
        if not self._is_well():
            return False
        try:
            self.nodes.grow("orders", self._partitions + 1)
        except (TimeoutError, AssertionError, ConnectionError):
            return False
        self._partitions += 1
        return True

    def reconfigure(self) -> bool:
        if not self._is_well() or not self.is_push:
            return False
        self.nodes.configure(("push.topics", SET, "orders"))
        return True

    def _is_well(self) -> bool:
        """Whether a request to the controller is answered at once."""
        cluster = self.nodes.cluster
        return len(cluster.up) == 3 and cluster.is_settled() and not self._full and not self._cuts

    # Work, and what is acknowledged.

    def _work(self) -> None:
        now_ms = int(self.world.now_ms)
        for name, one in self.members.items():
            if isinstance(one.client, PushClient) and not self.nodes.hosts[name].is_paused:
                if one.client.core.state is ConsumerState.FAILED:  # an operator starts it again
                    one.client.start()
                positions = one.client.positions
                positions.update(dict.fromkeys(positions, now_ms))
                if not one.client._register.auto_commit and positions:
                    offsets = dict(positions)
                    one.client.commit(offsets, functools.partial(self._committed, offsets))

    def _committed(self, offsets: dict[Any, int], code: int | None) -> None:
        if code == 0:
            self._note({partition_number(name): at for (_, name), at in offsets.items()})

    def _positions(self, name: str) -> dict[tuple[str, int], int]:
        client = self.members[name].client
        assert isinstance(client, RewriteClient)
        return dict.fromkeys(client.core.owned, int(self.world.now_ms))

    def _note(self, offsets: dict[int, int]) -> None:
        at_ms = self.nodes.cluster[1].host.wall_ms()
        self.acknowledged += [(number, offset, at_ms) for number, offset in offsets.items()]

    def _tap(self, name: str, message: Message) -> None:
        one = self.members.get(name)
        if one is None:
            return
        now_ms = self.world.now_ms
        if isinstance(message, HeartbeatRequest | JoinGroupRequest | OffsetCommitRequest):
            one.sent, one.sent_ms = message, now_ms
        elif isinstance(message, HeartbeatResponse | JoinGroupResponse) and not message.error_code:
            is_join = isinstance(message, JoinGroupResponse) and one.blind_ms < one.sent_ms
            one.accepted_ms = max(one.sent_ms, now_ms - RECENT_JOIN_MS) if is_join else one.sent_ms
        elif isinstance(message, OffsetCommitResponse) and isinstance(one.client, RewriteClient):
            codes = [part.error_code for topic in message.topics for part in topic.partitions]
            if not any(codes) and isinstance(one.sent, OffsetCommitRequest):
                self._note(
                    {part.partition: part.offset for each in one.sent.topics for part in each.partitions}
                )
        elif isinstance(message, RegisterRequest | CommandResponse):
            one.answered = {}
        elif isinstance(message, PingResponse):
            one.answered = {
                partition_number(each.partition): each.offset
                for each in message.offset_info
                if each.offset >= 0
            }
        elif isinstance(message, PingRequest) and not message.num_retries and one.answered:
            self._note(one.answered)

    # What must hold.

    def look(self) -> None:
        """Nobody else consumes what a consumer that is not silent consumes."""
        for name, one in self.members.items():
            if self.nodes.hosts[name].is_paused or self._is_cut(name, one):
                one.blind_ms = self.world.now_ms
        for part, names in self.nodes.owners().items():
            loud = [name for name in names if not self._is_silent(name)]
            assert len(loud) < 2, (part, names, self.world.now_ms, self.faults)

    def _is_cut(self, name: str, one: Member) -> bool:
        if not isinstance(one.client, PushClient) or one.client._coordinator is None:
            return False
        address = one.client._coordinator[0]
        node = next(each.name for each in self.nodes.cluster.machines.values() if each.address == address)
        return (name, node) in self._cuts

    def _is_silent(self, name: str) -> bool:
        one, now_ms = self.members[name], self.world.now_ms
        if isinstance(one.client, RewriteClient):
            return now_ms > one.accepted_ms + SESSION_MS
        on_line = one.client.core.state in (ConsumerState.WAITING, ConsumerState.CONSUMING)
        return not on_line or now_ms - one.blind_ms < NOTICE_MS

    def check(self) -> None:
        """Live equals replay on all nodes, and every acknowledged commit is in the log, in time."""
        nodes = self.nodes
        committed: dict[tuple[int, int], int] = {}
        for node_id in nodes.cluster.machines:
            runtime = nodes.cluster[node_id].node.shards[nodes.shard]
            assert isinstance(runtime.machine, GroupShard)
            fresh = replayed(runtime, runtime.machine.applied_index)
            assert fresh.state_hash == runtime.machine.state_hash, node_id
        runtime = nodes.cluster[nodes.leader].node.shards[nodes.shard]
        index = 1
        while index <= runtime.replica.commit_index:
            for frame in frames_in(runtime.replica.log.read(index, 1 << 20)):
                index = frame.index + 1
                for raw in iter_records(bytes(frame.body)):
                    key, value = decode_key_and_value(raw)
                    if isinstance(key, OffsetCommitKey) and key.group_id == GROUP and value is not None:
                        committed.setdefault((key.partition, value.offset), frame.timestamp_ms)
        lost = [one for one in self.acknowledged if committed.get(one[:2], 1 << 60) > one[2]]
        assert not lost, lost[:10]
