"""/metrics: integers that the node keeps anyway, turned into Prometheus' families on request.

The registry is the node's own: nothing is registered globally, so two nodes in one process (tests) do not
collide. Invariants: a scrape costs only what it prints; serving a request updates no family.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator, Mapping

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from cluster.http.kafka_metrics import kafka_families
from cluster.http.node_view import HttpNode, Json
from cluster.http.recent import Recent
from cluster.http.shard_metrics import ShardFamilies
from cluster.kafka.counters import LATENCY_BUCKETS_MS, KafkaCounters
from cluster.kafka.listener import KafkaListener
from coordinator.shard import Counts
from coordinator.state.machines import GroupState
from raftlog.transport.links import Links
from records import METADATA_SHARD
from wire.apis import ApiKey
from wire.errors import ErrorCode

MS_PER_SECOND = 1000.0
NO_LEADER = -1


class NodeMetrics:
    """The registry of one node. `render` returns the text format."""

    def __init__(self, node: HttpNode, kafka: KafkaListener | None, version: str) -> None:
        self.recent = Recent(node.host, lambda: sum(shard.counters.rebalances for shard in node.shards))
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._node = _NodeCollector(node, version)
        self._registry.register(self._node)
        self._groups = _GroupCollector(node, kafka, self.recent)
        self._registry.register(self._groups)
        if kafka is not None:
            self._registry.register(_KafkaCollector(kafka))

    async def looking(self, app: object) -> AsyncIterator[None]:
        """Take a sample every second while the application runs."""
        self.recent.start()
        yield
        self.recent.stop()

    def render(self, counts: Mapping[int, Counts]) -> bytes:
        """Return the text format; `counts` are those of the group shards that this node serves, by number."""
        self._groups.counts = counts
        return generate_latest(self._registry)


class _NodeCollector(Collector):
    def __init__(self, node: HttpNode, version: str) -> None:
        self._node = node
        self._version = version

    def collect(self) -> Iterator[Metric]:
        node = self._node
        yield InfoMetricFamily(
            "quorate",
            "Release, cluster id and node id.",
            value={
                "version": self._version,
                "cluster_id": node.info.cluster_id,
                "node_id": str(node.info.node_id),
            },
        )
        ready = GaugeMetricFamily(
            "quorate_shard_ready", "1 while the shard is ready to serve.", labels=["shard"]
        )
        leaders = GaugeMetricFamily(
            "quorate_shard_leader",
            "Id of the node that leads the shard, -1 if no leader is known.",
            labels=["shard"],
        )
        families = ShardFamilies()
        for shard in (node.metadata, *node.shards):
            name = "metadata" if shard.shard == METADATA_SHARD else str(shard.shard)
            ready.add_metric([name], float(shard.is_ready))
            leader = node.leader_of(shard.shard)
            leaders.add_metric([name], NO_LEADER if leader is None else leader.node_id)
            families.add(shard, shard.status(), name)
        yield ready
        yield leaders
        yield from families
        about = node.status()
        if (heartbeats := about.get("heartbeats")) is not None:
            yield from _heartbeats(heartbeats)
        if (clock := about.get("clock")) is not None:
            yield from _clock(clock)
        if node.links is not None:
            yield from _links(node.links)
        if node.metadata.is_ready:
            yield GaugeMetricFamily("quorate_topics", "Topics in the catalog.", value=len(node.catalog))


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
        (
            "not_believed",
            "Jump of most wall clocks that is not trusted yet.",
            status["not_believed_ms"],
        ),
    ):
        yield GaugeMetricFamily(f"quorate_clock_{name}_seconds", help_text, value=value_ms / MS_PER_SECOND)


def _links(links: Links) -> Iterator[Metric]:
    """Yield one sample for each peer; a peer that was never in contact has no skew."""
    up = GaugeMetricFamily("quorate_link_up", "1 while the node is connected.", labels=["node"])
    skew = GaugeMetricFamily(
        "quorate_link_clock_skew_seconds", "The peer's wall clock minus this node's.", labels=["node"]
    )
    sent = CounterMetricFamily("quorate_link_sent_bytes", "Bytes sent to the peer.", labels=["node"])
    received = CounterMetricFamily(
        "quorate_link_received_bytes", "Bytes received from the peer.", labels=["node"]
    )
    for row in links.status():
        node = [str(row["node_id"])]
        up.add_metric(node, float(row["state"] == "up"))
        if row.get("clock_skew_ms") is not None:
            skew.add_metric(node, row["clock_skew_ms"] / MS_PER_SECOND)
        sent.add_metric(node, row["bytes_out"])
        received.add_metric(node, row["bytes_in"])
    yield from (up, skew, sent, received)


class _GroupCollector(Collector):
    """The sizes of what is kept, reported only by the serving node, so that sums over nodes are correct."""

    def __init__(self, node: HttpNode, kafka: KafkaListener | None, recent: Recent) -> None:
        self._node = node
        self._kafka = kafka
        self._recent = recent
        self.counts: Mapping[int, Counts] = {}

    def collect(self) -> Iterator[Metric]:
        states = GaugeMetricFamily("quorate_groups", "Groups by state.", labels=["shard", "state"])
        members = GaugeMetricFamily("quorate_members", "Members of groups.", labels=["shard"])
        offsets = GaugeMetricFamily("quorate_offsets", "Committed offsets.", labels=["shard"])
        for number, counts in self.counts.items():
            shard = str(number)
            for state in GroupState:
                states.add_metric([shard, state.value], counts.in_state(state))
            members.add_metric([shard], counts.members)
            offsets.add_metric([shard], counts.offsets)
        yield from (states, members, offsets)
        num_unserved = self._kafka.num_unserved if self._kafka is not None else 0
        yield from kafka_families(self._node.shards, [*self.counts.values()], num_unserved, self._recent)


class _KafkaCollector(Collector):
    def __init__(self, kafka: KafkaListener) -> None:
        self._kafka = kafka

    def collect(self) -> Iterator[Metric]:
        kafka, counters = self._kafka, self._kafka.counters
        requests = CounterMetricFamily("quorate_kafka_requests", "Kafka requests by API.", labels=["api"])
        for api_key, number in sorted(counters.requests.items()):
            requests.add_metric([_api(api_key)], number + _fast(counters, api_key))
        yield requests
        errors = CounterMetricFamily(
            "quorate_kafka_errors", "Error codes in Kafka responses.", labels=["api", "error"]
        )
        for (api_key, code), number in sorted(counters.errors.items()):
            errors.add_metric([_api(api_key), _error(code)], number)
        yield errors
        yield _latency(counters)
        closed = CounterMetricFamily(
            "quorate_kafka_connections_closed", "Connections that the node closed.", labels=["why"]
        )
        for why, number in sorted(counters.connections_closed.items()):
            closed.add_metric([why], number)
        yield closed
        for name, help_text, value in (
            ("fast_heartbeats", "Steady heartbeats answered from the cache.", counters.fast_heartbeats),
            ("received_bytes", "Bytes received from Kafka clients.", counters.bytes_received),
            ("sent_bytes", "Bytes sent to Kafka clients.", counters.bytes_sent),
            ("connections_opened", "Kafka connections accepted.", counters.connections_opened),
        ):
            yield CounterMetricFamily(f"quorate_kafka_{name}", help_text, value=value)
        open_now = len(kafka.connections)
        yield GaugeMetricFamily("quorate_kafka_connections", "Open Kafka connections.", value=open_now)
        waiting = kafka.fetches_waiting
        yield GaugeMetricFamily(
            "quorate_kafka_fetches_waiting", "Empty fetches that are waiting.", value=waiting
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


def _error(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
