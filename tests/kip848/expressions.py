"""Helpers for the tests of C.14: members that subscribe by an expression, and rounds that resolve it."""

from __future__ import annotations

from coordinator.api import Job
from records import ReasonKind
from tests.support.group_client import Client
from tests.support.world import World


def by_regex(world: World, name: str = "a", regex: str = "orders.*", **fields: object) -> Client:
    return Client(world, name, topics=(), regex=regex, **fields)  # type: ignore[arg-type]  # tests name them


def reasons(world: World, place: int = -1) -> list[ReasonKind]:
    """Return the reasons of an entry of the log."""
    return [ReasonKind(reason.kind) for reason in world.log[place].cause.reasons]


def held(world: World) -> Job:
    """Return the only job; its child process has not answered."""
    (job,) = world.jobs
    return job
