"""A shard's figures as metrics: which of them, under which name, and the meaning of each.

The figures come from the shard's status and its runtime's counters. Those in no table here are no metrics:
some exist twice, as the log and as the runtime see them, and some are only useful beside others, in
`/v1/cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cluster.http.node_view import Json
from cluster.runtime.shard_runtime import AnyShardRuntime

GAUGES: Final[dict[str, tuple[str, str]]] = {
    # key in the status: (name after quorate_shard_, help)
    "since_ms": (
        "state_since_ms",
        "Wall clock time of the shard's last change between Down, CatchUp and Ready on this node.",
    ),
    "applied_index": ("applied_index", "Newest entry applied to the projection."),
    "replies_held": ("replies_waiting", "Replies that wait for a commit or for confirmation of leadership."),
    "waiting_for_commit": ("waiting_for_commit", "HTTP reads and long polls that wait for a commit."),
}

LOG_GAUGES: Final[dict[str, tuple[str, str]]] = {
    "term": ("term", "The Raft term."),
    "last_index": ("last_index", "Newest entry in the log."),
    "durable_index": ("durable_index", "Newest entry that this node has synced."),
    "commit_index": ("commit_index", "Newest entry that this node knows to be durable on a quorum."),
    "last_timestamp_ms": ("last_timestamp_ms", "Wall clock of the newest entry."),
    "is_disk_full": (
        "disk_full",
        "1 while the log's disk has too little free space for a leader to accept writes.",
    ),
    "is_joining": ("joining", "1 while a replaced disk catches up and neither votes nor acknowledges."),
    "uncommitted_bytes": ("uncommitted_bytes", "Bytes appended here and not committed."),
    "tail_records": ("tail_records", "Records since the last snapshot."),
    "torn_bytes_cut": ("torn_bytes_cut", "Bytes of a torn write that the last start truncated."),
    "segments": ("segments", "Files of the live log."),
    "snapshot_index": ("snapshot_index", "Last entry of the newest snapshot."),
    "chain_index": ("chain_index", "Last entry that the hash chain covers."),
    "sync_average_ms": ("sync_average_ms", "Duration of a sync, moving average."),
    "sync_outstanding_ms": ("sync_outstanding_ms", "Age of the current sync, 0 if none is running."),
}

LOG_COUNTERS: Final[dict[str, str]] = {
    "rebuilds": "Projections rebuilt from the log, after a leader change or a snapshot from a peer.",
    "snapshots_made": "Snapshots that this node made.",
    "syncs": "Syncs of the log.",
}

RUNTIME_COUNTERS: Final[dict[str, str]] = {
    "requests": "Requests to the shard on this node.",
    "refused": "Requests that the shard refused: not leader, loading or overloaded.",
    "failures": "Requests and timers that failed with an exception; the node's log has the stack traces.",
    "entries_appended": "Decisions appended to the log as leader.",
    "records_appended": "Records in the entries appended as leader.",
    "bytes_appended": "Bytes of the entries appended as leader.",
    "commits": "Offsets committed, counted per partition.",
    "offsets_expired": "Committed offsets removed after their retention time.",
    "rebalances": "New group epochs.",
    "assignor_failures": (
        "Targets that an assignor failed to compute; `quorate groups describe` shows the error."
    ),
    "replies_held": "Replies that had to wait for a commit or for confirmation of leadership.",
    "replies_expired": "Replies that timed out, so that the client was told that the outcome is unknown.",
    "elections_won": "Terms that this node won.",
    "leads_lost": "Leaderships lost to a new term without a transfer.",
    "leads_handed_over": "Leaderships that this node transferred.",
}


class ShardFamilies:
    """Builds metric families: `add` each shard, then iterate."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._families.values())

    def add(self, shard: AnyShardRuntime, status: Json, name: str) -> None:
        """Add the samples of one shard, under the label `name`."""
        log = status.get("log", {})
        self._gauges(GAUGES, status, name)
        self._gauges(LOG_GAUGES, log, name)
        self._counters(LOG_COUNTERS, log, name)
        self._counters(RUNTIME_COUNTERS, shard.counters.as_dict(), name)
        self._followers(log, name)

    def _gauges(self, table: Mapping[str, tuple[str, str]], values: Mapping[str, Any], shard: str) -> None:
        for key, (metric, text) in table.items():
            if values.get(key) is not None:
                self._sample(GaugeMetricFamily, metric, text, {"shard": shard}, values[key])

    def _counters(self, table: Mapping[str, str], values: Mapping[str, Any], shard: str) -> None:
        for key, text in table.items():
            if key in values:
                self._sample(CounterMetricFamily, key, text, {"shard": shard}, values[key], "_total")

    def _followers(self, log: Json, shard: str) -> None:
        """On the leader, add how far each follower lags, if known.

        It is not known before the follower's first answer in this term, nor while the leader probes for the
        point up to which the logs agree.
        """
        text = "Entries of the leader that the follower does not have yet."
        for follower in log.get("followers") or ():
            if follower["last_ack_ago_ms"] is None or follower["mode"] == "probing":
                continue
            labels = {"node": str(follower["node_id"]), "shard": shard}
            self._sample(GaugeMetricFamily, "follower_lag", text, labels, follower["lag"])

    def _sample(
        self,
        kind: Callable[..., Metric],
        metric: str,
        text: str,
        labels: dict[str, str],
        value: float,
        suffix: str = "",
    ) -> None:
        full = f"quorate_shard_{metric}"
        family = self._families.get(full + suffix)
        if family is None:
            family = self._families[full + suffix] = kind(full, text, labels=list(labels))
        family.add_sample(full + suffix, labels, float(value))
