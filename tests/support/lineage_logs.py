"""Logs of groups of the older protocols: what their coordinators decide in virtual time, as a node logs it.

`PushTape` and `RewriteTape` play a group and note when each entry was written; `node` makes a log of it, with
the terms of its leaders and the catalog's changes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from coordinator.state.projection import Projection
from history.reading.node import NodeLog
from lineage.push.decisions import Event, Failover, PushDecision
from lineage.rewrite.consumer import RewriteConsumerCore, RewriteConsumerSettings
from lineage.rewrite.strategies import Partition
from lineage.shard import NO_TOPIC, Topic
from raftlog.env.state_machine import SnapshotHeader
from records import Cause, RawRecord, Stamped, TermWhy, Trigger, compact, encode_entry, iter_records
from records.ids import METADATA_SHARD, shard_of
from tests.support.memory_log import MemoryReader, MemorySnapshot, Writer
from tests.support.push_world import WALL_MS as PUSH_WALL_MS
from tests.support.push_world import PushWorld
from tests.support.rewrite_playing import WALL_MS as REWRITE_WALL_MS
from tests.support.rewrite_playing import Play

GROUP = "g"
SHARDS = 4
SHARD = shard_of(GROUP, SHARDS)

Told = tuple[int, Cause | None, tuple[RawRecord, ...]]
"""Epoch ms, and an entry; without a cause, the start of a term."""


class PushTape(PushWorld):
    """A push group, and its entries with their times."""

    def __init__(self, seed: int = 1, failover: Failover = Failover.LOG, num_partitions: int = 6) -> None:
        self.times: list[int] = []
        self.terms: list[tuple[int, int]] = []
        """(Number of entries before it, epoch ms) of each term."""
        super().__init__(seed, failover, num_partitions)
        self.catalog = catalog_of(self.view.topic, ("t",), PUSH_WALL_MS - 1_000)

    def elect(self) -> None:
        self.terms.append((len(self.view.log), PUSH_WALL_MS + self.now_ms))
        super().elect()

    def tell(self, event: Event) -> PushDecision | None:
        found = super().tell(event)
        new = len(self.view.log) - len(self.times)
        self.times += [PUSH_WALL_MS + self.now_ms] * new
        return found

    def kill(self) -> None:
        super().kill()
        kept = len(self.view.log)
        del self.times[kept:]
        self.terms = [one for one in self.terms if one[0] <= kept]

    def grow(self, by: int = 1) -> None:
        self.catalog.now_ms = PUSH_WALL_MS + self.now_ms
        topic_id, count = self.view.topic("t") or NO_TOPIC
        self.catalog.topic("t", topic_id, count + by, Trigger.TOPIC_GROWN)
        super().grow(by)

    def recreate(self) -> None:
        before, count = self.view.topic("t") or NO_TOPIC
        self.catalog.now_ms = PUSH_WALL_MS + self.now_ms
        self.catalog.topic("t", before, 0, Trigger.TOPIC_DELETED)
        super().recreate()
        topic_id, _ = self.view.topic("t") or NO_TOPIC
        self.catalog.topic("t", topic_id, count, Trigger.TOPIC_CREATED)

    @property
    def told(self) -> list[Told]:
        entries: list[Told] = [
            (ms, cause, tuple(raws)) for ms, (cause, raws) in zip(self.times, self.view.log, strict=True)
        ]
        for place, ms in reversed(self.terms):
            entries.insert(place, (ms, None, ()))
        return entries


class RewriteTape:
    """A group of the rewrite design, and its entries with their times."""

    def __init__(self, variant: str = "design", seed: int = 1, counts: dict[str, int] | None = None) -> None:
        self.projection = Projection()
        self.groups = self.projection.old_groups
        counts = counts or {"t": 6}
        self.told: list[Told] = [(REWRITE_WALL_MS, None, ())]
        self.play = Play(variant, self, random.Random(seed), counts)
        self.catalog = catalog_of(self.play.topics.get, counts, REWRITE_WALL_MS - 1_000)

    def append(self, cause: Cause, records: tuple[RawRecord, ...]) -> None:
        self.projection.apply_all(records, len(self.told))
        self.told.append((self.play.now.wall, cause, records))

    def join(
        self,
        name: str,
        topics: tuple[str, ...] = ("t",),
        fixed: Iterable[Partition] = (),
        heartbeat_frequency: int = 3,
    ) -> RewriteConsumerCore:
        settings = RewriteConsumerSettings(
            group_id=GROUP, session_timeout_ms=3_000, heartbeat_frequency=heartbeat_frequency
        )
        return self.play.join(name, settings, topics, fixed=fixed)

    def kill(self) -> None:
        """The coordinator's node dies; the next one opens a term when it has loaded the group."""
        self.play.kill(down_ms=500, loading_ms=50)
        self.play.run(500)
        self.told.append((self.play.now.wall, None, ()))

    def grow(self, topic: str, count: int) -> None:
        trigger = Trigger.TOPIC_GROWN if self.play.counts.get(topic) else Trigger.TOPIC_CREATED
        self.catalog.now_ms = self.play.now.wall
        self.play.grow(topic, count)
        topic_id, _ = self.play.topics[topic]
        self.catalog.topic(topic, topic_id, count, trigger)


