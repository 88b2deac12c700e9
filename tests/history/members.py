"""Random histories of one group, made by the coordinator and by clients as the protocol describes them.

Members join, are slow to give up, fall silent, come back, leave for a while or for good, change their
subscription; topics are created, grow and go; the shard changes its leader. All on virtual time and from
one seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from coordinator.limits import GroupSettings
from history.whatif.extract import Extractor
from history.whatif.recorded import Recorded
from records import Entry, PartitionRacks, Trigger, group_id_of
from records.types import RecordType
from tests.support.group_client import Client
from tests.support.world import WALL_START_MS, World

GROUP = "g"
TOPICS = ("orders", "events", "late")
SESSION_MS = 10_000
REBALANCE_MS = 4_000
OF_GROUP = frozenset(range(2, 9)) | {RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION}


@dataclass
class Person:
    """A client with its own behaviour: its next heartbeat, its silence, its slowness to revoke."""

    client: Client
    beats_at: float = 0.0
    is_in: bool = False
    silent_until: float = 0.0
    revokes_after: float = 0.0
    """Milliseconds between the request to revoke partitions and the acknowledgement."""
    told_at: float | None = None


@dataclass
class History:
    """A history that is being made."""

    seed: int
    order: tuple[str, ...] = ("uniform", "range")
    with_regexes: bool = False
    with_racks: bool = False
    """`uniform` asks for the racks of partitions. The racks change, and members move to others."""
    members: int = 5
    world: World = field(init=False)
    people: list[Person] = field(init=False)
    notes: list[dict[str, object]] = field(default_factory=list)
    returns: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        asking = frozenset(["uniform"] if self.with_racks else [])
        self.world = World(
            GroupSettings(session_timeout_ms=SESSION_MS, assignors=self.order, rack_assignors=asking)
        )
        self.world.create_topic("orders", self.rng.randint(1, 9))
        self.world.create_topic("events", self.rng.randint(1, 5))
        self.people = []
        for number in range(self.members):
            client = Client(self.world, f"m{number}", rebalance_timeout_ms=REBALANCE_MS)
            client.topics = tuple(self.rng.sample(TOPICS, self.rng.randint(1, 3)))
            client.assignor = self.rng.choice([None, None, None, *self.order]) if self.seed % 3 == 0 else None
            if number >= self.members - 2:
                client.instance_id = f"i{number}"
            if self.with_regexes and number % 2:
                client.topics, client.regex = (), self.rng.choice(["o.*", ".*s", "l.*|events"])
            self.people.append(Person(client, self.rng.uniform(0, 3_000)))

    def run(self, span_ms: int) -> History:
        end_ms = self.world.now_ms + span_ms
        while True:
            person = min(self.people, key=lambda one: one.beats_at)
            if person.beats_at > end_ms:
                break
            self.world.sleep(max(0.0, person.beats_at - self.world.now_ms))
            self.world.now_ms = float(int(self.world.now_ms))
            self._live(person)
            person.beats_at = self.world.now_ms + self.rng.randint(300, 1_300)
            if self.rng.random() < 0.02:
                self._happen()
        return self

    def _live(self, person: Person) -> None:
        client, rng, now_ms = person.client, self.rng, self.world.now_ms
        if now_ms < person.silent_until:
            return
        if self.with_racks and person.is_in and rng.random() < 0.05:
            rack = rng.choice("xyz")
            self.world.heartbeat(client.member_id, client.epoch, rack_id=rack, instance_id=client.instance_id)
        if not person.is_in:
            if rng.random() < 0.3:
                client.beat()
                person.is_in = client.last_error == 0
            return
        chance = rng.random()
        if chance < 0.02:
            client.leave()
            person.is_in = False
        elif chance < 0.04 and client.instance_id is not None:
            client.leave(for_good=False)
            person.silent_until = now_ms + rng.choice([700, 3_000, SESSION_MS + 5_000])
            self.returns += 1
            client.member_id = f"{client.instance_id}-{self.returns}"
            person.is_in = False
        elif chance < 0.05:
            person.silent_until = now_ms + rng.choice([2_000, 6_000, SESSION_MS + 2_000, 40_000])
        elif chance < 0.08 and not client.regex:
            client.subscribe(rng.sample(TOPICS, rng.randint(1, 3)))
            self._beat(person)
        else:
            self._beat(person)

    def _beat(self, person: Person) -> None:
        """Send a heartbeat; it acknowledges a revocation after the member's own delay only."""
        now_ms = self.world.now_ms
        if person.told_at is None and person.client.has_news:
            person.told_at = now_ms
            person.revokes_after = self.rng.choice([0, 0, 0, 500, 2_500, REBALANCE_MS + 2_000])
        acknowledge = person.told_at is None or now_ms >= person.told_at + person.revokes_after
        person.client.beat(acknowledge=acknowledge, lose_reply=self.rng.random() < 0.02)
        if acknowledge and not person.client.has_news:
            person.told_at = None
        if person.client.last_error in (25, 110):
            self.notes.append(
                {
                    "kind": "refused",
                    "group": GROUP,
                    "member": person.client.member_id,
                    "at_ms": WALL_START_MS + int(now_ms),
                }
            )
            person.told_at = None

    def _happen(self) -> None:
        """Change topics, racks or the leader: an event that no member causes."""
        world, rng = self.world, self.rng
        what = rng.random()
        known = list(world.catalog.view.topics())
        if what < 0.5 and known:
            topic = rng.choice(known)
            world.grow_topic(topic.name, topic.num_partitions + rng.randint(1, 3))
        elif what < 0.6 and world.catalog.view.topic("late") is None:
            world.create_topic("late", rng.randint(1, 4))
        elif what < 0.7 and world.catalog.view.topic("late") is not None:
            world.delete_topic("late")
        elif what < 0.8:
            world.failover()
        elif self.with_racks and known:
            topic = rng.choice(known)
            racks = tuple(
                PartitionRacks(partition=number, racks=(rng.choice("xyz"),))
                for number in range(topic.num_partitions)
            )
            world.catalog_index += 1
            world.catalog.view.put_racks(topic.name, racks, world.catalog_index)
            world.learn(topic.name)
        world.work()

    @property
    def entries(self) -> list[tuple[int, int, Entry]]:
        """The group's entries in the log: (index, ms, entry)."""
        return list(entries_of(self.world))

    def recorded(self, *, with_notes: bool = True) -> Recorded:
        extractor = Extractor(GROUP, 0, self.notes if with_notes else None)
        for index, at_ms, entry in self.entries:
            extractor.entry(index, at_ms, entry)
        extractor.passed(WALL_START_MS + int(self.world.now_ms))
        return extractor.finish()


def entries_of(world: World, group_id: str = GROUP) -> Iterable[tuple[int, int, Entry]]:
    for entry in world.log:
        mine = tuple(raw for raw in entry.records if raw.type in OF_GROUP and group_id_of(raw) == group_id)
        if mine and entry.cause.trigger != Trigger.OFFSETS_COMMITTED:
            yield entry.index, entry.timestamp_ms, Entry(entry.cause, mine)
