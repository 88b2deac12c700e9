"""What the tests of C.14 share: members that subscribe by an expression, and the rounds that resolve it."""

from __future__ import annotations

from coordinator.api import Job
from records import ReasonKind
from tests.support.world import Client, World


def by_regex(world: World, name: str = "a", regex: str = "orders.*", **fields: object) -> Client:
    return Client(world, name, topics=(), regex=regex, **fields)  # type: ignore[arg-type]  # tests name them


def reasons(world: World, place: int = -1) -> list[ReasonKind]:
    """Why an entry of the log was written."""
    return [ReasonKind(reason.kind) for reason in world.log[place].cause.reasons]


def held(world: World) -> Job:
    """The one job that waits for its child."""
    (job,) = world.jobs
    return job
