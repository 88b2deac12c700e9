"""A cluster's log over days, following its plan: deployments, pauses, failovers, and continuous commits.

Each shard is written separately, from the plan and its own seed, so that shards may be written in parallel
and still agree on the events of each process. Commits are spread evenly over the remaining time, which gives
the log the requested length both in records and in days.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from multiprocessing import get_context

from raftlog.env.files import join
from raftlog.storage.directory import NodeIdentity, shard_name
from records import Cause, Trigger, encode_offset_commit
from records.entry import dump_cause
from records.ids import METADATA_SHARD, shard_of

from .files import (
    SEGMENT_BYTES,
    SNAPSHOT_RECORDS,
    START_MS,
    Segments,
    Written,
    group_crc,
    new_node,
    write_term,
)
from .groups import SESSION_MS, TOPIC_ID, Group, Step, new_member_id, term_opened, topic_created
from .plan import (
    INSTANCES,
    RESTART_RECORDS,
    Deployment,
    Failover,
    Happening,
    Pause,
    Plan,
    Scaling,
    Service,
    Stall,
    planned,
)

COMMIT_RECORDS = 3
"""Records per commit entry: one of four members has that many of twelve partitions."""
PACED_EVERY = 256
"""Commit entries after which their pace is recomputed."""
SETTLE_MS = (200, 1_200)
"""Milliseconds between two steps of members towards a target, as a range."""
START_SPREAD_MS = 60_000
LOST_WITH_NODE = 0.15
"""Probability that a group loses a member in a failover; it returns once it finds the leader."""
BACK_MS = (2_000, 20_000)


@dataclass(slots=True)
class _Home:
    """A group with its processes."""

    group: Group
    service: Service
    crc: int
    seats: dict[int, str] = field(default_factory=dict)
    """Instance -> member id while the process runs, even if the member's session has expired."""
    settles: bool = False
    stalled: set[int] = field(default_factory=set)
    committing: list[tuple[bytes, list[tuple[bytes, int]]]] | None = None
    """Each member's commits: their cause, and (key, partition) of each; ``None``: to be recomputed."""


