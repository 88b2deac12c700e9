"""The interval that a node chooses for its load: simulated for 10 to 10,000 members, and on a whole node."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import pytest

from cluster.adaptive import AdaptiveInterval, p99_ms
from cluster.interval_rule import (
    CAUTIOUS_MS,
    COST_FIRST_MS,
    LOOK_MS,
    LOWER_LOOKS,
    PACE_LOOKS,
    SHARE,
    SPARE,
    IntervalRule,
    Load,
    ladder,
)
from cluster.kafka.counters import LATENCY_BUCKETS_MS, KafkaCounters
from tests.support.requests import HEARTBEAT, setting
from tests.support.sim_node import GROUPS, SimNode
from wire.apis import ApiKey

LOW_MS, BASE_MS, HIGH_MS = 500, 1_000, 15_000


class Timer:
    def cancel(self) -> None: ...


class Loop:
    """One loop that serves heartbeats one after the other, and the members that send them: each waits the
    interval that its last reply named. A heartbeat costs `slow_ms` after a change of the interval (its cached
    reply is gone) and `fast_ms` else; `other_ms` of each second go to other work, in pieces of 5 ms."""

    def __init__(
        self, members: int, *, fast_ms: float = 0.02, slow_ms: float = 0.2, other_ms: int = 0
    ) -> None:
        self.now_ms = 0.0
        self.members = members
        self.counters = KafkaCounters()
        self.rule = IntervalRule(LOW_MS, BASE_MS, HIGH_MS)
        self.driver = AdaptiveInterval(
            self, self.rule, self.counters, lambda: (self.members, 0.0), self._chosen
        )  # type: ignore[arg-type]
        self.fast_ms, self.slow_ms = fast_ms, slow_ms
        self.chosen: list[tuple[float, int]] = [(0.0, BASE_MS)]
        self.busy: list[tuple[float, float]] = []
        """(start, duration) of each stretch of work on a heartbeat, in ms."""
        self._told: dict[int, int] = {}
        self._free_ms = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        for number in range(members):
            self._at(BASE_MS * number / max(1, members), lambda number=number: self._beat(number))  # type: ignore[misc]
        for tick in range(other_ms // 5):
            self._at(tick * 5_000 / other_ms, self._other_work)
        self.driver.start()

    # The driver's host.

    def monotonic_ms(self) -> float:
        return self.now_ms

    def call_later(self, delay_ms: float, fn: Callable[..., None], *args: Any) -> Timer:
        self._at(self.now_ms + delay_ms, lambda: self._in_turn(fn))
        return Timer()

    def _in_turn(self, fn: Callable[..., None]) -> None:
        """Call `fn` when the loop has finished the work before it."""
        due_ms, self.now_ms = self.now_ms, max(self.now_ms, self._free_ms)
        fn()
        self.now_ms = due_ms

    def _at(self, when_ms: float, fn: Callable[[], None]) -> None:
        self._numbers += 1
        heappush(self._events, (when_ms, self._numbers, fn))

    def _chosen(self, interval_ms: int) -> None:
        if interval_ms != self.chosen[-1][1]:
            self.chosen.append((self.now_ms, interval_ms))

    @property
    def interval_ms(self) -> int:
        return self.chosen[-1][1]

    def _beat(self, member: int) -> None:
        is_fast = self._told.get(member) == self.interval_ms
        cost_ms = self.fast_ms if is_fast else self.slow_ms
        self._free_ms = max(self._free_ms, self.now_ms) + cost_ms
        self.busy.append((self.now_ms, cost_ms))
        self.counters.serving_ms += cost_ms / 2
        if is_fast:
            self.counters.fast_heartbeats += 1
        else:
            self.counters.requests[ApiKey.CONSUMER_GROUP_HEARTBEAT] += 1
            self.counters.latency[ApiKey.CONSUMER_GROUP_HEARTBEAT].observe(self._free_ms - self.now_ms)
        self._told[member] = self.interval_ms
        self._at(self._free_ms + self.interval_ms, lambda: self._beat(member))

    def _other_work(self) -> None:
        self._free_ms = max(self._free_ms, self.now_ms) + 5
        self._at(self.now_ms + 1_000, self._other_work)

    def run(self, until_ms: float) -> None:
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, fn = heappop(self._events)
            fn()
        self.now_ms = until_ms

    def share(self, since_ms: float) -> float:
        """Return the share of the loop's time that heartbeats have taken since then."""
        return sum(cost for when, cost in self.busy if when >= since_ms) / (self.now_ms - since_ms)

    def changes_since(self, since_ms: float) -> int:
        return sum(when >= since_ms for when, _ in self.chosen)


