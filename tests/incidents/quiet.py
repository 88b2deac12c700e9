"""Runs in which nothing is wrong: what every group shows in its life, and no rule may find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from records import TermWhy
from tests.support.incidents.rig import GROUP, Rig
from tests.support.incidents.truth import Known, Play, Scenario

QUIET: dict[str, Scenario] = {}


def quiet(name: str, **settings: Any) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        QUIET[name] = Scenario(name, play, settings)
        return play

    return register


@quiet("rolling joins")
def rolling_joins(rig: Rig, _: Known) -> None:
    rig.create_topic("orders", 24)
    for _number in range(rig.rng.randint(4, 10)):
        rig.start()
        rig.settle()


@quiet("all at once")
def all_at_once(rig: Rig, _: Known) -> None:
    """A deployment starts, and ends much later."""
    rig.create_topic("orders", 24)
    crowd = rig.crowd(rig.rng.randint(8, 16))
    rig.live(120_000)
    for one in crowd:
        one.leave()
        rig.live(rig.rng.uniform(0, 500))
    rig.live(120_000)
    for one in crowd:
        one.restart(rig.rng.uniform(0, 3_000))
    rig.live(4_000)
    rig.settle()


@quiet("planned leaves")
def planned_leaves(rig: Rig, _: Known) -> None:
    rig.create_topic("orders", 24)
    crowd = rig.crowd(rig.rng.randint(4, 8))
    while crowd:
        crowd.pop().leave()
        rig.settle()


@quiet("rolling restart")
def rolling_restart(rig: Rig, _: Known) -> None:
    """One after another, the next when the group is stable again; perhaps a second time."""
    rig.create_topic("orders", 24)
    crowd = rig.crowd(rig.rng.randint(3, 6))
    for _time in range(rig.rng.randint(1, 2)):
        for one in crowd:
            one.leave()
            rig.settle()
            one.restart(rig.rng.uniform(500, 5_000))
            rig.live_until(lambda one=one: one.member_id in rig.group(GROUP).members)
            rig.settle()


@quiet("rolling restart of one application under one client id")
def same_client_id(rig: Rig, _: Known) -> None:
    """All members have the same client id and host, as with most applications on one machine."""
    rig.create_topic("orders", 24)
    crowd = rig.crowd(rig.rng.randint(3, 6), host="/10.0.0.7")
    for one in crowd:
        one.client_id = "app"
    for one in crowd:
        one.leave()
        rig.settle()
        one.restart(rig.rng.uniform(500, 5_000))
        rig.live_until(lambda one=one: one.member_id in rig.group(GROUP).members)
        rig.settle()


@quiet("rolling restart of static members")
def static_restart(rig: Rig, _: Known) -> None:
    rig.create_topic("orders", 24)
    crowd = [rig.start(instance_id=f"worker-{number}") for number in range(rig.rng.randint(3, 6))]
    rig.settle()
    for one in crowd:
        one.leave(for_good=False)
        rig.live(rig.rng.uniform(1_000, 20_000))
        one.restart()
        rig.settle()


@quiet("topics come, grow and go")
def topics(rig: Rig, _: Known) -> None:
    rig.create_topic("orders", 6)
    rig.crowd(rig.rng.randint(2, 6), topics=("orders", "refunds"))
    rig.create_topic("refunds", 4)
    rig.settle()
    rig.grow_topic("orders", 12)
    rig.settle()
    rig.delete_topic("refunds")
    rig.settle()


@quiet("expressions")
def expressions(rig: Rig, _: Known) -> None:
    rig.create_topic("orders", 6)
    crowd = rig.crowd(rig.rng.randint(2, 6), topics=(), regex="orders.*")
    rig.create_topic("orders-eu", 4)
    rig.live(3_000)
    rig.settle()
    crowd[0].client.subscribe((), regex="orders-.*")
    rig.live(12_000)
    rig.settle()
    rig.delete_topic("orders-eu")
    rig.live(3_000)
    rig.settle()


@quiet("planned hand-over")
def handover(rig: Rig, _: Known) -> None:
    rig.create_topic("orders", 12)
    rig.crowd(rig.rng.randint(3, 6))
    for _node in range(3):
        rig.lose_leader(rig.rng.uniform(5, 200), TermWhy.TRANSFER)
        rig.live(rig.rng.uniform(5_000, 60_000))


@quiet("restart of the node")
def node_restart(rig: Rig, _: Known) -> None:
    rig.create_topic("orders", 12)
    rig.crowd(rig.rng.randint(3, 6))
    rig.lose_leader(rig.rng.uniform(500, 8_000), TermWhy.START)
    rig.live(60_000)
    rig.start()
    rig.settle()


@quiet("removal by an operator")
def removed(rig: Rig, _: Known) -> None:
    rig.create_topic("orders", 12)
    crowd = rig.crowd(rig.rng.randint(3, 6))
    crowd[0].kill()
    rig.remove(crowd[0])
    rig.settle()
    rig.remove(crowd[1])  # whose process lives, and joins again
    rig.live(10_000)
    rig.settle()


@quiet("members that compute", assignment_interval_ms=0)
def computing(rig: Rig, _: Known) -> None:
    rig.create_topic("orders", 12)
    crowd = rig.crowd(rig.rng.randint(2, 5), computes=True)
    rig.grow_topic("orders", 16)
    rig.live(10_000)
    rig.settle()
    crowd[-1].leave()
    rig.live(10_000)
    rig.settle()


@quiet("an assignor of a user that takes its time", assignors=("weighted", "uniform"))
def slow_assignor(rig: Rig, _: Known) -> None:
    prompt = rig.answers
    rig.answers = lambda job: (rig.rng.uniform(500, 4_000), *prompt(job)[1:])
    rig.create_topic("orders", 12)
    rig.crowd(rig.rng.randint(2, 5))
    rig.grow_topic("orders", 16)
    rig.live(10_000)
    rig.settle()


@quiet("members that take a while", heartbeat_interval_ms=5_000)
def unhurried(rig: Rig, _: Known) -> None:
    """Seconds to give up, and a heartbeat in five seconds: a Kafka broker's default."""
    rig.create_topic("orders", 24)
    crowd = rig.crowd(rig.rng.randint(3, 6))
    for one in crowd:
        one.revoke_ms = rig.rng.uniform(1_000, 6_000)
    rig.start()
    rig.settle()
    crowd[0].leave()
    rig.settle()


@quiet("a long quiet day", heartbeat_interval_ms=15_000)
def quiet_day(rig: Rig, _: Known) -> None:
    rig.create_topic("orders", 12)
    rig.crowd(3)
    rig.live(3_600_000)
