"""The settings of a consumer, under Kafka's names with Kafka's defaults: one table, which the docs show.

The fields of `ConsumerSettings` are the table. Each has its default, what it accepts, the part of the client
that uses it, and a sentence. Kafka's name of a setting is its field's with dots for underscores;
`read_settings` takes both.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from client.core.errors import ConfigError
from client.core.setting_kinds import (
    ConsumerSetting,
    choice,
    flag,
    function,
    number,
    read_assignors,
    read_protocol,
    read_servers,
    reset,
    row,
    text,
)

RESETS: Final = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest",
                 "error": "none"}  # fmt: skip
"""librdkafka's further words for auto.offset.reset."""

OTHER_NAMES: Final = {
    # librdkafka's
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "oauth.cb": "sasl.oauthbearer.token.callback",
    # aiokafka's and kafka-python's
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "ssl.cafile": "ssl.ca.location",
    "ssl.certfile": "ssl.certificate.location",
    "ssl.keyfile": "ssl.key.location",
    "ssl.password": "ssl.key.password",
}
"""Other clients' names of settings, which are taken too."""

ELSEWHERE: Final = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "ssl.truststore.location": "ssl.ca.location, a PEM file",
    "ssl.keystore.location": "ssl.certificate.location and ssl.key.location, PEM files",
    "ssl.endpoint.identification.algorithm": "ssl.check.hostname",
    "enable.ssl.certificate.verification": "ssl.context",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "enable.partition.eof": "position() and the end offset",
    "error.cb": "what poll() raises, or in a message's error()",
    "logger": "the logger quorate.consumer",
    "stats.cb": "explain() and the logger quorate.consumer",
    "statistics.interval.ms": "explain() and the logger quorate.consumer",
}
"""Our settings instead of those of other clients that are not taken."""

