"""What really happened in a run, as whoever provoked it knows."""

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
    """The diagnosis that it is; of what is no disturbance (a topic grew, an operator removed somebody) the
    reason of the epoch that it led to."""
    members: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    at_ms: int
    """Wall clock: a moment of it."""
    until_ms: int
    """When it was over at the latest."""
    needs_evidence: bool = False
    """The log alone cannot tell."""
    alone: str = ""
    """What it tells then, if anything: the diagnosis without evidence."""

    @property
    def is_reason(self) -> bool:
        return self.kind in ReasonKind.__members__ and self.kind not in ("SESSION_EXPIRED",)


@dataclass(slots=True)
class Known:
    """What is known of the incidents of one run, in the making."""

    world: IncidentWorld
    truths: list[Truth] = field(default_factory=list)
    besides: set[str] = field(default_factory=set)
    """Diagnoses that may stand beside them: what else comes of such an incident."""

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
        """It has happened, since a moment (wall clock; now, if none is given) and up to now."""
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
    """A kind of run; `play` provokes it."""

    name: str
    play: Play
    settings: dict[str, Any]

    def run(self, seed: int) -> Known:
        world = IncidentWorld(seed, **self.settings)
        known = Known(world)
        self.play(world, known)
        return known
