"""Every setting of a node, once: name, default, unit, bounds and the reason for the default.

The class body of `Settings` is the table. A field's dotted name is its attribute name with dots
(`group_consumer_session_timeout_ms` is `group.consumer.session.timeout.ms`). The same name is used in a TOML
file (as sections or as dotted keys), in the environment (`QUORATE_` and the name in upper case with
underscores) and as a flag. Loader, converters and docs/configuration.md read this table; no default exists
anywhere else. Kafka's name is used wherever Kafka has the setting.

Invariants: units come last in a name; every number is bounded; every `Settings` object has passed
every check, so no reader checks again.
"""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from cluster.log_lines import FORMATS
from cluster.settings.nodes import NodesError, parse_nodes
from coordinator.assignors import BUILT_IN
from coordinator.limits import GroupSettings, Limits, MigrationPolicy
from raftlog.env.host import TlsSettings
from raftlog.env.object_stores import UnknownStore, check_place
from raftlog.env.settings import LogSettings
from raftlog.transport import PeerSettings

Value = int | bool | str | tuple[str, ...]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MIB = 1 << 20
MINUTE_MS = 60_000
EVERY_ADDRESS = ("0.0.0.0", "::")
REWRITE_STRATEGIES = ("range", "roundrobin")
"""The strategies of `lineage.rewrite`, which a node imports only if it serves that protocol."""


class SettingsError(Exception):
    """A setting is unknown or has an impossible value; the message names it, its source and a way out."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. `low` and `high` are inclusive and apply to integers."""

    name: str
    default: Value
    reason: str
    unit: str = ""
    low: int | None = None
    high: int | None = None
    is_sensitive: bool = False
    """Whether the value reveals where a secret is; such a value is never shown to a client."""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")


def _row(default: Any, reason: str, **more: Any) -> Any:
    return dataclasses.field(default=default, metadata={"reason": reason, **more})


def _number(default: int, unit: str, low: int, high: int, reason: str) -> Any:
    """Return an integer's row; both bounds are allowed values."""
    return _row(default, reason, unit=unit, low=low, high=high)


