"""The real events of a run, recorded by the scenario that provoked them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from history.facts.rows import TopicPartition
from records import ReasonKind
from tests.support.incidents.process import Process
from tests.support.incidents.world import IncidentWorld


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """One incident: `explain` must name its cause, its members and its partitions."""

    kind: str
    """The diagnosis of the incident. For an event that disturbs nothing (a topic grew, an operator removed a
    member), the reason of the epoch that it led to."""
    members: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    at_ms: int
    """A moment of the incident (wall clock)."""
    until_ms: int
    """The latest moment at which it was over (wall clock)."""
    needs_evidence: bool = False
    """The log alone does not show it."""
    alone: str = ""
    """The diagnosis without evidence, if there is any."""

    @property
    def is_reason(self) -> bool:
        return self.kind in ReasonKind.__members__ and self.kind not in ("SESSION_EXPIRED",)


@dataclass(slots=True)
class Known:
    """The incidents of one run, added while it is played."""

    world: IncidentWorld
    truths: list[Truth] = field(default_factory=list)
    besides: set[str] = field(default_factory=set)
    """Diagnoses that may be made besides, as consequences of such incidents."""

    def tell(
        self,
        kind: str,
        *processes: Process | str,
        partitions: Iterable[TopicPartition] = (),
        since_ms: int | None = None,
        needs_evidence: bool = False,
        alone: str = "",
        besides: Iterable[str] = (),
    ) -> None:
        """Record an incident from `since_ms` (wall clock; by default now) until now."""
        now_ms = self.world.wall_now_ms
        self.besides.update(besides)
        self.truths.append(
            Truth(
                kind=kind,
                members=tuple(one if isinstance(one, str) else one.member_id for one in processes),
                partitions=tuple(sorted(partitions)),
                at_ms=now_ms if since_ms is None else since_ms,
                until_ms=now_ms,
                needs_evidence=needs_evidence,
                alone=alone,
            )
        )


Play = Callable[[IncidentWorld, Known], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario of incidents; `play` provokes them."""

    name: str
    play: Play
    settings: dict[str, Any]

    def run(self, seed: int) -> Known:
        world = IncidentWorld(seed, **self.settings)
        known = Known(world)
        self.play(world, known)
        return known
