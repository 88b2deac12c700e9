"""/metrics: integers that the node keeps anyway, turned into Prometheus' families on request.

The registry is the node's own: nothing is registered globally, so two nodes in one process (tests) do not
collide. Invariants: a scrape costs only what it prints; serving a request updates no family.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from cluster.http.kafka_metrics import counter, gauge, kafka_families
from cluster.http.node_view import HttpNode, Json
from cluster.http.recent import Recent
from cluster.http.shard_metrics import ShardFamilies
from cluster.kafka.counters import LATENCY_BUCKETS_MS, KafkaCounters
from cluster.kafka.listener import KafkaListener
from coordinator.leadership import asked_leader
from coordinator.shard import Counts
from coordinator.state.machines import ClassicState, GroupState
from raftlog.transport.links import Links
from records import METADATA_SHARD
from wire.apis import ApiKey
from wire.errors import error_name

MS_PER_SECOND = 1000.0
NO_LEADER = -1


class NodeMetrics(Collector):
    """The registry of one node. `render` returns the text format."""

    def __init__(self, node: HttpNode, kafka: KafkaListener, version: str) -> None:
        self._node = node
        self._kafka = kafka
        self._version = version
        self.recent = Recent(node.host, lambda: sum(shard.counters.rebalances for shard in node.shards))
        self._counts: Mapping[int, Counts] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(self)

    async def looking(self, app: object) -> AsyncIterator[None]:
        """Take a sample every second while the application runs."""
        self.recent.start()
        yield
        self.recent.stop()

    def render(self, counts: Mapping[int, Counts]) -> bytes:
        """Return the text format; `counts` are those of the group shards that this node serves, by number."""
        self._counts = counts
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        node = self._node
        own = {"cluster_id": node.info.cluster_id, "node_id": str(node.info.node_id)}
        yield InfoMetricFamily(
            "quorate", "Release, cluster id and node id.", value={"version": self._version, **own}
        )
        yield from _shards(node)
        about = node.status()
        if (heartbeats := about.get("heartbeats")) is not None:
            yield from _heartbeats(heartbeats)
        if (clock := about.get("clock")) is not None:
            yield from _clock(clock)
        if (shipping := about.get("shipping")) is not None:
            yield from _shipping(shipping)
        if node.links is not None:
            yield from _links(node.links)
        if node.metadata.is_ready:
            yield GaugeMetricFamily("quorate_topics", "Topics in the catalog.", value=len(node.catalog))
        yield from _groups(self._counts)
        num_unserved = self._kafka.num_unserved
        yield from kafka_families(node.shards, [*self._counts.values()], num_unserved, self.recent)
        yield from _requests(self._kafka)


def _shards(node: HttpNode) -> Iterator[Metric]:
    shards = {
        "metadata" if shard.shard == METADATA_SHARD else str(shard.shard): shard for shard in node.all_shards
    }
    leaders = {name: node.leader_of(shard.shard) for name, shard in shards.items()}
    ids = {name: NO_LEADER if leader is None else leader.node_id for name, leader in leaders.items()}
    serving = {name: shard.is_ready for name, shard in shards.items()}
    yield gauge("quorate_shard_ready", "1 while the shard is ready to serve.", "shard", serving)
    yield gauge(
        "quorate_shard_leader", "Id of the node that leads the shard, -1 if no leader is known.", "shard", ids
    )
    asked = {name: asked_leader(node.catalog.leadership, shard.shard) for name, shard in shards.items()}
    yield gauge(
        "quorate_shard_asked_leader",
        "Id of the node that a transfer asked to lead the shard, -1 if balancing chooses.",
        "shard",
        {name: NO_LEADER if node_id is None else node_id for name, node_id in asked.items()},
    )
    drained = {str(node_id): node_id in node.catalog.leadership.drained for node_id in node.voters}
    yield gauge("quorate_node_drained", "1 while the node is drained: it leads nothing.", "node", drained)
    families = ShardFamilies()
    for name, shard in shards.items():
        families.add(shard, shard.status(), name)
    yield from families


def _heartbeats(status: Json) -> Iterator[Metric]:
    """Yield the interval that the node chose, and the figures it was chosen from."""
    for name, help_text, value in (
        ("interval_seconds", "Heartbeat interval for members whose group sets none.", status["interval_ms"]),
        ("cost_seconds", "Event loop time per heartbeat in the last seconds.", status["cost_ms"]),
        (
            "reply_p99_seconds",
            "99th percentile of heartbeat latency in the last second.",
            status["reply_p99_ms"],
        ),
    ):
        yield GaugeMetricFamily(f"quorate_heartbeat_{name}", help_text, value=value / MS_PER_SECOND)
    yield CounterMetricFamily(
        "quorate_heartbeat_interval_changes",
        "Changes of the heartbeat interval.",
        value=status["interval_changes"],
    )
    members = status["members"]
    yield GaugeMetricFamily(
        "quorate_heartbeat_members",
        "Members of this node that receive the heartbeat interval.",
        value=members,
    )


def _clock(status: Json) -> Iterator[Metric]:
    for name, help_text, value_ms in (
        ("own_ahead", "This node's wall clock minus the time that new entries get.", status["own_ahead_ms"]),
        (
            "past_behind",
            "The time that new entries get minus the time that retention uses.",
            status["past_behind_ms"],
        ),
        ("not_believed", "Jump of most wall clocks that is not trusted yet.", status["not_believed_ms"]),
    ):
        yield GaugeMetricFamily(f"quorate_clock_{name}_seconds", help_text, value=value_ms / MS_PER_SECOND)


def _shipping(status: Json) -> Iterator[Metric]:
    for name, help_text in (
        ("segments_shipped", "Sealed segments that the store of log.archive.url got from this node."),
        ("bytes_shipped", "Bytes of these segments."),
        ("failures", "Attempts to ship that failed."),
    ):
        yield CounterMetricFamily(f"quorate_shipping_{name}", help_text, value=status[name])
    for name, help_text in (
        ("segments_left", "Sealed segments that the store has not got yet, as of the last look."),
        ("bytes_left", "Bytes of these segments."),
        ("segments_lost", "Gaps in the store: retention removed segments before they were shipped."),
    ):
        yield GaugeMetricFamily(f"quorate_shipping_{name}", help_text, value=status[name])


def _links(links: Links) -> Iterator[Metric]:
    """Yield one sample for each peer; a peer that was never in contact has no skew."""
    peers = {str(row["node_id"]): row for row in links.status()}
    up = {node: row["state"] == "up" for node, row in peers.items()}
    yield gauge("quorate_link_up", "1 while the node is connected.", "node", up)
    skews = {node: row.get("clock_skew_ms") for node, row in peers.items()}
    skew_s = {node: skew_ms / MS_PER_SECOND for node, skew_ms in skews.items() if skew_ms is not None}
    yield gauge("quorate_link_clock_skew_seconds", "The peer's wall clock minus this node's.", "node", skew_s)
    sent = {node: row["bytes_out"] for node, row in peers.items()}
    yield counter("quorate_link_sent_bytes", "Bytes sent to the peer.", "node", sent)
    received = {node: row["bytes_in"] for node, row in peers.items()}
    yield counter("quorate_link_received_bytes", "Bytes received from the peer.", "node", received)


GROUP_STATES: Final = tuple(dict.fromkeys(state.value for state in itertools.chain(GroupState, ClassicState)))
"""The states of consumer groups, and those that only classic groups have."""


def _groups(counts: Mapping[int, Counts]) -> Iterator[Metric]:
    """Yield the sizes of what is kept; only the serving node reports, so that sums over nodes are correct."""
    states = GaugeMetricFamily("quorate_groups", "Groups by state.", labels=["shard", "state"])
    for number, shard in counts.items():
        for state in GROUP_STATES:
            states.add_metric([str(number), state], shard.in_state(state))
    yield states
    members = {str(number): shard.members for number, shard in counts.items()}
    yield gauge("quorate_members", "Members of groups.", "shard", members)
    offsets = {str(number): shard.offsets for number, shard in counts.items()}
    yield gauge("quorate_offsets", "Committed offsets.", "shard", offsets)


def _requests(kafka: KafkaListener) -> Iterator[Metric]:
    counters = kafka.context.counters
    requests = {_api(key): number + _fast(counters, key) for key, number in sorted(counters.requests.items())}
    yield counter("quorate_kafka_requests", "Kafka requests by API.", "api", requests)
    errors = CounterMetricFamily(
        "quorate_kafka_errors", "Error codes in Kafka responses.", labels=["api", "error"]
    )
    for (api_key, code), number in sorted(counters.errors.items()):
        errors.add_metric([_api(api_key), error_name(code)], number)
    yield errors
    yield _latency(counters)
    closed = dict(sorted(counters.connections_closed.items()))
    yield counter("quorate_kafka_connections_closed", "Connections that the node closed.", "why", closed)
    for name, help_text, value in (
        ("fast_heartbeats", "Steady heartbeats answered from the cache.", counters.fast_heartbeats),
        ("received_bytes", "Bytes received from Kafka clients.", counters.bytes_received),
        ("sent_bytes", "Bytes sent to Kafka clients.", counters.bytes_sent),
        ("connections_opened", "Kafka connections accepted.", counters.connections_opened),
    ):
        yield CounterMetricFamily(f"quorate_kafka_{name}", help_text, value=value)
    open_now = len(kafka.connections)
    yield GaugeMetricFamily("quorate_kafka_connections", "Open Kafka connections.", value=open_now)
    waiting = kafka.context.fetches_waiting
    yield GaugeMetricFamily("quorate_kafka_fetches_waiting", "Empty fetches that are waiting.", value=waiting)
    scratch_log = kafka.context.scratch_log
    yield GaugeMetricFamily(
        "quorate_scratch_log_bytes",
        "Memory for messages (scratch.log.max.bytes).",
        value=0 if scratch_log is None else scratch_log.num_bytes,
    )


def _latency(counters: KafkaCounters) -> Metric:
    family = HistogramMetricFamily(
        "quorate_kafka_request_seconds", "Time from a complete request to its response.", labels=["api"]
    )
    bounds = [str(bound / MS_PER_SECOND) for bound in LATENCY_BUCKETS_MS] + ["+Inf"]
    for api_key, latency in sorted(counters.latency.items()):
        buckets = [latency.buckets[0] + _fast(counters, api_key), *latency.buckets[1:]]
        sums = list(zip(bounds, itertools.accumulate(buckets), strict=True))
        family.add_metric([_api(api_key)], sums, latency.total_ms / MS_PER_SECOND)
    return family


def _fast(counters: KafkaCounters, api_key: int) -> int:
    """Return the number of cached heartbeats, counted separately; they fall into the shortest bucket."""
    return counters.fast_heartbeats if api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT else 0


def _api(api_key: int) -> str:
    return ApiKey(api_key).name.lower()