def _port(default: int, reason: str) -> Any:
    return _number(default, "", 0, 65535, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one node, checked. Raises SettingsError if they contradict each other."""

    # fmt: off
    # The identity of the node and the place of its log.
    node_id: int = _number(1, "", 0, INT32_MAX, "The node's id in Metadata and in the first record of every "
                                                "term.")
    data_dir: str = _row("quorate-data", "The node's directory, created by `quorate node format`.")
    cluster_shards: int = _number(4, "shards", 1, 1024,
        "Number of group shards, fixed at formatting; four spread the leaders over three nodes.")
    insecure: bool = _row(False,
        "Allows listening on addresses of other machines without TLS and authentication; logged at each "
        "start.")
    log_level: str = _row("info", "One of debug, info, warning and error.")
    log_format: str = _row("text",
        "Lines of the node's own log: text for people, or json, an object per line for a log collector.")

    # Listeners.
    kafka_host: str = _row("127.0.0.1", "Address to bind; loopback, because clients are not authenticated.")
    kafka_port: int = _port(9092, "Kafka's default port; 0: any free port.")
    kafka_advertised_host: str = _row("", "Host that clients connect to; empty: the bound host.")
    kafka_advertised_port: int = _port(0, "Port that clients connect to; 0: the bound port.")
    http_host: str = _row("127.0.0.1", "Address to bind; loopback, because clients are not authenticated.")
    http_port: int = _port(8092, "Port of the HTTP API; 0: any free port.")
    http_advertised_host: str = _row("", "HTTP host shown by /v1/cluster; empty: the bound host.")
    http_advertised_port: int = _port(0, "HTTP port shown by /v1/cluster; 0: the bound port.")
    http_allowed_hosts: tuple[str, ...] = _row((),
        "Further allowed HTTP Host names, such as a load balancer's; addresses are always allowed. `*`: any "
        "name.")

    faults_enable: bool = _row(False,
        "Whether `quorate faults` may make this node delay, drop and refuse requests. Off, because whoever "
        "reaches the HTTP port could break its clients; `quorate up` turns it on.")
    launcher_dir: str = _row("",
        "Directory of the `quorate up` that runs this node, set by it: the page at the HTTP address may then "
        "kill and restart nodes. Empty: it may not.")

    # The other nodes.
    cluster_nodes: tuple[str, ...] = _row((),
        "ID@HOST:PORT of every node's peer listener, including this node's; empty: a cluster of one node.")
    cluster_secret_file: str = _row("",
        "File with a secret of at least 16 bytes, the same on all nodes and private to them; required for "
        "several nodes.",
        is_sensitive=True)
    peer_host: str = _row("", "Host to listen on for peers; empty: that of this node's entry in "
                              "cluster.nodes.")
    peer_port: int = _port(0, "Port to listen on for peers; 0: that of this node's entry in cluster.nodes.")
    peer_tls_cert_file: str = _row("", "PEM file with this node's certificate for its peers; empty: no TLS.")
    peer_tls_key_file: str = _row("", "PEM file with the certificate's private key.", is_sensitive=True)
    peer_tls_ca_file: str = _row("", "PEM file with the authority that signed the certificates of all nodes.")
    raft_min_timeout_ms: int = _number(300, "ms", 100, 60_000,
        "Shortest election timeout: a node campaigns after this time without a leader; several heartbeats "
        "long.")
    raft_max_timeout_ms: int = _number(600, "ms", 150, 120_000,
        "Longest election timeout; timeouts are spread so that two nodes rarely campaign at once.")
    raft_heartbeat_ms: int = _number(50, "ms", 10, 20_000,
        "Interval between heartbeats of an idle leader; at most a third of the election timeout.")
    leader_balance_delay_ms: int = _number(10_000, "ms", 0, INT32_MAX,
        "How long a returned node must be up before it leads its shards again, as it may fail again.")

    # Limits on what clients may use of the node.
    max_connections: int = _number(4096, "connections", 1, 1_000_000,
        "Maximum of open connections, 2–3 per consumer; above it an idle connection or the new one is "
        "closed.")
    connections_max_idle_ms: int = _number(600_000, "ms", 100, INT32_MAX,
        "Kafka's default; closes half-open and forgotten connections.")
    socket_request_max_bytes: int = _number(1 * MIB, "bytes", 1024, 256 * MIB,
        "Largest frame, enough for a commit of 30,000 partitions; a hostile one decodes to 40,000 objects, "
        "in 25 ms.")
    connection_requests_max: int = _number(512, "requests", 1, 65536,
        "Requests in flight on one connection; above it reading pauses until responses are sent.")
    connection_buffered_pause_bytes: int = _number(1 * MIB, "bytes", 1024, 1024 * MIB,
        "Bytes of unanswered requests, or of unread responses, at which reading from a connection pauses.")
    connection_buffered_max_bytes: int = _number(64 * MIB, "bytes", 65536, 1024 * MIB,
        "Bytes buffered for a connection at which it is closed; an OffsetFetch of a million partitions fits.")
    listener_buffered_max_bytes: int = _number(512 * MIB, "bytes", 1 * MIB, 65536 * MIB,
        "The same for all connections together; those that buffer most are closed until an eighth is free.")
    fetch_waiting_max: int = _number(20_000, "requests", 0, 1_000_000,
        "Empty fetches that wait at the same time; above it, or with too many buffered bytes, they return "
        "at once.")
    fetch_wait_max_ms: int = _number(30_000, "ms", 1, 600_000,
        "Longest wait of an empty fetch, whatever it requests.")
    held_reply_timeout_ms: int = _number(5_000, "ms", 100, 600_000,
        "Kafka's offsets.commit.timeout.ms: a change that is not durable by then gets "
        "COORDINATOR_NOT_AVAILABLE.")
    http_body_max_bytes: int = _number(1 * MIB, "bytes", 1024, 64 * MIB,
        "Largest body of an HTTP request; requests are small, and responses are not limited by it.")
    http_connections_max: int = _number(256, "connections", 1, 65536,
        "HTTP connections with a running request or long poll; 64 more are reserved for probes and new "
        "clients.")
    http_requests_max: int = _number(64, "requests", 1, 65536,
        "HTTP requests running at the same time, without long polls; above it 503.")
    http_waiting_max: int = _number(256, "requests", 1, 65536,
        "Long polls of the log and live feeds of groups at the same time; above it 429.")
    http_leases_max: int = _number(64, "leases", 1, 65536,
        "Leases that are open over HTTP at the same time, each with a connection, and members that leave; "
        "above it 429.")

    # The scratch log.
    scratch_log_enable: bool = _row(False,
        "Whether topics take messages: in the memory of one node, NOT DURABLE, for tests of clients "
        "(operations.md). On by default in `quorate up` and `quorate demo`.")
    scratch_log_max_bytes: int = _number(256 * MIB, "bytes", 1 * MIB, 65536 * MIB,
        "Memory for the messages of all partitions; above it the oldest batches are dropped.")
    scratch_log_partition_max_bytes: int = _number(64 * MIB, "bytes", 1 * MIB, 65536 * MIB,
        "The same for each partition, so that a busy one leaves room for others.")
    scratch_log_request_max_bytes: int = _number(8 * MIB, "bytes", 1024, 256 * MIB,
        "Largest Produce request; producers send at most 1 MiB to a node at once by default. Others have "
        "socket.request.max.bytes.")
    message_max_bytes: int = _number(1_048_588, "bytes", 1024, 256 * MIB,
        "Kafka's default; the largest record batch of the scratch log.")
    auto_create_topics_enable: bool = _row(True,
        "Kafka's default: a topic is created when a client asks for it by name and allows that, because "
        "scripts written for Kafka rely on it; with num.partitions. Only with scratch.log.enable: without "
        "messages, a new topic would hide a wrong name.")

    # Groups.
    group_coordinator_rebalance_protocols: tuple[str, ...] = _row(("classic", "consumer"),
        "Protocols of groups that are served. Without classic, which is the default of most clients, its "
        "APIs are not advertised. Consumer cannot be left out.")
    group_initial_rebalance_delay_ms: int = _number(100, "ms", 0, INT32_MAX,
        "How long a classic group without members waits for more of them, again after each wait in which one "
        "came. Clients that start together come within that time; without it the first would begin alone and "
        "the others wait for its next heartbeat, 3 s by default. With 0, a client that comes alone joins at "
        "once, and the first of several that asked this node for the coordinator within 25 ms of each other "
        "waits for 100 ms. Kafka's 3,000 delays every start.")
    group_min_session_timeout_ms: int = _number(6_000, "ms", 1, INT32_MAX,
        "Kafka's default; a classic member that asks for a shorter one is refused.")
    group_max_session_timeout_ms: int = _number(1_800_000, "ms", 1, INT32_MAX,
        "Kafka's default; a classic member that asks for a longer one is refused.")
    group_max_size: int = _number(2_500, "members", 1, INT32_MAX,
        "Members of one classic group. Kafka sets no limit; but a generation is one record, and thus one "
        "turn of the event loop: 37 ms with 2,500 members.")
    group_consumer_migration_policy: str = _row("bidirectional",
        "Kafka's default: a classic group with members moves to the consumer protocol with the first member "
        "that speaks it, and back with the last. Or upgrade, downgrade (one way only), disabled.")
    group_consumer_session_timeout_ms: int = _number(45_000, "ms", 1, INT32_MAX,
        "Kafka's default; a member without a heartbeat for this long loses its partitions.")
    group_consumer_min_session_timeout_ms: int = _number(1_000, "ms", 1, INT32_MAX,
        "Lower bound of the session timeout; Kafka's 45,000 prevents quick detection even where it is "
        "wanted.")
    group_consumer_max_session_timeout_ms: int = _number(1_800_000, "ms", 1, INT32_MAX,
        "Upper bound of the session timeout, as in Kafka's classic protocol.")
    group_consumer_heartbeat_interval_ms: int = _number(1_000, "ms", 1, INT32_MAX,
        "Initial adaptive interval; a fifth of Kafka's 5,000. Clients use it as their request timeout.")
    group_consumer_min_heartbeat_interval_ms: int = _number(500, "ms", 1, INT32_MAX,
        "Lower bound of the interval; requests time out on a busy machine if it is shorter.")
    group_consumer_max_heartbeat_interval_ms: int = _number(15_000, "ms", 1, INT32_MAX, "Kafka's.")
    group_consumer_heartbeat_interval_adaptive: bool = _row(True,
        "Whether the node adapts the interval to its load, see below; false: always the interval above.")
    group_consumer_assignment_interval_ms: int = _number(0, "ms", 0, INT32_MAX,
        "Kafka's 1,000 delays every rebalance; here a group waits in proportion to the cost of its last "
        "target.")
    group_consumer_min_assignment_interval_ms: int = _number(0, "ms", 0, INT32_MAX, "Kafka's.")
    group_consumer_max_assignment_interval_ms: int = _number(15_000, "ms", 0, INT32_MAX, "Kafka's.")
    groups_configured_max: int = _number(10_000, "groups", 1, INT32_MAX,
        "Groups with configs of their own, which every node holds in memory.")
    group_consumer_max_size: int = _number(10_000, "members", 1, INT32_MAX,
        "Members of one group; larger targets would stall the node.")
    group_consumer_assignors: tuple[str, ...] = _row(("uniform", "range"),
        "Kafka's default; the first is used if no member names one. More can be installed (assignors.md).")
    group_consumer_assignor_timeout_ms: int = _number(10_000, "ms", 100, 60_000,
        "An assignor that takes longer is considered hung and is stopped; the old target stays.")
    group_consumer_assignor_memory_max_bytes: int = _number(1024 * MIB, "bytes", 256 * MIB, 64 * 1024 * MIB,
        "Address space of an assignor's process, ten times what the largest group needs.")
    group_consumer_regex_refresh_interval_ms: int = _number(600_000, "ms", 10_000, INT32_MAX,
        "Kafka's default; how often expressions are matched again against all topics. New topics are "
        "matched at once.")
    transaction_max_timeout_ms: int = _number(900_000, "ms", 1, INT32_MAX,
        "Kafka's default; the longest transaction.timeout.ms of a producer, after which its transaction is "
        "aborted.")
    transactional_id_expiration_ms: int = _number(604_800_000, "ms", 1, INT64_MAX,
        "Kafka's default, a week; a transactional id that was not used for so long is forgotten.")
    offset_metadata_max_bytes: int = _number(4_096, "bytes", 0, 16 * MIB,
        "Kafka's default; largest metadata of one committed offset.")
    offsets_retention_minutes: int = _number(10_080, "minutes", 1, INT32_MAX,
        "Kafka's default, a week after the commit; for topics to which no member of the group is subscribed.")
    offsets_retention_check_interval_ms: int = _number(600_000, "ms", 1, INT32_MAX,
        "Kafka's default; shortest time between two expiry checks of a group, and how long an empty group "
        "without offsets stays.")
    groups_max: int = _number(100_000, "groups", 1, INT32_MAX,
        "Groups per shard; a client that invents group ids must not fill memory.")
    topics_per_member_max: int = _number(10_000, "topics", 1, 1_000_000,
        "Topics in one subscription, which is one record and must stay well below the size of a frame.")
    topics_max: int = _number(100_000, "topics", 1, INT32_MAX, "Topics in the catalog, which every node "
                                                               "holds in memory.")
    partitions_per_topic_max: int = _number(100_000, "partitions", 1, 10_000_000,
        "Partitions of one topic; a target assignment names every partition.")
    num_partitions: int = _number(1, "partitions", 1, 100_000, "Kafka's default; partitions of a topic "
                                                               "created without a partition count.")

    # Older group protocols (docs/generations.md).
    lineage_push_port: int = _number(-1, "", -1, 65535,
        "Port of the push protocol, Kafka's first design of a coordinator, on kafka.host; 0: any free port; "
        "-1: off, and nothing of it is loaded.")
    lineage_rewrite_port: int = _number(-1, "", -1, 65535,
        "Port of the protocol of Kafka's consumer rewrite design, on kafka.host; 0: any free port; -1: off, "
        "and nothing of it is loaded.")
    lineage_rewrite_variant: str = _row("design",
        "Whose rules the rewrite's coordinator follows: design, or thread, the comment under it.")
    lineage_rewrite_max_session_timeout_ms: int = _number(30_000, "ms", 1, INT32_MAX,
        "The rewrite design's max.session.timeout: a consumer that asks for a longer session is refused. The "
        "design names no default; this is that of Kafka 0.9.")
    lineage_rewrite_partition_assignment_strategies: tuple[str, ...] = _row(REWRITE_STRATEGIES,
        "The rewrite design's partition.assignment.strategies: the names that its consumers may ask for. "
        "Others are uniform and the names of installed assignors (assignors.md).")

    # Limits on work that is not durable yet.
    runtime_uncommitted_bytes_max: int = _number(64 * MIB, "bytes", 1 * MIB, 4096 * MIB,
        "Bytes per shard that are appended and not committed; above it requests are refused with a "
        "retriable error.")
    runtime_held_replies_max: int = _number(100_000, "replies", 100, 10_000_000,
        "Replies per shard that wait for the disk; above it requests are refused.")

    # The log.
    log_segment_bytes: int = _number(64 * MIB, "bytes", 4096, 2048 * MIB,
        "Size of a segment, the unit of sealing, snapshots and archiving.")
    snapshot_tail_records: int = _number(200_000, "records", 1_000, 1_000_000_000,
        "Records after a snapshot until the next one is made; bounds the time of a restart.")
    delete_retention_ms: int = _number(86_400_000, "ms", 0, INT64_MAX,
        "Kafka's default; how long snapshots keep a deletion. A clock jump only makes it longer.")
    log_archive_snapshots: int = _number(16, "snapshots", 0, 1_000,
        "Earlier snapshots kept per shard, evenly spread; a question about the past starts at the nearest "
        "one.")
    log_archive_retention_ms: int = _number(-1, "ms", -1, INT64_MAX,
        "How long archived segments are kept; −1: forever, because history is the product.")
    log_archive_retention_bytes: int = _number(-1, "bytes", -1, INT64_MAX,
        "Bytes of archived segments kept per shard, the oldest are removed first; −1: no limit.")
    log_archive_url: str = _row("",
        "A place in an object store (s3://bucket/path, gs://, abfs://, hdfs://, file:///) to which the node "
        "ships its sealed segments, under node-N; empty: none. Needs pyarrow.")
    # fmt: on

    @property
    def serves_classic(self) -> bool:
        """Whether groups of the classic protocol are served."""
        return "classic" in self.group_coordinator_rebalance_protocols

    @property
    def serves_lineage(self) -> bool:
        """Whether an older group protocol is served."""
        return max(self.lineage_push_port, self.lineage_rewrite_port) >= 0

    def limits(self) -> Limits:
        """Return the bounds of a shard, for the coordinator."""
        return Limits(
            groups_max=self.groups_max,
            serves_classic=self.serves_classic,
            classic_initial_delay_ms=self.group_initial_rebalance_delay_ms,
            classic_session_timeout_min_ms=self.group_min_session_timeout_ms,
            classic_session_timeout_max_ms=self.group_max_session_timeout_ms,
            classic_group_size_max=self.group_max_size,
            migration_policy=self.group_consumer_migration_policy,
            transaction_timeout_max_ms=self.transaction_max_timeout_ms,
            transactional_id_expiration_ms=self.transactional_id_expiration_ms,
            topics_per_member_max=self.topics_per_member_max,
            topics_max=self.topics_max,
            partitions_per_topic_max=self.partitions_per_topic_max,
            num_partitions_default=self.num_partitions,
            configured_groups_max=self.groups_configured_max,
            assign_deadline_ms=self.group_consumer_assignor_timeout_ms,
            assign_memory_bytes_max=self.group_consumer_assignor_memory_max_bytes,
        )

    def group_settings(self) -> GroupSettings:
        """Return the settings of a group that has none of its own, for the coordinator."""
        return GroupSettings(
            session_timeout_ms=self.group_consumer_session_timeout_ms,
            session_timeout_min_ms=self.group_consumer_min_session_timeout_ms,
            session_timeout_max_ms=self.group_consumer_max_session_timeout_ms,
            heartbeat_interval_ms=self.group_consumer_heartbeat_interval_ms,
            heartbeat_interval_min_ms=self.group_consumer_min_heartbeat_interval_ms,
            heartbeat_interval_max_ms=self.group_consumer_max_heartbeat_interval_ms,
            assignment_interval_ms=self.group_consumer_assignment_interval_ms,
            assignment_interval_min_ms=self.group_consumer_min_assignment_interval_ms,
            assignment_interval_max_ms=self.group_consumer_max_assignment_interval_ms,
            assignors=self.group_consumer_assignors,
            rack_assignors=self._rack_assignors(),
            max_size=self.group_consumer_max_size,
            regex_refresh_interval_ms=self.group_consumer_regex_refresh_interval_ms,
            offset_metadata_max_bytes=self.offset_metadata_max_bytes,
            offsets_retention_ms=self.offsets_retention_minutes * MINUTE_MS,
            offsets_retention_check_interval_ms=self.offsets_retention_check_interval_ms,
        )

    def _rack_assignors(self) -> frozenset[str]:
        others = set(self.group_consumer_assignors) - {assignor.name for assignor in BUILT_IN}
        if not others:
            return frozenset()
        from cluster.assignors import asking_for_racks  # slow to import, and rarely needed

        return asking_for_racks() & others

    def log_settings(self) -> LogSettings:
        """Return the settings of every shard's log on this node."""
        return LogSettings(
            segment_bytes=self.log_segment_bytes,
            snapshot_tail_records=self.snapshot_tail_records,
            delete_retention_ms=self.delete_retention_ms,
            snapshots_kept=self.log_archive_snapshots,
            log_archive_retention_bytes=self.log_archive_retention_bytes,
            log_archive_retention_ms=self.log_archive_retention_ms,
            log_archive_url=self.log_archive_url,
            uncommitted_bytes_max=self.runtime_uncommitted_bytes_max,
            raft_min_timeout_ms=self.raft_min_timeout_ms,
            raft_max_timeout_ms=self.raft_max_timeout_ms,
            raft_heartbeat_ms=self.raft_heartbeat_ms,
            leader_balance_delay_ms=self.leader_balance_delay_ms,
        )

    def peer_settings(self) -> PeerSettings | None:
        """Return the settings of the links to the other nodes; None for a cluster of one."""
        nodes = parse_nodes(self.cluster_nodes)
        if len(nodes) <= 1:
            return None
        own = next(node for node in nodes if node.node_id == self.node_id)
        tls = None
        if self.peer_tls_cert_file:
            tls = TlsSettings(
                cert_file=self.peer_tls_cert_file,
                key_file=self.peer_tls_key_file,
                ca_file=self.peer_tls_ca_file,
            )
        return PeerSettings(
            nodes=nodes,
            bind_host=self.peer_host or own.host,
            bind_port=self.peer_port or own.port,
            secret_file=self.cluster_secret_file,
            tls=tls,
        )

    def __post_init__(self) -> None:
        for setting in table():
            _check_range(setting, getattr(self, setting.attribute))
        _check_together(self)


def _check_range(setting: Setting, value: Value) -> None:
    if type(value) is not type(setting.default):
        raise SettingsError(f"{setting.name} must be {type(setting.default).__name__}, not {value!r}")
    if setting.low is None or setting.high is None or not isinstance(value, int):
        return
    if not setting.low <= value <= setting.high:
        given = f"{setting.name} = {value}{f' {setting.unit}' if setting.unit else ''}"
        raise SettingsError(f"{given} is outside {setting.low} to {setting.high} (default {setting.default})")


def _check_together(settings: Settings) -> None:
    _check_ordered(settings, "session_timeout_ms")
    _check_ordered(settings, "heartbeat_interval_ms")
    _check_ordered(settings, "assignment_interval_ms")
    if settings.group_consumer_heartbeat_interval_ms >= settings.group_consumer_session_timeout_ms:
        raise SettingsError(
            f"group.consumer.heartbeat.interval.ms = {settings.group_consumer_heartbeat_interval_ms} must be "
            f"below group.consumer.session.timeout.ms = {settings.group_consumer_session_timeout_ms}: "
            "every member would expire between two heartbeats"
        )
    assignors = [assignor.name for assignor in BUILT_IN]
    _check_installed(settings, "group.consumer.assignors", "assignor", assignors)
    strategies = "lineage.rewrite.partition.assignment.strategies"
    _check_installed(settings, strategies, "strategy", [*dict.fromkeys([*REWRITE_STRATEGIES, *assignors])])
    if settings.num_partitions > settings.partitions_per_topic_max:
        raise SettingsError(
            f"num.partitions = {settings.num_partitions} must not exceed partitions.per.topic.max = "
            f"{settings.partitions_per_topic_max}"
        )
    if not settings.data_dir:
        raise SettingsError("data.dir must not be empty: set it to the node's directory")
    if settings.connection_buffered_pause_bytes > settings.connection_buffered_max_bytes:
        raise SettingsError("connection.buffered.pause.bytes must not exceed connection.buffered.max.bytes")
    if settings.log_archive_url:
        try:
            check_place(settings.log_archive_url)
        except UnknownStore as unknown:
            raise SettingsError(f"log.archive.url: {unknown}") from None
    _check_classic(settings)
    _check_scratch_log(settings)
    _check_lineage(settings)
    if settings.group_consumer_migration_policy not in list(MigrationPolicy):
        raise SettingsError(
            f"group.consumer.migration.policy = {settings.group_consumer_migration_policy!r} must be one of "
            f"{', '.join(MigrationPolicy)}"
        )
    if settings.log_level not in ("debug", "info", "warning", "error"):
        raise SettingsError(f"log.level = {settings.log_level!r} must be debug, info, warning or error")
    if settings.log_format not in FORMATS:
        raise SettingsError(f"log.format = {settings.log_format!r} must be {' or '.join(FORMATS)}")
    _check_addresses(settings)
    _check_peers(settings)
    _check_raft(settings)


def _check_installed(settings: Settings, name: str, kind: str, known: Sequence[str]) -> None:
    """Check names that are built in or those of installed assignors."""
    names = getattr(settings, name.replace(".", "_"))
    if not names or len(set(names)) != len(names):
        raise SettingsError(f"{name} = {list(names)} must contain at least one {kind} and no duplicates")
    if unknown := [one for one in names if one not in known]:
        from cluster.assignors import problem_with  # slow to import, and rarely needed

        if problem := problem_with(unknown):
            raise SettingsError(
                f"{name} contains {unknown[0]!r}, which is unknown; known names are {', '.join(known)}. "
                f"{problem}"
            )


def _check_classic(settings: Settings) -> None:
    protocols = settings.group_coordinator_rebalance_protocols
    if "consumer" not in protocols or not set(protocols) <= {"classic", "consumer"}:
        raise SettingsError(
            f"group.coordinator.rebalance.protocols = {list(protocols)} must be classic,consumer, or "
            "consumer alone"
        )
    shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if shortest > longest:
        raise SettingsError(
            f"group.min.session.timeout.ms = {shortest} must not exceed "
            f"group.max.session.timeout.ms = {longest}"
        )


def _check_scratch_log(settings: Settings) -> None:
    sizes = (
        ("message_max_bytes", settings.message_max_bytes),
        ("scratch_log_partition_max_bytes", settings.scratch_log_partition_max_bytes),
        ("scratch_log_max_bytes", settings.scratch_log_max_bytes),
    )
    for (name, size), (larger_name, larger) in itertools.pairwise(sizes):
        if size > larger:
            raise SettingsError(
                f"{name.replace('_', '.')} = {size} must not exceed "
                f"{larger_name.replace('_', '.')} = {larger}"
            )


PUSH_NODE_ID_MAX = 32_767
"""The push protocol names the coordinator by an int16."""


def _check_lineage(settings: Settings) -> None:
    if settings.lineage_push_port >= 0 and settings.node_id > PUSH_NODE_ID_MAX:
        raise SettingsError(
            f"node.id = {settings.node_id} does not fit the push protocol, whose coordinator_id is an int16: "
            f"give the node an id from 0 to {PUSH_NODE_ID_MAX}, or leave lineage.push.port at -1"
        )
    if settings.lineage_rewrite_variant not in ("design", "thread"):
        raise SettingsError(
            f"lineage.rewrite.variant = {settings.lineage_rewrite_variant!r} must be design or thread"
        )


def _check_peers(settings: Settings) -> None:
    try:
        nodes = parse_nodes(settings.cluster_nodes)
    except NodesError as error:
        raise SettingsError(f"cluster.nodes {error}") from None
    if nodes and settings.node_id not in [node.node_id for node in nodes]:
        raise SettingsError(
            f"cluster.nodes names nodes {', '.join(str(node.node_id) for node in nodes)}, but not this one: "
            f"node.id = {settings.node_id}"
        )
    files = (settings.peer_tls_cert_file, settings.peer_tls_key_file, settings.peer_tls_ca_file)
    if any(files) and not all(files):
        raise SettingsError(
            "peer.tls.cert.file, peer.tls.key.file and peer.tls.ca.file go together: give all three"
        )
    peers = settings.peer_settings()
    if peers is None:
        return
    if not peers.secret_file:
        raise SettingsError("cluster.secret.file must be set: nodes authenticate each other with it")
    beyond = [host for host in (peers.bind_host, *(node.host for node in nodes)) if not is_loopback(host)]
    if beyond and peers.tls is None and not settings.insecure:
        raise SettingsError(
            f"cluster.nodes would send the log to and from {beyond[0]} unencrypted; set peer.tls.*, use "
            "127.0.0.1, or set insecure = true (--insecure) if this is intended"
        )


def _check_raft(settings: Settings) -> None:
    if settings.raft_max_timeout_ms < settings.raft_min_timeout_ms * 3 // 2:
        raise SettingsError(
            f"raft.max.timeout.ms = {settings.raft_max_timeout_ms} must be at least 1.5 times "
            f"raft.min.timeout.ms = {settings.raft_min_timeout_ms}: otherwise two nodes campaign at once"
        )
    if settings.raft_heartbeat_ms > settings.raft_min_timeout_ms // 3:
        raise SettingsError(
            f"raft.heartbeat.ms = {settings.raft_heartbeat_ms} must be at most a third of "
            f"raft.min.timeout.ms = {settings.raft_min_timeout_ms}: one late heartbeat would depose a leader"
        )


def _check_addresses(settings: Settings) -> None:
    for name in ("kafka", "http"):
        bound = getattr(settings, f"{name}_host")
        if not settings.insecure and not is_loopback(bound):
            raise SettingsError(
                f"{name}.host = {bound!r} can be reached from other machines, without TLS or authentication; "
                "use 127.0.0.1, or set insecure = true (--insecure) if this is intended"
            )
        if not bound:
            raise SettingsError(f"{name}.host must not be empty: use 127.0.0.1, or 0.0.0.0 for all addresses")
    if settings.kafka_host in EVERY_ADDRESS and not settings.kafka_advertised_host:
        raise SettingsError(
            f"kafka.host = {settings.kafka_host!r} is not an address that clients can connect to: set "
            "kafka.advertised.host"
        )


def _check_ordered(settings: Settings, what: str) -> None:
    low = getattr(settings, f"group_consumer_min_{what}")
    value = getattr(settings, f"group_consumer_{what}")
    high = getattr(settings, f"group_consumer_max_{what}")
    if not low <= value <= high:
        dotted = what.replace("_", ".")
        raise SettingsError(
            f"group.consumer.{dotted} = {value} is outside group.consumer.min.{dotted} = {low} "
            f"to group.consumer.max.{dotted} = {high}"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. Names other than localhost are taken as reachable."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@functools.cache
def table() -> tuple[Setting, ...]:
    """Return all settings in the order in which they are documented."""
    return tuple(
        Setting(name=field.name.replace("_", "."), default=cast(Value, field.default), **field.metadata)
        for field in dataclasses.fields(Settings)
    )
