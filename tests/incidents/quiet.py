"""Runs in which nothing is wrong: normal events of a group's life, which no rule may report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from records import TermWhy
from tests.support.incidents import classic_process as classic
from tests.support.incidents.process import Process
from tests.support.incidents.truth import Known, Play, Scenario
from tests.support.incidents.world import GROUP, IncidentWorld

QUIET: dict[str, Scenario] = {}


def quiet(name: str, **settings: Any) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        QUIET[name] = Scenario(name, play, settings)
        return play

    return register


@quiet("rolling joins")
def rolling_joins(world: IncidentWorld, _: Known) -> None:
    world.create_topic("orders", 24)
    for _number in range(world.rng.randint(4, 10)):
        world.start()
        world.settle()


@quiet("all at once")
def all_at_once(world: IncidentWorld, _: Known) -> None:
    """All members start together, and leave together much later."""
    world.create_topic("orders", 24)
    crowd = world.crowd(world.rng.randint(8, 16))
    world.live(120_000)
    for one in crowd:
        one.leave()
        world.live(world.rng.uniform(0, 500))
    world.live(120_000)
    for one in crowd:
        one.restart(world.rng.uniform(0, 3_000))
    world.live(4_000)
    world.settle()


@quiet("planned leaves")
def planned_leaves(world: IncidentWorld, _: Known) -> None:
    world.create_topic("orders", 24)
    crowd = world.crowd(world.rng.randint(4, 8))
    while crowd:
        crowd.pop().leave()
        world.settle()


def restart_each(world: IncidentWorld, crowd: Sequence[Process]) -> None:
    """Restart one member after another, each when the group is stable again."""
    for one in crowd:
        one.leave()
        world.settle()
        one.restart(world.rng.uniform(500, 5_000))
        world.live_until(lambda one=one: one.member_id in world.group(GROUP).members)
        world.settle()


@quiet("rolling restart")
def rolling_restart(world: IncidentWorld, _: Known) -> None:
    """Restart one member after another, each when the group is stable again; perhaps twice."""
    world.create_topic("orders", 24)
    crowd = world.crowd(world.rng.randint(3, 6))
    for _time in range(world.rng.randint(1, 2)):
        restart_each(world, crowd)


@quiet("rolling restart of one application under one client id")
def same_client_id(world: IncidentWorld, _: Known) -> None:
    """All members have the same client id and host, as with most applications on one machine."""
    world.create_topic("orders", 24)
    crowd = world.crowd(world.rng.randint(3, 6), host="/10.0.0.7")
    for one in crowd:
        one.client_id = "app"
    restart_each(world, crowd)


@quiet("rolling restart of static members")
def static_restart(world: IncidentWorld, _: Known) -> None:
    world.create_topic("orders", 24)
    crowd = [world.start(instance_id=f"worker-{number}") for number in range(world.rng.randint(3, 6))]
    world.settle()
    for one in crowd:
        one.leave(for_good=False)
        world.live(world.rng.uniform(1_000, 20_000))
        one.restart()
        world.settle()


@quiet("topics come, grow and go")
def topics(world: IncidentWorld, _: Known) -> None:
    world.create_topic("orders", 6)
    world.crowd(world.rng.randint(2, 6), topics=("orders", "refunds"))
    world.create_topic("refunds", 4)
    world.settle()
    world.grow_topic("orders", 12)
    world.settle()
    world.delete_topic("refunds")
    world.settle()


@quiet("expressions")
def expressions(world: IncidentWorld, _: Known) -> None:
    world.create_topic("orders", 6)
    crowd = world.crowd(world.rng.randint(2, 6), topics=(), regex="orders.*")
    world.create_topic("orders-eu", 4)
    world.live(3_000)
    world.settle()
    crowd[0].client.subscribe((), regex="orders-.*")
    world.live(12_000)
    world.settle()
    world.delete_topic("orders-eu")
    world.live(3_000)
    world.settle()


@quiet("planned hand-over")
def handover(world: IncidentWorld, _: Known) -> None:
    world.create_topic("orders", 12)
    world.crowd(world.rng.randint(3, 6))
    for _node in range(3):
        world.lose_leader(world.rng.uniform(5, 200), TermWhy.TRANSFER)
        world.live(world.rng.uniform(5_000, 60_000))


@quiet("restart of the node")
def node_restart(world: IncidentWorld, _: Known) -> None:
    world.create_topic("orders", 12)
    world.crowd(world.rng.randint(3, 6))
    world.lose_leader(world.rng.uniform(500, 8_000), TermWhy.START)
    world.live(60_000)
    world.start()
    world.settle()


@quiet("removal by an operator")
def removed(world: IncidentWorld, _: Known) -> None:
    world.create_topic("orders", 12)
    crowd = world.crowd(world.rng.randint(3, 6))
    crowd[0].kill()
    world.remove(crowd[0])
    world.settle()
    world.remove(crowd[1])  # whose process lives, and joins again
    world.live(10_000)
    world.settle()


@quiet("members that compute", assignment_interval_ms=0)
def computing(world: IncidentWorld, _: Known) -> None:
    world.create_topic("orders", 12)
    crowd = world.crowd(world.rng.randint(2, 5), computes=True)
    world.grow_topic("orders", 16)
    world.live(10_000)
    world.settle()
    crowd[-1].leave()
    world.live(10_000)
    world.settle()


@quiet("an assignor of a user that takes its time", assignors=("weighted", "uniform"))
def slow_assignor(world: IncidentWorld, _: Known) -> None:
    prompt = world.answers
    world.answers = lambda job: (world.rng.uniform(500, 4_000), *prompt(job)[1:])
    world.create_topic("orders", 12)
    world.crowd(world.rng.randint(2, 5))
    world.grow_topic("orders", 16)
    world.live(10_000)
    world.settle()


@quiet("members that take a while", heartbeat_interval_ms=5_000)
def unhurried(world: IncidentWorld, _: Known) -> None:
    """Members take seconds to revoke and send a heartbeat every five seconds, a Kafka broker's default."""
    world.create_topic("orders", 24)
    crowd = world.crowd(world.rng.randint(3, 6))
    for one in crowd:
        one.revoke_ms = world.rng.uniform(1_000, 6_000)
    world.start()
    world.settle()
    crowd[0].leave()
    world.settle()


@quiet("a long quiet day", heartbeat_interval_ms=15_000)
def quiet_day(world: IncidentWorld, _: Known) -> None:
    world.create_topic("orders", 12)
    world.crowd(3)
    world.live(3_600_000)


@quiet("rolling joins and restarts of a classic group")
def classic_restarts(world: IncidentWorld, _: Known) -> None:
    """Members join one after another and take seconds to do so; then each restarts once."""
    crowd = classic.crowd(world, world.rng.randint(3, 5))
    for one in crowd:
        one.join_ms = world.rng.uniform(500, 4_000)
    for one in crowd:
        one.leave()
        classic.settle(world)
        one.restart(world.rng.uniform(500, 5_000))
        world.live_until(lambda one=one: one.is_alive)
        classic.settle(world)
