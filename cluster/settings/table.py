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
from dataclasses import dataclass
from typing import Any, cast

from cluster.settings.nodes import NodesError, parse_nodes
from coordinator.assignors import BUILT_IN
from coordinator.limits import GroupSettings, Limits
from raftlog.env.host import TlsSettings
from raftlog.env.settings import LogSettings
from raftlog.transport import PeerSettings

Value = int | bool | str | tuple[str, ...]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MIB = 1 << 20
MINUTE_MS = 60_000
EVERY_ADDRESS = ("0.0.0.0", "::")


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
    node_id: int = _number(1, "", 0, INT32_MAX, "Named in Metadata and in every term's first record.")
    data_dir: str = _row("quorate-data", "The node's directory, made by an explicit format.")
    cluster_shards: int = _number(4, "shards", 1, 1024,
        "Group shards, fixed when the directory is formatted: enough to spread leaders over three nodes.")
    insecure: bool = _row(False,
        "Allows listening beyond this machine without TLS and authentication; logged at each start.")
    log_level: str = _row("info", "debug, info, warning or error.")

    # Listeners.
    kafka_host: str = _row("127.0.0.1", "Loopback, as there is no authentication yet.")
    kafka_port: int = _port(9092, "Kafka's port; 0 takes any free one.")
    kafka_advertised_host: str = _row("", "What clients are told to connect to; empty: the bound host.")
    kafka_advertised_port: int = _port(0, "What clients are told to connect to; 0: the bound port.")
    http_host: str = _row("127.0.0.1", "Loopback, as there is no authentication yet.")
    http_port: int = _port(8092, "Beside the Kafka port in its thousand; 0 takes any free one.")
    http_advertised_host: str = _row("", "Shown by /v1/cluster; empty: the bound host.")
    http_advertised_port: int = _port(0, "Shown by /v1/cluster; 0: the bound port.")
    http_allowed_hosts: tuple[str, ...] = _row((),
        "More names to be asked by over HTTP, as a load balancer's; addresses need none. `*`: any name.")

    # The other nodes.
    cluster_nodes: tuple[str, ...] = _row((),
        "ID@HOST:PORT of every node's listener for peers, this one's too; empty: a cluster of one.")
    cluster_secret_file: str = _row("",
        "At least 16 bytes that all nodes share and nobody else can read; needed by more than one node.",
        is_sensitive=True)
    peer_host: str = _row("", "Where to listen for peers; empty: as this node's entry in cluster.nodes.")
    peer_port: int = _port(0, "Where to listen for peers; 0: as this node's entry in cluster.nodes.")
    peer_tls_cert_file: str = _row("", "PEM: this node's certificate for its peers; empty: no TLS.")
    peer_tls_key_file: str = _row("", "PEM: the certificate's key.", is_sensitive=True)
    peer_tls_ca_file: str = _row("", "PEM: the authority that signed the certificates of all nodes.")
    raft_min_timeout_ms: int = _number(300, "ms", 100, 60_000,
        "Without a leader for this long a node campaigns; several missed heartbeats.")
    raft_max_timeout_ms: int = _number(600, "ms", 150, 120_000,
        "Spread, so that two nodes rarely campaign at once.")
    raft_heartbeat_ms: int = _number(50, "ms", 10, 20_000,
        "A leader that has nothing to say says so; at most a third of the timeout.")
    leader_balance_delay_ms: int = _number(10_000, "ms", 0, INT32_MAX,
        "How long a node is back before it leads its shards again: it may not stay.")

    # Limits on what clients may use of the node.
    max_connections: int = _number(4096, "connections", 1, 1_000_000,
        "2–3 per consumer; beyond it one that asks nothing makes room, or the new one is closed.")
    connections_max_idle_ms: int = _number(600_000, "ms", 100, INT32_MAX,
        "Kafka's: frees half-open and forgotten connections.")
    socket_request_max_bytes: int = _number(1 * MIB, "bytes", 1024, 256 * MIB,
        "Largest frame: a commit of 30,000 partitions. A hostile one decodes to 40,000 objects, in 25 ms.")
    connection_requests_max: int = _number(512, "requests", 1, 65536,
        "Requests in flight on one connection; reading stops until replies have gone.")
    connection_buffered_pause_bytes: int = _number(1 * MIB, "bytes", 1024, 1024 * MIB,
        "Requests without an answer, or replies that are not read, before a connection is read no more.")
    connection_buffered_max_bytes: int = _number(64 * MIB, "bytes", 65536, 1024 * MIB,
        "All that is kept for a connection before it is closed; an OffsetFetch of a million partitions fits.")
    listener_buffered_max_bytes: int = _number(512 * MIB, "bytes", 1 * MIB, 65536 * MIB,
        "The same over all connections; whoever makes the node keep most is closed, until an eighth is free.")
    fetch_waiting_max: int = _number(20_000, "requests", 0, 1_000_000,
        "Empty fetches that wait at once; beyond it, or with too many bytes of replies, they do not wait.")
    fetch_wait_max_ms: int = _number(30_000, "ms", 1, 600_000,
        "Longest wait of one empty fetch, whatever it asks for.")
    held_reply_timeout_ms: int = _number(5_000, "ms", 100, 600_000,
        "Kafka's offsets.commit.timeout.ms: a reply not durable by then is COORDINATOR_NOT_AVAILABLE.")
    http_body_max_bytes: int = _number(1 * MIB, "bytes", 1024, 64 * MIB,
        "Requests are small; answers are not bounded by it.")
    http_connections_max: int = _number(256, "connections", 1, 65536,
        "Held by requests at work and long polls; 64 more are kept for probes and newcomers.")
    http_requests_max: int = _number(64, "requests", 1, 65536,
        "HTTP requests at work at once, long polls aside; beyond it 503.")
    http_waiting_max: int = _number(256, "requests", 1, 65536,
        "Long polls of the log at once; beyond it 429.")

    # Groups.
    group_consumer_session_timeout_ms: int = _number(45_000, "ms", 1, INT32_MAX,
        "Kafka's: a client may be silent that long before its partitions go to others.")
    group_consumer_min_session_timeout_ms: int = _number(1_000, "ms", 1, INT32_MAX,
        "Kafka's 45,000 forbids quick detection even where it is wanted.")
    group_consumer_max_session_timeout_ms: int = _number(1_800_000, "ms", 1, INT32_MAX,
        "Kafka's bound of the classic protocol.")
    group_consumer_heartbeat_interval_ms: int = _number(1_000, "ms", 1, INT32_MAX,
        "Where the adaptive interval begins; a fifth of Kafka's 5,000. Clients use it as request timeout.")
    group_consumer_min_heartbeat_interval_ms: int = _number(500, "ms", 1, INT32_MAX,
        "Shorter ones time out on a busy machine.")
    group_consumer_max_heartbeat_interval_ms: int = _number(15_000, "ms", 1, INT32_MAX, "Kafka's.")
    group_consumer_heartbeat_interval_adaptive: bool = _row(True,
        "The node chooses the interval by its load, see below; false: always the one above.")
    group_consumer_assignment_interval_ms: int = _number(0, "ms", 0, INT32_MAX,
        "Kafka's 1,000 delays every rebalance; here a group waits by what its last target cost.")
    group_consumer_min_assignment_interval_ms: int = _number(0, "ms", 0, INT32_MAX, "Kafka's.")
    group_consumer_max_assignment_interval_ms: int = _number(15_000, "ms", 0, INT32_MAX, "Kafka's.")
    groups_configured_max: int = _number(10_000, "groups", 1, INT32_MAX,
        "Groups with configs of their own; every node holds them all.")
    group_consumer_max_size: int = _number(10_000, "members", 1, INT32_MAX,
        "Members of one group; computing a target must not stall the node.")
    group_consumer_assignors: tuple[str, ...] = _row(("uniform", "range"),
        "Kafka's; the first is used when a member names none. Others are installed (assignors.md).")
    group_consumer_assignor_timeout_ms: int = _number(10_000, "ms", 100, 60_000,
        "An assignor that takes longer hangs; it is stopped, and the old target stays.")
    group_consumer_assignor_memory_max_bytes: int = _number(1024 * MIB, "bytes", 256 * MIB, 64 * 1024 * MIB,
        "Address space of an assignor's process: ten times what the largest group takes.")
    group_consumer_regex_refresh_interval_ms: int = _number(600_000, "ms", 10_000, INT32_MAX,
        "Kafka's: how often expressions are matched against all topics anew; new topics are matched at once.")
    offset_metadata_max_bytes: int = _number(4_096, "bytes", 0, 16 * MIB,
        "Kafka's: metadata of one committed offset.")
    offsets_retention_minutes: int = _number(10_080, "minutes", 1, INT32_MAX,
        "Kafka's: a week after the commit, for topics that nobody in the group subscribes to.")
    offsets_retention_check_interval_ms: int = _number(600_000, "ms", 1, INT32_MAX,
        "Kafka's: an empty group without offsets stays as long, and no group is searched more often.")
    groups_max: int = _number(100_000, "groups", 1, INT32_MAX,
        "Per shard: a client that invents group ids must not fill memory.")
    topics_per_member_max: int = _number(10_000, "topics", 1, 1_000_000,
        "A subscription is one record, well below a frame.")
    topics_max: int = _number(100_000, "topics", 1, INT32_MAX, "Every node holds the catalog in memory.")
    partitions_per_topic_max: int = _number(100_000, "partitions", 1, 10_000_000,
        "A target assignment names every partition.")
    num_partitions: int = _number(1, "partitions", 1, 100_000, "Kafka's: of a topic created without a count.")

    # Limits on work that is not durable yet.
    runtime_uncommitted_bytes_max: int = _number(64 * MIB, "bytes", 1 * MIB, 4096 * MIB,
        "Per shard, appended and not committed: beyond it requests are refused, retriably.")
    runtime_held_replies_max: int = _number(100_000, "replies", 100, 10_000_000,
        "Per shard: replies that wait for the disk; beyond it refused.")

    # The log.
    log_segment_bytes: int = _number(64 * MIB, "bytes", 4096, 2048 * MIB,
        "A segment is the unit of sealing, snapshot and archive.")
    snapshot_tail_records: int = _number(200_000, "records", 1_000, 1_000_000_000,
        "Records after the snapshot before a new one is made: bounds the time of a restart.")
    delete_retention_ms: int = _number(86_400_000, "ms", 0, INT64_MAX,
        "Kafka's: how long snapshots keep a deletion; a jump of clocks only makes it longer.")
    log_archive_snapshots: int = _number(16, "snapshots", 0, 1_000,
        "Earlier snapshots kept per shard, evenly spread: a look into the past starts at the nearest one.")
    log_archive_retention_ms: int = _number(-1, "ms", -1, INT64_MAX,
        "History is the product: −1 keeps archived segments for ever.")
    log_archive_retention_bytes: int = _number(-1, "bytes", -1, INT64_MAX,
        "Per shard, oldest first; −1 keeps archived segments for ever.")
    # fmt: on

    def limits(self) -> Limits:
        """Return the bounds of a shard, for the coordinator."""
        return Limits(
            groups_max=self.groups_max,
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
    assignors = settings.group_consumer_assignors
    if not assignors or len(set(assignors)) != len(assignors):
        raise SettingsError(f"group.consumer.assignors = {list(assignors)} must name at least one, each once")
    known = [assignor.name for assignor in BUILT_IN]
    if unknown := [name for name in assignors if name not in known]:
        from cluster.assignors import problem_with  # slow to import, and rarely needed

        if problem := problem_with(unknown):
            raise SettingsError(
                f"group.consumer.assignors names {unknown[0]!r}; there are {', '.join(known)}. {problem}"
            )
    if settings.num_partitions > settings.partitions_per_topic_max:
        raise SettingsError(
            f"num.partitions = {settings.num_partitions} must not exceed partitions.per.topic.max = "
            f"{settings.partitions_per_topic_max}"
        )
    if not settings.data_dir:
        raise SettingsError("data.dir must not be empty: name the directory that the node's log is in")
    if settings.connection_buffered_pause_bytes > settings.connection_buffered_max_bytes:
        raise SettingsError("connection.buffered.pause.bytes must not exceed connection.buffered.max.bytes")
    if settings.log_level not in ("debug", "info", "warning", "error"):
        raise SettingsError(f"log.level = {settings.log_level!r} must be debug, info, warning or error")
    _check_addresses(settings)
    _check_peers(settings)
    _check_raft(settings)


def _check_peers(settings: Settings) -> None:
    try:
        nodes = parse_nodes(settings.cluster_nodes)
    except NodesError as error:
        raise SettingsError(f"cluster.nodes {error}") from None
    if nodes and settings.node_id not in [node.node_id for node in nodes]:
        raise SettingsError(
            f"cluster.nodes names nodes {', '.join(str(node.node_id) for node in nodes)}, and not this one: "
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
        raise SettingsError(
            "cluster.secret.file must name a file: nodes prove to each other that they belong to the cluster"
        )
    beyond = [host for host in (peers.bind_host, *(node.host for node in nodes)) if not is_loopback(host)]
    if beyond and peers.tls is None and not settings.insecure:
        raise SettingsError(
            f"cluster.nodes would send the log to and from {beyond[0]} in the clear; set peer.tls.*, use "
            "127.0.0.1, or say insecure = true (--insecure) if that is meant"
        )


def _check_raft(settings: Settings) -> None:
    if settings.raft_max_timeout_ms < settings.raft_min_timeout_ms * 3 // 2:
        raise SettingsError(
            f"raft.max.timeout.ms = {settings.raft_max_timeout_ms} must be at least one and a half times "
            f"raft.min.timeout.ms = {settings.raft_min_timeout_ms}: else two campaign at once"
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
                "use 127.0.0.1, or say insecure = true (--insecure) if that is meant"
            )
        if not bound:
            raise SettingsError(f"{name}.host must not be empty: say 127.0.0.1, or 0.0.0.0 for every address")
    if settings.kafka_host in EVERY_ADDRESS and not settings.kafka_advertised_host:
        raise SettingsError(
            f"kafka.host = {settings.kafka_host!r} is no address that clients can connect to: name one in "
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
