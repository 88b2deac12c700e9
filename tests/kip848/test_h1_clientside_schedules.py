"""H.1 under random schedules: the chosen crash, lie, are late, are lost; leaders change; stock members come.

Checked at every entry: no partition has two owners, no epoch goes back (`World`); the live state equals a
replay. Checked after every step: at most one member is chosen, it is one that is there, and only while a
target is due. Checked at the end: once everybody behaves the group is stable, all partitions are owned, and
the last target is what the members' assignor says.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from coordinator.limits import GroupSettings
from coordinator.shard import GroupShard
from coordinator.targets.clientside import round_of
from tests.support.computing_client import ComputingClient, dealt_round, offer, part, settle_computing
from tests.support.group_client import Client
from tests.support.world import Entry, World
from wire.messages import consumer_group_install_assignment as installing
from wire.messages import consumer_group_prepare_assignment as preparing

NAMES = ("a", "b", "c", "d")
STOCK = ("s",)
TOPICS = ("orders", "events")


class Twin:
    """A follower: it applies every entry and has the same state."""

    def __init__(self) -> None:
        self.shard = GroupShard(0)

    def __call__(self, world: World, entry: Entry) -> None:
        for raw in entry.records:
            self.shard.apply(raw, entry.index)
        assert self.shard.state_hash == world.shard.state_hash


class Schedule:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(GroupSettings(session_timeout_ms=10_000))
        self.world.after_entry.append(Twin())
        self.world.create_topic("orders", 5)
        self.clients: dict[str, Client] = {
            **{name: ComputingClient(self.world, name, rebalance_timeout_ms=4_000) for name in NAMES},
            **{name: Client(self.world, name, rebalance_timeout_ms=4_000) for name in STOCK},
        }
        self.shown: dict[str, preparing.ConsumerGroupPrepareAssignmentResponse] = {}
        self.happened: Counter[str] = Counter()

    def some(self) -> ComputingClient:
        client = self.clients[self.rng.choice(NAMES)]
        assert isinstance(client, ComputingClient)
        return client

    def computing(self) -> list[ComputingClient]:
        return [client for client in self.clients.values() if isinstance(client, ComputingClient)]

    # Steps

    def beat(self) -> None:
        client = self.clients[self.rng.choice(NAMES)]
        if client.epoch or self.rng.random() < 0.5:
            client.beat(acknowledge=self.rng.random() < 0.8, lose_reply=self.rng.random() < 0.15)

    def stock(self) -> None:
        client = self.clients[self.rng.choice(STOCK)]
        if client.epoch and self.rng.random() < 0.5:
            client.leave()
        elif self.rng.random() < 0.3:
            client.beat()

    def leave(self) -> None:
        if self.rng.random() < 0.3 and (client := self.some()).epoch:
            client.leave()

    def crash(self) -> None:
        """Crash the process and lose what it had prepared; it returns with nothing, or never."""
        if self.rng.random() < 0.3:
            client = self.some()
            client.epoch = 0
            self.shown.pop(client.member_id, None)

    def rejoin(self) -> None:
        client = self.some()
        client.epoch = 0
        client.beat()

    def prepare(self) -> None:
        told = [client for client in self.computing() if client.must_compute]
        client = self.rng.choice(told) if told and self.rng.random() < 0.8 else self.some()
        if client.epoch and (client.must_compute or self.rng.random() < 0.2):
            shown = client.prepare()
            self.happened[f"prepare {shown.error_code}"] += 1
            if shown.error_code == 0 and self.rng.random() < 0.9:
                self.shown[client.member_id] = shown

    def install(self) -> None:
        if not self.shown:
            return
        name = self.rng.choice([*self.shown])
        client = next(one for one in self.computing() if one.member_id == name)
        shown = self.shown.get(client.member_id)
        if shown is None or not client.epoch:
            return
        answer = client.install(shown.group_epoch, self.some_target(shown))
        self.happened[f"install {answer.error_code}"] += 1
        if self.rng.random() < 0.7:
            del self.shown[client.member_id]

    def some_target(self, shown: preparing.ConsumerGroupPrepareAssignmentResponse) -> list[installing.Member]:
        """Return a target: mostly a good one, sometimes a small one, one with an error, or an invalid one."""
        parts = dealt_round(shown)
        fate = self.rng.random()
        if fate < 0.1:
            return [*parts, part("nobody")]
        if fate < 0.2:
            return self.rng.sample(parts, self.rng.randrange(len(parts) + 1))
        if fate < 0.3:
            victim = self.rng.randrange(len(parts))
            parts[victim] = part(parts[victim].member_id, error=5)
        elif fate < 0.5:
            for one in parts:
                one.metadata_version, one.metadata_bytes = 0, self.rng.randbytes(4)
        elif fate < 0.7:
            self.rng.shuffle(parts)
            given = [one.topic_partitions for one in parts]
            members = sorted(one.member_id for one in parts)
            if len({tuple(one.subscribed_topic_ids) for one in shown.members}) == 1:
                parts = [
                    installing.Member(member_id=name, topic_partitions=topics)
                    for name, topics in zip(members, given, strict=True)
                ]
        return parts

    def offers(self) -> None:
        client = self.some()
        client.offers = self.rng.choice(
            [
                [offer("warm")],
                [offer("warm", metadata=self.rng.randbytes(3))],
                [offer("cold", 0, 2), offer("warm", 0, 3)],
                [offer("warm", 1, 2), offer("cold")],
            ]
        )
        client.forget()

    def topics(self) -> None:
        name = self.rng.choice(TOPICS)
        topic = self.world.catalog.view.topic(name)
        if topic is None:
            self.world.create_topic(name, 3)
        elif self.rng.random() < 0.2:
            self.world.delete_topic(name)
        elif topic.num_partitions < 12:
            self.world.grow_topic(name, topic.num_partitions + 1)

    def subscribe(self) -> None:
        self.some().subscribe(self.rng.choice([("orders",), ("events", "orders"), ("events",)]))

    def time(self) -> None:
        self.world.sleep(self.rng.choice([1, 500, 2_000, 4_000, 6_000]))

    def failover(self) -> None:
        if self.rng.random() < 0.4:
            self.world.failover()

    def work(self) -> None:
        self.world.work()

    # Checks

    def check(self) -> None:
        group = self.world.shard.projection.groups.get("g")
        round_ = round_of(self.world.shard.groups, group) if group is not None else None
        if group is None or round_ is None:
            return
        self.happened["somebody is chosen"] += 1
        assert group.epoch > group.assignment_epoch, "chosen, and nothing is due"
        assert round_.chosen in group.members
        assert round_.chosen not in round_.failed
        assert self.world.shard.next_deadline_ms() is not None, "its deadline would pass unseen"

    def end(self) -> None:
        """Let every member behave; members that crashed expire with their sessions."""
        self.world.work()
        alive = [client for client in self.clients.values() if client.epoch]
        for _ in range(12):
            settle_computing(alive, rounds=1)
            self.world.sleep(1_000)
        for client in alive:
            if isinstance(client, ComputingClient):
                client.offering(offer("warm"))
        settle_computing(alive, rounds=7)
        if not alive:
            return
        group = self.world.group()
        assert set(group.members) == {client.member_id for client in alive}
        assert group.state.value == "Stable"
        owned = Counter((t, p) for client in alive for t, numbers in client.owned.items() for p in numbers)
        assert set(owned.values()) <= {1}
        names = {name for client in alive for name in client.topics}
        topics = [topic for topic in self.world.catalog.view.topics() if topic.name in names]
        assert owned.keys() == {(t.topic_id, p) for t in topics for p in range(t.num_partitions)}
        if not any(self.clients[name] in alive for name in STOCK):
            self.happened["ended with a target of ours"] += 1


STEPS = (
    [Schedule.beat] * 6 + [Schedule.prepare] * 4 + [Schedule.install] * 4 + [Schedule.topics]
    + [Schedule.stock, Schedule.leave, Schedule.crash, Schedule.rejoin, Schedule.offers]
    + [Schedule.subscribe, Schedule.time, Schedule.failover, Schedule.work]
)  # fmt: skip

ALL: Counter[str] = Counter()


@pytest.mark.parametrize(
    "seed", [*range(40), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(40, 1_000))]
)
def test_random_schedules(seed: int) -> None:
    schedule = Schedule(seed)
    for _ in range(150):
        schedule.rng.choice(STEPS)(schedule)
        schedule.check()
    schedule.end()
    ALL.update(schedule.happened)


def test_the_schedules_were_no_walk_in_the_park() -> None:
    """Targets were installed, refused for each reason, and computed by members at the end, many times
    each."""
    for seed in range(10) if not ALL else ():
        test_random_schedules(seed)
    for what in (
        "prepare 0", "prepare 25", "prepare 113", "install 0", "install 25", "install 20001",
        "ended with a target of ours", "somebody is chosen",
    ):  # fmt: skip
        assert ALL[what] >= 3, (what, ALL)
