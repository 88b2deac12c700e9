"""Measure the node's load once a second and set the heartbeat interval that `interval_rule` chooses.

Everything measured is counted anyway: reply times of heartbeats, requests, and the time that connections
spent on them. A node has one interval for all groups that it leads and that set none themselves, because they
share one event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any, Protocol

from cluster.interval_rule import LOOK_MS, IntervalRule, Load
from cluster.kafka.counters import LATENCY_BUCKETS_MS, KafkaCounters
from raftlog.env.host import Host, Timer
from wire.apis import HEARTBEATS, ApiKey


class Followers(Protocol):
    """Return the number of members that follow the interval, and the heartbeats per second of all others."""

    def __call__(self) -> tuple[int, float]: ...


class AdaptiveInterval:
    """The driver on one node. `choose` is called with the interval after every check."""

    def __init__(
        self,
        host: Host,
        rule: IntervalRule,
        counters: KafkaCounters,
        followers: Followers,
        choose: Callable[[int], None],
    ) -> None:
        self._host = host
        self._rule = rule
        self._counters = counters
        self._followers = followers
        self._choose = choose
        self._timer: Timer | None = None
        self._due_ms = 0.0
        self._seen = _Totals(counters)
        self._newest = Load(members=0)

    def start(self) -> None:
        self._due_ms = self._host.monotonic_ms() + LOOK_MS
        self._timer = self._host.call_later(LOOK_MS, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def took_over(self) -> None:
        """Account for a shard that this node has just begun to lead."""
        members, fixed_per_s = self._followers()
        self._tell(self._rule.took_over(Load(members=members, fixed_per_s=fixed_per_s)))

    def status(self) -> dict[str, Any]:
        """Return the chosen interval and the figures that it was chosen from, ready for JSON."""
        load = self._newest
        return {
            "interval_ms": self._rule.interval_ms,
            "interval_changes": self._rule.changes,
            "members": load.members,
            "heartbeats_per_s": round(load.heartbeats * 1_000 / LOOK_MS, 1),
            "cost_ms": round(self._rule.cost_ms, 4),
            "reply_p99_ms": round(load.reply_p99_ms, 3),
        }

    def _look(self) -> None:
        now_ms = self._host.monotonic_ms()
        late_ms = max(0.0, now_ms - self._due_ms)
        self.start()
        before, self._seen = self._seen, _Totals(self._counters)
        members, fixed_per_s = self._followers()
        self._newest = self._seen.since(before, members, fixed_per_s, late_ms)
        self._tell(self._rule.look(self._newest))

    def _tell(self, interval_ms: int) -> None:
        self._choose(interval_ms)


class _Totals:
    """The counters at one moment."""

    def __init__(self, counters: KafkaCounters) -> None:
        follow = HEARTBEATS - {ApiKey.HEARTBEAT}  # clients of the classic protocol choose their interval
        heard = [counters.latency[key].buckets for key in follow if key in counters.latency]
        self.fast = counters.fast_heartbeats
        self.requests = sum(counters.requests.values()) + self.fast
        self.busy_ms = counters.serving_ms
        self.buckets = tuple(map(sum, zip(*heard, strict=True))) or (0,) * (len(LATENCY_BUCKETS_MS) + 1)

    def since(self, before: _Totals, members: int, fixed_per_s: float, late_ms: float) -> Load:
        slow = [now - then for now, then in zip(self.buckets, before.buckets, strict=True)]
        fast = self.fast - before.fast
        return Load(
            members=members,
            fixed_per_s=fixed_per_s,
            heartbeats=sum(slow) + fast,
            decided=sum(slow),
            requests=self.requests - before.requests,
            busy_ms=self.busy_ms - before.busy_ms,
            reply_p99_ms=max(p99_ms([slow[0] + fast, *slow[1:]]), late_ms),
        )


def p99_ms(buckets: list[int]) -> float:
    """Return the upper bound of the bucket that holds the 99th percentile.

    The slowest reply is left out if there are few, so that a single reply never sets the pace of a node.
    """
    total = sum(buckets)
    rank = min(ceil(0.99 * total), max(1, total - 1))
    counted = 0
    for bound_ms, number in zip((*LATENCY_BUCKETS_MS, 2 * LATENCY_BUCKETS_MS[-1]), buckets, strict=True):
        counted += number
        if total and counted >= rank:
            return bound_ms
    return 0.0