_COORDINATORS: Final = (
    "{0} is the coordinator's with the consumer group protocol: set the group's consumer.{0}"
)
REFUSED: Final = {
    "session.timeout.ms": _COORDINATORS.format("session.timeout.ms"),
    "heartbeat.interval.ms": _COORDINATORS.format("heartbeat.interval.ms"),
    "partition.assignment.strategy": "partition.assignment.strategy is the coordinator's with the consumer"
    " group protocol: name an assignor by group.remote.assignor, or bring your own by group.local.assignors",
}
"""Settings of the classic protocol, each with the sentence that refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Checked values, made by `read_settings`. Times are in ms."""

    bootstrap_servers: tuple[tuple[str, int], ...] = row(
        (),
        read_servers,
        "host:port,…",
        "network",
        "Some servers of the cluster; the others are learnt from these.",
    )
    client_id: str = text("quorate", "network", "The client's name in the logs and quotas of the brokers.")
    client_rack: str = text(
        "", "member, fetching", "The client's rack: replicas in it are read from (KIP-392)."
    )

    group_protocol: str = row(
        "consumer",
        read_protocol,
        "consumer",
        "member",
        "The group protocol; this client speaks KIP-848's only.",
    )
    group_id: str | None = text(
        None, "member, commits", "The group. Without one: assign() only, and no commits."
    )
    group_instance_id: str | None = text(
        None, "member", "The name of a static member, which keeps its partitions over a restart (KIP-345)."
    )
    group_remote_assignor: str | None = text(
        None, "member", "The coordinator's assignor for the group; without one, the coordinator's first."
    )
    group_local_assignors: tuple[Any, ...] = row(
        (),
        read_assignors,
        "objects",
        "member",
        "Assignors of your own, for servers that let members compute.",
    )
    max_poll_interval_ms: int = number(
        300_000,
        1,
        "member",
        "The time between two polls after which the member leaves; also its rebalance timeout.",
    )
    on_assign: Callable[..., Any] | None = function(
        "callbacks", "Called with the consumer and the partitions that it got. subscribe() can name another."
    )
    on_revoke: Callable[..., Any] | None = function(
        "callbacks", "Called before partitions are given up, so that their work can be finished."
    )
    on_lost: Callable[..., Any] | None = function(
        "callbacks", "Called when partitions were lost without warning; without one, on_revoke is called."
    )

    enable_auto_commit: bool = flag(
        True, "commits", "Whether positions are committed by poll(), at revocations, and by close()."
    )
    auto_commit_interval_ms: int = number(5_000, 0, "commits", "The time between two automatic commits.")
    enable_auto_offset_store: bool = flag(
        True, "commits", "false: automatic commits take what store_offsets() stored, not the positions."
    )
    auto_offset_reset: str = reset(
        "latest", "positions",
        "Where to begin without a committed offset; none: poll() raises NoOffset; by_duration:P1D: at the "
        "first record of the last day (KIP-1106).", **RESETS,
    )  # fmt: skip
    on_commit: Callable[..., Any] | None = function(
        "callbacks",
        "Called with the error (or None) and the partitions of every commit that nobody waits for.",
    )

    max_poll_records: int = number(500, 1, "application", "The most records that one poll() returns.")
    fetch_min_bytes: int = number(1, 0, "fetching", "A broker waits until it has this much.")
    fetch_max_bytes: int = number(
        52_428_800, 0, "fetching", "The most bytes of one answer, and of the buffer."
    )
    fetch_max_wait_ms: int = number(
        500, 0, "fetching", "The longest that a broker waits for fetch.min.bytes."
    )
    max_partition_fetch_bytes: int = number(
        1_048_576, 0, "fetching", "The most bytes of a partition's answer."
    )
    isolation_level: str = choice(
        "read_uncommitted", ("read_uncommitted", "read_committed"), "fetching",
        "read_committed: records of aborted transactions are left out, those of open ones wait.",
    )  # fmt: skip
    check_crcs: bool = flag(True, "fetching", "Whether checksums of record batches are checked.")
    key_deserializer: Callable[[bytes], Any] | None = function(
        "application", "Makes keys from bytes. A missing key stays None."
    )
    value_deserializer: Callable[[bytes], Any] | None = function(
        "application", "Makes values from bytes. A missing value stays None."
    )

    allow_auto_create_topics: bool = flag(
        True, "metadata", "Whether brokers may create topics that are asked for."
    )
    metadata_max_age_ms: int = number(300_000, 0, "metadata", "Metadata are asked for again after this long.")
    default_api_timeout_ms: int = number(
        60_000, 0, "application", "The time limit of calls that are given none."
    )
    request_timeout_ms: int = number(30_000, 1, "network", "The time limit of one request.")
    retry_backoff_ms: int = number(100, 0, "network", "The wait before a request is made again.")
    retry_backoff_max_ms: int = number(1_000, 0, "network", "The longest such wait; each is twice the last.")
    reconnect_backoff_ms: int = number(50, 0, "network", "The wait before a node is connected to again.")
    reconnect_backoff_max_ms: int = number(
        1_000, 0, "network", "The longest such wait; each is twice the last."
    )
    socket_connection_setup_timeout_ms: int = number(10_000, 1, "network", "The time limit of connecting.")
    socket_connection_setup_timeout_max_ms: int = number(
        30_000, 1, "network", "The longest such limit; each is twice the last (KIP-601)."
    )
    connections_max_idle_ms: int = number(540_000, -1, "network", "Idle connections are closed; -1: never.")

    security_protocol: str = choice(
        "PLAINTEXT",
        ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "security",
        "How brokers are spoken to.",
    )
    sasl_mechanism: str = choice(
        "", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"), "security", "The way to authenticate."
    )
    sasl_username: str = text("", "security", "The user of PLAIN and SCRAM.")
    sasl_password: str = text("", "security", "The password of PLAIN and SCRAM.", "secret text")
    sasl_oauthbearer_config: str = text("", "security", "Passed to the token callback as it is.")
    sasl_oauthbearer_token_callback: Callable[[str], Any] | None = function(
        "security", "Returns (token, end of its life in Unix seconds) for OAUTHBEARER, and does not wait."
    )
    ssl_ca_location: str | None = text(
        None, "security", "A PEM file of CA certificates; without one, the system's."
    )
    ssl_certificate_location: str | None = text(None, "security", "A PEM file with the client's certificate.")
    ssl_key_location: str | None = text(None, "security", "A PEM file with its private key.")
    ssl_key_password: str | None = text(None, "security", "The private key's password.", "secret text")
    ssl_check_hostname: bool = flag(True, "security", "Whether a certificate must name the host.")
    ssl_context: Any = row(
        None, lambda value: value, "an ssl.SSLContext", "security", "Used in place of all other ssl settings."
    )

    @property
    def reads_committed(self) -> bool:
        """Whether records of open and aborted transactions are withheld."""
        return self.isolation_level == "read_committed"

    @property
    def commits_automatically(self) -> bool:
        """Whether positions are committed without being asked: only a group has commits."""
        return self.enable_auto_commit and self.group_id is not None