class _ShardLife:
    def __init__(self, plan: Plan, shard: int, log: Segments) -> None:
        self._plan = plan
        self._log = log
        self._rng = random.Random(f"shard {shard} of {plan.seed}")
        self.term = 0
        self._now_ms = START_MS
        self._due: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._numbers = count()
        self._homes: dict[int, list[_Home]] = {}
        for service in plan.services:
            mine = [one for one in service.groups if shard_of(one, plan.num_shards) == shard]
            homes = [_Home(Group(one), service, group_crc(one)) for one in mine]
            if homes:
                self._homes[service.number] = homes
        self._all = [home for homes in self._homes.values() for home in homes]
        every = sum(len(service.groups) for service in plan.services)
        self._records = plan.records * len(self._all) // every
        self._planned = sum(map(self._costs, plan.happenings))
        """Estimate of the records still to come from planned events."""

    def run(self) -> Written:
        """Write until the shard has its groups' share of the records."""
        self._open_term(0)
        for home in self._all:
            for instance in range(INSTANCES):
                self._later(self._rng.randrange(START_SPREAD_MS), self._come, home, instance)
        planned_next = iter(self._plan.happenings)
        happening = next(planned_next, None)
        log, due, all_homes = self._log, self._due, self._all
        at_ms, pace_ms, turn = float(START_MS), 0.0, 0
        while log.records < self._records:
            if turn % PACED_EVERY == 0:
                pace_ms = self._pace(at_ms)
            at_ms = max(at_ms + pace_ms, self._now_ms)
            while happening is not None and happening.from_ms <= at_ms:
                self._due_from(happening)
                self._planned -= self._costs(happening)
                happening = next(planned_next, None)
            while due and due[0][0] <= at_ms:
                when_ms, _, what, about = heappop(due)
                self._now_ms = max(when_ms, self._now_ms)
                what(*about)
            self._now_ms = max(int(at_ms), self._now_ms)
            self._commit(all_homes[turn % len(all_homes)], turn // len(all_homes))
            turn += 1
        return log.close()

    def _pace(self, at_ms: float) -> float:
        """Milliseconds between two commit entries, so that they last until the end."""
        entries = (self._records - self._log.records - self._planned) / COMMIT_RECORDS
        return max(self._plan.until_ms - at_ms, 0.0) / max(entries, 1.0)

    def _costs(self, happening: Happening) -> int:
        """Estimate of the records that an event makes in this shard."""
        match happening:
            case Deployment():
                homes = len(self._homes.get(happening.service, ()))
                return homes * len(happening.restarts) // 2 * RESTART_RECORDS
            case Pause() | Scaling():
                return len(self._homes.get(happening.service, ())) * RESTART_RECORDS
            case Failover():
                return round(len(self._all) * LOST_WITH_NODE * RESTART_RECORDS)
            case Stall():
                return 0

    def _later(self, after_ms: int, what: Callable[..., None], *about: object) -> None:
        self._at(self._now_ms + after_ms, what, *about)

    def _at(self, at_ms: int, what: Callable[..., None], *about: object) -> None:
        heappush(self._due, (at_ms, next(self._numbers), what, about))

    def _due_from(self, happening: Happening) -> None:
        """Schedule a planned event for the groups of this shard."""
        match happening:
            case Deployment():
                for home in self._homes.get(happening.service, ()):
                    for one in happening.restarts:
                        self._at(one.at_ms, self._come if one.comes else self._go, home, one.instance)
            case Pause():
                for home in self._homes.get(happening.service, ()):
                    self._at(happening.from_ms, self._pause, home, happening)
            case Scaling():
                for home in self._homes.get(happening.service, ()):
                    self._at(happening.from_ms, self._come, home, INSTANCES)
                    self._at(happening.until_ms, self._go, home, INSTANCES)
            case Failover():
                self._at(happening.from_ms, self._fail_over, happening)
            case Stall():
                for home in self._all:
                    if home.group.group_id == happening.group_id:
                        home.stalled.add(happening.partition)
                        home.committing = None

    # Events.

    def _come(self, home: _Home, instance: int) -> None:
        if instance not in home.seats:
            member_id = home.seats[instance] = new_member_id(self._rng)
            self._join(home, instance, member_id)

    def _join(self, home: _Home, instance: int, member_id: str) -> None:
        if home.seats.get(instance) == member_id and member_id not in home.group.members:
            self._write(home, home.group.join(member_id, *home.service.client(instance)))

    def _go(self, home: _Home, instance: int) -> None:
        member_id = home.seats.pop(instance, None)
        if member_id in home.group.members:
            self._write(home, home.group.leave(member_id))

    def _pause(self, home: _Home, pause: Pause) -> None:
        member_id = home.seats.get(pause.instance)
        if member_id is not None:
            heard_ms = self._now_ms
            self._later(SESSION_MS, self._expire, home, member_id, heard_ms)
            self._at(pause.back_ms, self._join, home, pause.instance, member_id)

    def _expire(self, home: _Home, member_id: str, heard_ms: int) -> None:
        if member_id in home.group.members:
            self._write(home, home.group.expire(member_id, heard_ms, self._now_ms))

    def _fail_over(self, failover: Failover) -> None:
        self._open_term(failover.gap_ms)
        for home in self._all:
            if home.seats and self._rng.random() < LOST_WITH_NODE:
                instance = self._rng.choice(list(home.seats))
                member_id = home.seats[instance]
                self._later(SESSION_MS, self._expire, home, member_id, -1)
                self._later(SESSION_MS + self._rng.randrange(*BACK_MS), self._join, home, instance, member_id)

    def _open_term(self, gap_ms: int) -> None:
        self._now_ms += gap_ms
        self.term += 1
        cause, raws = term_opened(self.term)
        self._log.add(self.term, self._now_ms, dump_cause(cause), raws, 0)

    def _settle(self, home: _Home) -> None:
        home.settles = False
        step = home.group.settle()
        if step is not None:
            self._write(home, step)

    def _write(self, home: _Home, step: Step) -> None:
        """Write an entry about the group, which settles from then on."""
        cause, raws = step
        self._log.add(self.term, self._now_ms, dump_cause(cause), raws, home.crc)
        home.committing = None
        if not home.settles:
            home.settles = True
            self._later(self._rng.randrange(*SETTLE_MS), self._settle, home)

    # Commits.

    def _commit(self, home: _Home, turn: int) -> None:
        """Let one member commit its partitions, with offsets that rise with time."""
        if home.committing is None:
            home.committing = list(_committing(home))
        if home.committing:
            cause, mine = home.committing[turn % len(home.committing)]
            at_ms = self._now_ms
            position = at_ms - START_MS
            raws = [
                encode_offset_commit(key, position + number, -1, "", at_ms, -1, TOPIC_ID)
                for key, number in mine
            ]
            self._log.add(self.term, at_ms, cause, raws, home.crc)


def _committing(home: _Home) -> list[tuple[bytes, list[tuple[bytes, int]]]]:
    found = []
    for member_id, member in home.group.members.items():
        mine = [(home.group.commit_keys[one], one) for one in sorted(member.assigned - home.stalled)]
        if mine:
            cause = Cause(trigger=Trigger.OFFSETS_COMMITTED, member_id=member_id, member_epoch=member.epoch)
            found.append((dump_cause(cause), mine))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A written log and its plan."""

    plan: Plan
    written: tuple[Written, ...]
    """One for each group shard."""

    @property
    def records(self) -> int:
        return sum(one.records for one in self.written)


def write_life(
    path: str,
    records: int,
    *,
    shards: int = 2,
    days: float = 3,
    seed: int = 1,
    segment_bytes: int = SEGMENT_BYTES,
    snapshot_records: int = SNAPSHOT_RECORDS,
    workers: int = 1,
) -> Life:
    """Write a node's directory with about this many records over this many days.

    Equal arguments give equal bytes, however many ``workers`` write the shards. Raises `ValueError` if no
    plan fits.
    """
    plan = planned(records, shards=shards, days=days, seed=seed)
    identity = new_node(path, f"life-{seed}", shards)
    home = join(path, shard_name(METADATA_SHARD))
    catalog = Segments(home, identity.log(METADATA_SHARD), segment_bytes, snapshot_records)
    cause, raws = topic_created()
    catalog.add(1, START_MS, dump_cause(cause), raws, 0)
    catalog.close()
    todo = [(path, identity, plan, shard, segment_bytes, snapshot_records) for shard in range(shards)]
    workers = min(workers, shards, os.cpu_count() or 1)
    if workers <= 1:
        return Life(plan=plan, written=tuple(_write_shard(*one) for one in todo))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return Life(plan=plan, written=tuple(pool.map(_write_shard, *zip(*todo, strict=True))))


def _write_shard(
    path: str, identity: NodeIdentity, plan: Plan, shard: int, segment_bytes: int, snapshot_records: int
) -> Written:
    home = join(path, shard_name(shard))
    life = _ShardLife(plan, shard, Segments(home, identity.log(shard), segment_bytes, snapshot_records))
    written = life.run()
    write_term(home, life.term)
    return written