@pytest.mark.parametrize(
    ("members", "fast_ms"),
    [(10, 0.02), (100, 0.02), (1_000, 0.02), (2_000, 0.02), (5_000, 0.02), (10_000, 0.02), (10_000, 0.1)],
)
def test_it_converges_and_stays_and_costs_a_tenth_of_the_loop(members: int, fast_ms: float) -> None:
    loop = Loop(members, fast_ms=fast_ms)
    loop.run(60_000)
    assert len(loop.chosen) <= 6, loop.chosen
    loop.run(150_000)
    assert loop.changes_since(60_000) == 0, loop.chosen
    assert loop.share(60_000) <= SHARE * 1.05
    needed_ms = members * fast_ms / SHARE
    assert loop.interval_ms <= next(
        step for step in loop.rule.steps if step >= needed_ms / SPARE or step == HIGH_MS
    )


@pytest.mark.parametrize("members", [1, 10, 100, 1_000])
def test_few_members_rebalance_in_well_under_a_second(members: int) -> None:
    """The target is computed at once; every member has its assignment one interval later."""
    loop = Loop(members)
    loop.run(20_000)
    began_ms = loop.now_ms
    heard: dict[int, float] = {}
    beat = loop._beat

    def hear(member: int) -> None:
        heard.setdefault(member, loop.now_ms)
        beat(member)

    loop._beat = hear  # type: ignore[method-assign]
    loop.run(began_ms + 2_000)
    assert len(heard) == members
    assert max(heard.values()) - began_ms < 600


def test_a_crowd_that_comes_at_once_is_met_within_a_look_or_two() -> None:
    loop = Loop(10)
    loop.run(20_000)
    assert loop.interval_ms == 500
    loop.members = 10_000
    for number in range(10, 10_000):
        loop._at(20_000 + number / 5, lambda number=number: loop._beat(number))  # type: ignore[misc]
    loop.run(23_100)
    assert loop.interval_ms >= 2_000
    loop.run(150_000)
    assert loop.changes_since(90_000) == 0, loop.chosen
    assert loop.share(90_000) <= SHARE * 1.05


def test_a_crowd_that_leaves_gives_the_rest_its_short_interval_back() -> None:
    rule = IntervalRule(LOW_MS, BASE_MS, HIGH_MS)
    busy = Load(members=10_000, heartbeats=3_000, requests=3_000, busy_ms=60, reply_p99_ms=1)
    for _ in range(30):
        rule.look(busy)
    assert rule.interval_ms > 3_000
    calm = Load(members=10, heartbeats=10, requests=10, busy_ms=0.2, reply_p99_ms=1)
    looks = [rule.look(calm) for _ in range(LOWER_LOOKS)]
    assert looks[-2] > 3_000
    assert looks[-1] == 500


def test_replies_that_take_long_keep_it_at_a_second() -> None:
    """The interval goes below 1,000 ms only while the p99 reply time is below a tenth of it."""
    for p99, at_least in ((49.0, 500), (51.0, 750), (76.0, 1_000), (200.0, 1_000), (400.0, 1_500)):
        rule = IntervalRule(LOW_MS, BASE_MS, HIGH_MS)
        for _ in range(20):
            rule.look(Load(members=10, heartbeats=10, requests=10, reply_p99_ms=p99))
        assert rule.interval_ms == at_least, p99
        assert rule.interval_ms >= CAUTIOUS_MS or p99 < rule.interval_ms / 10


def test_one_slow_rebalance_changes_nothing() -> None:
    rule = IntervalRule(LOW_MS, LOW_MS, HIGH_MS)
    calm = Load(members=10, heartbeats=20, requests=20, reply_p99_ms=1)
    slow = Load(members=10, heartbeats=20, requests=20, busy_ms=100, reply_p99_ms=100)
    for load in (calm, slow, calm, calm, slow, calm):
        assert rule.look(load) == LOW_MS
    assert PACE_LOOKS == 2
    assert [rule.look(slow), rule.look(slow)] == [LOW_MS, CAUTIOUS_MS]


def test_a_load_at_the_border_of_two_steps_does_not_go_back_and_forth() -> None:
    rule = IntervalRule(LOW_MS, BASE_MS, HIGH_MS)
    for look in range(300):
        busy_ms = 60.0 if look % 7 else 45.0
        rule.look(Load(members=6_000, heartbeats=3_000, requests=3_000, busy_ms=busy_ms, reply_p99_ms=2))
    assert rule.changes <= 2