Tape = PushTape | RewriteTape


def catalog_of(topic: Callable[[str], Topic | None], names: Iterable[str], at_ms: int) -> Writer:
    catalog = Writer()
    catalog.now_ms = at_ms
    for name in names:
        catalog.topic(name, *(topic(name) or NO_TOPIC), Trigger.TOPIC_CREATED)
    return catalog


def log_of(told: list[Told]) -> MemoryReader:
    log = Writer()
    terms = 0
    for ms, cause, raws in told:
        log.now_ms = ms
        if cause is None:
            terms += 1
            log.term(terms, TermWhy.START if terms == 1 else TermWhy.EXPIRY)
        else:
            log.append_raw(encode_entry(cause, raws), len(raws))
    return log.log


def node(tape: Tape, *, with_catalog: bool = True, cut: int | None = None) -> NodeLog:
    """The log as a node has it; with ``cut``, the entries up to that index are in a snapshot only."""
    log = log_of(tape.told)
    if cut is not None:
        log = from_snapshot(log, cut)
    readers = {SHARD: log}
    if with_catalog:
        readers[METADATA_SHARD] = tape.catalog.log
    return NodeLog(path="node-1", readers=readers, num_shards=SHARDS)


def from_snapshot(log: MemoryReader, cut: int) -> MemoryReader:
    stamped = [
        Stamped(frame.index, frame.timestamp_ms, raw)
        for frame in log.written[:cut]
        for raw in iter_records(frame.body)
    ]
    last = log.written[cut - 1]
    kept = compact(stamped, now_ms=last.timestamp_ms, delete_retention_ms=0)
    projection = Projection()
    projection.apply_all((one.record for one in kept), cut)
    header = SnapshotHeader(
        cluster_id="c",
        shard=SHARD,
        num_shards=SHARDS,
        last_index=cut,
        last_term=last.term,
        last_timestamp_ms=last.timestamp_ms,
        state_hash=projection.state_hash,
        chain_hash=b"",
        catalog_version=0,
        record_count=len(kept),
    )
    rest = MemoryReader(written=log.written[cut:])
    rest.kept_snapshot = MemorySnapshot(header, [one.record for one in kept])
    return rest


def push_story() -> PushTape:
    """Two consumers, a topic that grows, one that freezes, a third, a failover in which it dies, a leave."""
    tape = PushTape(3)
    tape.join("c1")
    tape.run_until(1_500)
    tape.join("c2")
    tape.run_until(3_000)
    tape.grow(2)
    tape.run_until(4_000)
    tape.freeze(tape.actors["c2"], 5_000)
    tape.run_until(8_000)
    tape.join("c3")
    tape.run_until(11_000)
    tape.kill()
    tape.crash(tape.actors["c3"])
    tape.run_until(14_000)
    tape.quit(tape.actors["c1"])
    tape.run_until(16_000)
    return tape


def rewrite_story() -> RewriteTape:
    """Two consumers, a topic that grows, one found dead, a failover, one that hears nothing, a new topic."""
    tape = RewriteTape()
    play = tape.play
    tape.join("a")
    play.run(5_000)
    tape.join("b")
    play.run(9_000)
    tape.grow("t", 8)
    play.run(9_000)
    play.pause("b", 9_000)
    play.run(20_000)
    tape.kill()
    play.run(5_000)
    play.deaf.add("a")  # it is told of the rebalance, and never hears it
    tape.join("c", ("t", "u"))
    play.run(5_000)
    play.deaf.clear()
    play.run(4_000)
    tape.grow("u", 2)
    play.run(9_000)
    play.leave("c")
    play.run(9_000)
    play.leave("a")
    play.leave("b")
    play.run(20_000)
    return tape


def rewrite_life(variant: str, seed: int) -> RewriteTape:
    """A random life of a group of the rewrite design, and then a rest."""
    tape, chance = RewriteTape(variant, seed, {"t": 6, "u": 3}), random.Random(f"mishaps of {seed}")
    for step in range(40):
        names = sorted(tape.play.processes)
        what = chance.choices(("join", "leave", "pause", "kill", "grow"), (4, 2, 3, 1, 1))[0]
        if what == "join" or not names:
            tape.join(f"c{step}", chance.choice((("t",), ("t", "u"))))
        elif what == "leave":
            tape.play.leave(chance.choice(names))
        elif what == "pause":
            tape.play.pause(chance.choice(names), chance.uniform(100, 7_000))
        elif what == "kill":
            tape.kill()
        else:
            topic = chance.choice("tu")
            tape.grow(topic, tape.play.counts[topic] + 1)
        tape.play.run(chance.choice((5, 50, 500, 3_000, 9_000)))
    tape.play.run(60_000)
    return tape
