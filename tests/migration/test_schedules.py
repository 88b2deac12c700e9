"""Random schedules of processes of both protocols in one group, with failovers.

At every index the live state is what the log says. At any time, no partition is used by two members of the
group. When the processes come to rest, they share all partitions, whatever happened before.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from coordinator.limits import Limits, MigrationPolicy
from coordinator.migration import preparing
from coordinator.shard import GroupShard
from tests.support.embedded_member import EmbeddedConsumer
from tests.support.group_client import Client
from tests.support.leader_state_checks import Historian, nothing_is_forgotten
from tests.support.replaying import every_window, load
from tests.support.world import Entry, World
from wire.errors import ErrorCode

FENCED = (
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


class Processes:
    """The processes of one group. A process that is killed says nothing; another one takes its place."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        policy = self.random.choice([MigrationPolicy.BIDIRECTIONAL] * 3 + [MigrationPolicy.UPGRADE])
        self.world = World(limits=Limits(serves_classic=True, migration_policy=policy))
        self.world.create_topic("orders", 6)
        self.follower = GroupShard(0, self.world.limits)
        self.world.after_entry += [self._follow, Historian()]
        self.slots: list[Client | EmbeddedConsumer | None] = [None] * 5
        self.number = 0
        self.comes_to_rest = False
        self.world.between_decisions = self.between
        self.acting = -1
        self.is_between = False
        self.num_between = 0
        self.kinds: set[bool] = set()
        """Whether the group was a consumer group when it had members."""

    def _follow(self, world: World, entry: Entry) -> None:
        self.follower.apply_all(entry.records, entry.index)
        assert self.follower.projection.groups == world.shard.projection.groups
        assert self.follower.state_hash == world.shard.state_hash
        group = world.shard.projection.groups.get("g")
        if group is not None and not group.is_empty:
            self.kinds.add(group.is_consumer)

    def start(self, slot: int) -> None:
        self.number += 1
        instance_id = f"i{slot}" if slot < 2 else None
        name = f"p{self.number}"
        kind = self.random.choice(["consumer", "eager", "cooperative"])
        if kind == "consumer":
            regex = "pay.*" if self.random.random() < 0.3 else ""  # as clients say that they have none
            self.slots[slot] = Client(self.world, name, self.topics(), regex=regex, instance_id=instance_id)
        else:
            version = self.random.choice([3, 9]) if instance_id is None else 9
            self.slots[slot] = process = EmbeddedConsumer(
                self.world,
                name,
                self.topics(),
                cooperative=kind == "cooperative",
                instance_id=instance_id,
                version=version,
            )
            process.loses_reply = self.loses_reply

    def topics(self) -> tuple[str, ...]:
        return ("orders",) if self.random.random() < 0.8 else ("orders", "payments")

    def loses_reply(self) -> bool:
        return not self.comes_to_rest and self.random.random() < 0.05

    def act(self, slot: int) -> None:
        """Let the process of this slot do what is due."""
        if not self.is_between:
            self.acting = slot
        process = self.slots[slot]
        if process is None:
            self.start(slot)
        elif isinstance(process, EmbeddedConsumer):
            process.poll()
            if process.is_fenced:
                self.slots[slot] = None
        elif process.beat(lose_reply=self.loses_reply()).error_code in FENCED:
            self.slots[slot] = None

    def between(self) -> None:
        """Something happens between two turns in which an upgrade is prepared."""
        self.num_between += 1
        if not self.is_between and not self.comes_to_rest and self.random.random() < 0.5:
            self.is_between = True
            self.world.work()
            self.step(["act", "kill", "leave", "away", "sleep", "work", "grow", "delete", "commit"])
            self.is_between = False

    def step(self, only: Sequence[str] = ()) -> None:
        random, world = self.random, self.world
        slot = random.randrange(len(self.slots))
        if self.is_between and slot == self.acting:
            slot -= 1
        weights = {
            "act": 60, "kill": 3, "leave": 4, "away": 2, "sleep": 14, "work": 8, "failover": 2, "renew": 1,
            "grow": 1, "delete": 1, "commit": 6,
        }  # fmt: skip
        kinds = only or list(weights)
        match random.choices(kinds, [weights[kind] for kind in kinds])[0]:
            case "act":
                self.act(slot)
            case "kill":
                self.slots[slot] = None
            case "leave":
                process, self.slots[slot] = self.slots[slot], None
                if process is not None:
                    process.leave()
            case "away":
                process = self.slots[slot]
                if isinstance(process, Client) and process.instance_id is not None:
                    process.leave(for_good=False)
                    self.slots[slot] = None
            case "sleep":
                world.sleep(random.choice([1, 500, 3_000, 9_000, 30_000]))
            case "work":
                world.work()
            case "failover":
                world.failover()
                for process in self.slots:
                    if isinstance(process, EmbeddedConsumer) and process.phase in ("joining", "syncing"):
                        process.phase = "unjoined"  # its request was answered NOT_COORDINATOR
            case "grow":
                topic = world.catalog.view.topic("orders")
                assert topic is not None
                if topic.num_partitions < 12:
                    world.grow_topic("orders", topic.num_partitions + 1)
            case "renew":
                world.renew()
            case "delete":
                if world.catalog.view.topic("payments") is None:
                    world.create_topic("payments", 3)
                else:
                    world.delete_topic("payments")
            case "commit":
                process = self.slots[slot]
                if isinstance(process, EmbeddedConsumer):
                    for name, number in process.owned:
                        process.commit({(name, number): 1})
        self.check()

    def used(self) -> list[set[tuple[str, int]]]:
        """The partitions that the group's members use, each as often as it is used."""
        return [
            self.uses(process) for process in self.slots if process is not None and self.is_member(process)
        ]

    def uses(self, process: Client | EmbeddedConsumer) -> set[tuple[str, int]]:
        if isinstance(process, EmbeddedConsumer):
            return process.owned
        names = {topic.topic_id: topic.name for topic in self.world.catalog.view}
        return {
            (names.get(topic_id, "deleted"), number)
            for topic_id, numbers in process.owned.items()
            for number in numbers
            if topic_id in names
        }

    def is_member(self, process: Client | EmbeddedConsumer) -> bool:
        group = self.world.shard.projection.groups.get("g")
        classic = self.world.shard.groups.classic.get("g")
        if classic is not None:
            return process.member_id in classic.members
        return group is not None and group.member(process.member_id) is not None

    def check(self) -> None:
        seen: set[tuple[str, int]] = set()
        for used in self.used():
            assert not used & seen, "a partition is used twice"
            seen |= used
        nothing_is_forgotten(self.world)

    def settle(self) -> None:
        """Let every slot have a process, and all of them act until nothing changes."""
        self.comes_to_rest = True
        for _ in range(40):
            for slot in range(len(self.slots)):
                self.act(slot)
                self.world.work()
                self.check()
            self.world.sleep(2_000)

    def partitions(self) -> set[tuple[str, int]]:
        topics = {name for one in self.slots if one is not None for name in one.topics}
        if any(isinstance(one, Client) and one.regex for one in self.slots):
            topics.add("payments")
        return {
            (name, number)
            for name in topics
            if (topic := self.world.catalog.view.topic(name)) is not None
            for number in range(topic.num_partitions)
        }