def test_nothing_is_lowered_without_evidence() -> None:
    """A node without clients has no reply times to go by."""
    rule = IntervalRule(LOW_MS, BASE_MS, HIGH_MS)
    for _ in range(50):
        assert rule.look(Load(members=0)) == BASE_MS


def test_a_new_leader_begins_with_what_heartbeats_cost_that_are_decided() -> None:
    """Failover: members are known at once, their cost is not."""
    rule = IntervalRule(LOW_MS, BASE_MS, HIGH_MS)
    assert rule.took_over(Load(members=10)) == BASE_MS
    first = rule.took_over(Load(members=10_000))
    assert first >= 10_000 * COST_FIRST_MS / SHARE
    assert IntervalRule(LOW_MS, BASE_MS, HIGH_MS).took_over(Load(members=1_000_000)) == HIGH_MS


def test_groups_with_intervals_of_their_own_leave_less_to_the_others() -> None:
    alone, beside = IntervalRule(LOW_MS, BASE_MS, HIGH_MS), IntervalRule(LOW_MS, BASE_MS, HIGH_MS)
    assert alone.took_over(Load(members=2_000)) == 2_000
    assert beside.took_over(Load(members=2_000, fixed_per_s=500)) == 4_000
    assert beside.took_over(Load(members=2_000, fixed_per_s=50_000)) == 8_000


def test_heartbeats_of_members_with_assignors_of_their_own_count_like_all() -> None:
    loop = Loop(0)
    extended = loop.counters.latency[ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT]
    loop.run(500)
    for _ in range(7):
        extended.observe(30.0)
        loop.counters.latency[ApiKey.CONSUMER_GROUP_HEARTBEAT].observe(0.2)
    loop.run(1_000)
    status = loop.driver.status()
    assert (status["heartbeats_per_s"], status["reply_p99_ms"]) == (14.0, 50.0)


@pytest.mark.parametrize("bounds", [(500, 1_000, 15_000), (1, 1, 1), (1, 5_000, 5_000), (700, 900, 100_000)])
def test_the_ladder_holds_its_bounds_and_its_base(bounds: tuple[int, int, int]) -> None:
    steps = ladder(*bounds)
    assert (steps[0], steps[-1]) == (bounds[0], bounds[2])
    assert bounds[1] in steps
    assert list(steps) == sorted(set(steps))


def test_the_p99_of_a_few_leaves_out_the_slowest() -> None:
    def buckets(*times_ms: float) -> list[int]:
        counters = KafkaCounters()
        for time_ms in times_ms:
            counters.latency[0].observe(time_ms)
        return counters.latency[0].buckets

    assert p99_ms([0] * (len(LATENCY_BUCKETS_MS) + 1)) == 0
    assert p99_ms(buckets(40)) == 50
    assert p99_ms(buckets(*[0.2] * 9, 40)) == 0.25
    assert p99_ms(buckets(*[0.2] * 8, 40, 40)) == 50
    assert p99_ms(buckets(*[0.2] * 990, *[40] * 10)) == 0.25
    assert p99_ms(buckets(*[0.2] * 980, *[40] * 20)) == 50
    assert p99_ms(buckets(7_000, 7_000)) == 10_000


# On a whole node.


def test_members_of_a_calm_node_hear_of_the_shortest_interval() -> None:
    sim = SimNode()
    consumer = sim.consumer("a")
    assert consumer.heartbeat().heartbeat_interval_ms == 1_000
    for _ in range(LOWER_LOOKS + 2):
        sim.world.run_for(LOOK_MS)
        answer = consumer.heartbeat()
    assert answer.heartbeat_interval_ms == 500
    status = sim.node.status()["heartbeats"]
    assert (status["interval_ms"], status["interval_changes"], status["members"]) == (500, 1, 1)


def test_a_group_with_an_interval_of_its_own_is_left_alone() -> None:
    sim = SimNode()
    consumer = sim.consumer("a")
    sim.admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, setting(HEARTBEAT, 4_000))
    for _ in range(LOWER_LOOKS + 2):
        sim.world.run_for(LOOK_MS)
        assert consumer.heartbeat().heartbeat_interval_ms == 4_000
    assert sim.node.status()["heartbeats"]["members"] == 0


def test_it_can_be_switched_off() -> None:
    sim = SimNode(settings={"group_consumer_heartbeat_interval_adaptive": False})
    consumer = sim.consumer("a", GROUPS[1])
    for _ in range(LOWER_LOOKS + 2):
        sim.world.run_for(LOOK_MS)
        assert consumer.heartbeat().heartbeat_interval_ms == 1_000
    assert sim.node.status()["heartbeats"] is None
