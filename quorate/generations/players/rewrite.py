"""The rewrite's protocol (seed 000): JoinGroup with assignment by the coordinator; `lineage.rewrite`.

Its package plays a group in virtual time. A consumer of this protocol sends heartbeats from the thread that
polls, so a program that is slow is silent, too. It commits in an interval, and before it joins again; the
coordinator writes its offsets. The text has no request that reads them, so the next owner finds them in the
log at once.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import Any

from coordinator.state.projection import Projection
from history.render import plural
from lineage.rewrite.consumer import RewriteConsumerSettings
from lineage.rewrite.playing import Play
from quorate.generations.contest import COMMIT_MS, ELECTION_MS, GROUP, HEARTBEAT_MS, SESSION_MS
from quorate.generations.ledger import Ledger, Part, RunFigures
from quorate.generations.schedule import (
    GrowTopic,
    Join,
    KillCoordinator,
    Leave,
    Schedule,
    ScheduledEvent,
    Slow,
)
from records import Cause, RawRecord, offset_commit_key
from wire.schema import Message


class _ProjectedLog:
    """The coordinator's log: entries change a projection."""

    def __init__(self) -> None:
        self._projection = Projection()
        self._index = 0
        self.groups: Mapping[Any, Any] = self._projection.old_groups

    def append(self, cause: Cause, records: tuple[RawRecord, ...]) -> None:
        self._index += 1
        self._projection.apply_all(list(records), self._index)

    def committed(self, part: Part) -> int:
        """Return the committed offset, 0 if there is none."""
        found = self._projection.offsets.get(offset_commit_key(GROUP, *part))
        return 0 if found is None else found.offset


class RewritePlayer:
    """Seed 000, in the design's variant or in the thread's."""

    def __init__(self, variant: str = "design") -> None:
        self._variant = variant
        self.is_variant = variant == "thread"
        if self.is_variant:
            self.name = "Assigned JoinGroup, thread"
            self.idea = ""
        else:
            self.name = "Assigned JoinGroup"
            self.idea = (
                "The coordinator tells all members at their next heartbeat to join again, waits for the "
                "slowest, and answers each JoinGroup with what it gets."
            )
            self.why = (
                "It replaced push so that members call the coordinator, which need not call each of them, "
                "and so that a new coordinator goes on with what the log says."
            )

    def sentence(self, figures: RunFigures, base: RunFigures) -> str:
        if self.is_variant:
            return (
                "With fewer states: members stop and join again after a failover, and who was found dead "
                f"is forgotten at once: {figures.unowned_s:,.0f} partition-seconds without work instead of "
                f"{base.unowned_s:,.0f}."
            )
        return (
            "Every change had all members join again, and who was slow was silent: "
            f"{plural(figures.needless_stops, 'needless stop')}, {figures.unowned_s:,.0f} "
            f"partition-seconds without work, {figures.doubled_items:,} items done twice and "
            f"{figures.repeated_items:,} repeated."
        )

    def begin(self, schedule: Schedule, ledger: Ledger) -> None:
        self._ledger = ledger
        self._counts = dict(schedule.topics)
        self._works_on: dict[str, frozenset[Part]] = {}
        self._slow_until_ms: dict[str, float] = {}
        chance = random.Random(f"{schedule.seed}/rewrite")
        self._log = _ProjectedLog()
        self._play = Play(self._variant, self._log, chance, self._counts, watch=self._look, tap=self._count)

    def run_until(self, at_ms: float) -> None:
        self._play.run(max(at_ms - self._play.now_ms, 0.0))

    def meet(self, event: ScheduledEvent) -> None:
        match event:
            case Join():
                settings = RewriteConsumerSettings(
                    group_id=GROUP,
                    session_timeout_ms=SESSION_MS,
                    heartbeat_frequency=SESSION_MS // HEARTBEAT_MS,
                    commit_interval_ms=COMMIT_MS,
                )
                positions = partial(self._positions, event.member)
                self._play.join(event.member, settings, sorted(self._counts), positions=positions)
            case Leave():
                slow_ms = self._slow_until_ms.get(event.member, 0.0) - self._play.now_ms
                self._play.at(max(slow_ms, 0.0), lambda: self._play.leave(event.member))
            case Slow():
                self._slow_until_ms[event.member] = self._play.now_ms + event.for_ms
                self._play.pause(event.member, event.for_ms)
            case GrowTopic():
                self._play.grow(event.topic, event.num_partitions)
            case KillCoordinator():
                self._play.kill(down_ms=ELECTION_MS)
        self._look()

    def _positions(self, member: str) -> dict[Part, int]:
        """Return what a member has to commit."""
        owned = self._play.processes[member].consumer.owned
        return {part: self._ledger.next_item(member, part, self._play.now_ms) for part in owned}

    def _count(self, _name: str, message: Message, _frame: bytes) -> None:
        self._ledger.message(type(message).__name__.removesuffix("Request").removesuffix("Response"))

    def _look(self) -> None:
        """Tell the ledger what has changed."""
        processes = self._play.processes
        now_ms = self._play.now_ms
        processes = self._play.processes
        for name in [one for one in self._works_on if one not in processes]:
            del self._works_on[name]
            self._ledger.works_on(name, {}, now_ms)
        for name, process in processes.items():
            parts = process.consumer.consuming
            if parts != self._works_on.get(name):
                self._works_on[name] = parts
                first_items = {part: self._log.committed(part) for part in parts}
                self._ledger.works_on(name, first_items, now_ms)