def table() -> Iterator[tuple[str, Any, ConsumerSetting]]:
    """Return Kafka's name, the default and the row of each setting."""
    for each in fields(ConsumerSettings):
        yield each.name.replace("_", "."), each.default, each.metadata["row"]


def read_settings(*sources: Mapping[str, Any], fetches: bool = True) -> ConsumerSettings:
    """Check settings by their names, with dots or underscores. None stands for the default.

    Raises `ConfigError`, which names the setting and, for an unknown one, the nearest right one.
    Leases fetch nothing, so nothing is asked of the waits of their fetches."""
    rows = {name: row for name, _, row in table()}
    values: dict[str, Any] = {}
    for source in sources:
        for given, value in source.items():
            name = _known_name(str(given), rows)
            attribute = name.replace(".", "_")
            if attribute in values:
                raise ConfigError(f"{name} is set twice")
            if value is not None:
                values[attribute] = _read(name, rows[name], value)
    _check_together(values)
    settings = ConsumerSettings(**values)
    if fetches and settings.fetch_max_wait_ms >= settings.request_timeout_ms:
        raise ConfigError(
            f"fetch.max.wait.ms={settings.fetch_max_wait_ms} must be less than"
            f" request.timeout.ms={settings.request_timeout_ms}: a broker that waits for messages would"
            " lose its connection"
        )
    return settings


def _known_name(given: str, rows: Mapping[str, ConsumerSetting]) -> str:
    name = given.replace("_", ".")
    if name in REFUSED:
        raise ConfigError(REFUSED[name])
    name = OTHER_NAMES.get(name, name)
    if name in rows:
        return name
    if name in ELSEWHERE:
        raise ConfigError(f"there is no setting {given!r} here; use {ELSEWHERE[name]}")
    near = difflib.get_close_matches(name[:100], [*rows, *OTHER_NAMES], n=1)
    hint = f"; did you mean {OTHER_NAMES.get(near[0], near[0])}?" if near else ""
    raise ConfigError(f"there is no setting {given[:100]!r}{hint}")


def _read(name: str, row: ConsumerSetting, value: Any) -> Any:
    try:
        return row.read(value)
    except ValueError as error:
        shown = "(secret)" if "secret" in row.accepts else repr(value)[:100]
        raise ConfigError(f"{name}={shown} {error}") from None
    except TypeError:
        raise ConfigError(f"{name}={value!r} is not {row.accepts}") from None


def _check_together(values: Mapping[str, Any]) -> None:
    """Check what one setting asks of another."""
    if not values.get("bootstrap_servers"):
        raise ConfigError("bootstrap.servers is missing: name at least one host:port of the cluster")
    if values.get("enable_auto_commit") and "group_id" not in values:
        raise ConfigError("enable.auto.commit needs group.id: offsets are committed in a group")
    if values.get("group_remote_assignor") and values.get("group_local_assignors"):
        raise ConfigError(
            "group.remote.assignor and group.local.assignors exclude each other: set one of them"
        )
    mechanism = values.get("sasl_mechanism", "")
    uses_sasl = values.get("security_protocol", "").startswith("SASL")
    if uses_sasl != bool(mechanism):
        raise ConfigError("sasl.mechanism and a security.protocol that begins with SASL need each other")
    if mechanism == "OAUTHBEARER" and not values.get("sasl_oauthbearer_token_callback"):
        raise ConfigError("OAUTHBEARER needs sasl.oauthbearer.token.callback")
    if (
        mechanism
        and mechanism != "OAUTHBEARER"
        and not (values.get("sasl_username") and values.get("sasl_password"))
    ):
        raise ConfigError(f"{mechanism} needs sasl.username and sasl.password")