def played(seed: int, steps: int) -> Processes:
    processes = Processes(seed)
    for _ in range(steps):
        processes.step()
    processes.settle()
    used = processes.used()
    assert len(used) == len(processes.slots)
    assert sum(map(len, used)) == len(processes.partitions())
    assert set().union(*used) == processes.partitions()
    return processes


def test_partitions_have_one_user_while_upgrades_are_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "MEMBERS_AT_ONCE", 1)
    assert sum(played(seed, 150).num_between for seed in range(20, 40)) > 30


def test_partitions_have_one_user_in_random_schedules() -> None:
    kinds = {kind for seed in range(12) for kind in played(seed, 150).kinds}
    assert kinds == {False, True}, "groups were of both kinds"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_400))
def test_many_schedules(seed: int) -> None:
    played(seed, 300)


def test_every_compacted_window_loads_to_the_same_group() -> None:
    """Both kinds of records of one group under their own keys: what is left of one never hides the other."""
    processes = Processes(13)
    for _ in range(70):
        processes.step()
    assert processes.kinds == {False, True}
    shard = processes.world.shard
    for raws in every_window(processes.world.stamped()):
        loaded = load(raws)
        assert loaded.projection.groups == shard.projection.groups
        assert loaded.state_hash == shard.state_hash
        loaded.on_ready(processes.world.ctx())
