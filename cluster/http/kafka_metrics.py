"""The metrics that KIP-848 lists for a broker's group coordinator, under its names.

Invariants: a shard is counted by the node that serves it and by no other, so that sums over the
nodes are correct; every state has a sample, even if it is 0. docs/operations.md explains what each one means
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, UntypedMetricFamily

from cluster.http.recent import Recent
from cluster.runtime.shard_runtime import AnyShardRuntime
from coordinator.admin import CLASSIC, CONSUMER
from coordinator.shard import Counts
from coordinator.state.machines import GroupState

PREFIX: Final = "kafka_server_group_coordinator_metrics_"
PARTITION_STATES: Final = ("loading", "active", "failed")


def kafka_families(
    shards: Sequence[AnyShardRuntime], counts: Sequence[Counts], num_unserved: int, recent: Recent
) -> Iterator[Metric]:
    """Yield the families. `shards` are the group shards; `counts` belong to those that this node serves."""
    yield gauge(
        PREFIX + "group_count",
        "Groups by protocol; groups that hold only offsets count as classic.",
        "protocol",
        {kind: sum(one.of_type(kind) for one in counts) for kind in (CONSUMER, CLASSIC)},
    )
    serving = [shard.serving for shard in shards]
    yield gauge(
        PREFIX + "partition_count",
        "Group shards that this node leads, by state.",
        "state",
        {state: serving.count(state) for state in PARTITION_STATES},
    )
    yield gauge(
        PREFIX + "consumer_group_count",
        "Consumer groups by state.",
        "state",
        {state.value.lower(): sum(one.groups[CONSUMER, state] for one in counts) for state in GroupState},
    )
    load_ms = [shard.load_ms for shard in shards if shard.is_ready]
    idle_min, idle_avg = recent.idle_ratios()
    for name, text, value in (
        (
            "event_queue_size",
            "Requests that are queued or not completely decided yet.",
            num_unserved + sum(shard.requests.num_unfinished for shard in shards),
        ),
        (
            "consumer_group_rebalance_rate",
            "New group epochs per second in the last 30 s.",
            recent.rebalances_per_s(),
        ),
        (
            "partition_load_time_max",
            "Milliseconds from election (or a single node's start) to Ready, maximum of the shards served.",
            max(load_ms, default=0.0),
        ),
        (
            "partition_load_time_avg",
            "Milliseconds from election (or a single node's start) to Ready, mean of the shards served.",
            sum(load_ms) / max(1, len(load_ms)),
        ),
        (
            "thread_idle_ratio_min",
            "Fraction of time that the event loop was idle in the busiest second of the last 30.",
            idle_min,
        ),
        (
            "thread_idle_ratio_avg",
            "Fraction of time that the event loop was idle in the last 30 s.",
            idle_avg,
        ),
    ):
        yield GaugeMetricFamily(PREFIX + name, text, value=value)
    # A counter in all but name: that would have to end in _total.
    yield UntypedMetricFamily(
        PREFIX + "consumer_group_rebalance_count",
        "New group epochs since the node started.",
        value=sum(shard.counters.rebalances for shard in shards),
    )


def gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a family with one sample for each value of its label."""
    return _filled(GaugeMetricFamily(name, text, labels=[label]), values)


def counter(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=[label]), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for value, number in values.items():
        family.add_metric([value], float(number))
    return family
