"""The bounds of the coordinator and the settings of a group: name, default, unit and reason in one place.

Nothing here is read from a file or the environment: the layer above fills these dataclasses and passes them
in. Every bound is checked before the first record of a decision is written, so reaching one causes a refusal
with a Kafka error code and never a partial decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

DECISION_BYTES_MAX = 12 * 1024 * 1024
"""Maximum bytes of the records of one decision, which become one log entry. It is three quarters of an
entry's maximum (`raftlog.env.settings`, 16 MiB), so that the cause always fits. A commit of 100,000
partitions takes 9 MB."""

RECORD_HEADER_BYTES = 12
"""Bytes that an entry adds to each record's key and value."""


def bound(default: Any, unit: str, reason: str) -> Any:
    """Declare a dataclass field that carries its unit and the reason for its default."""
    return field(default=default, metadata={"unit": unit, "reason": reason})


class MigrationPolicy(StrEnum):
    """The groups with members that may change their protocol; a group without members always may."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds that apply to a whole shard, independent of group configs."""

    # fmt: off
    groups_max: int = bound(100_000, "groups per shard",
        "of all protocols; applies separately to groups with offsets alone; a client that invents "
        "group ids must not fill memory")
    group_id_bytes_max: int = bound(1_024, "bytes", "every record key of a group contains its id")
    member_id_bytes_max: int = bound(256, "bytes",
        "clients send 22 to 36 bytes; three record keys per member contain the id")
    topics_per_member_max: int = bound(10_000, "topics",
        "a subscription is one record, which must stay well below the size of a frame")
    subscription_bytes_max: int = bound(1_048_576, "bytes",
        "total of the topic names in one subscription, where a name may have any length")
    instance_id_bytes_max: int = bound(256, "bytes",
        "clients allow 249 characters; the member's record contains it")
    rack_id_bytes_max: int = bound(256, "bytes", "rack names are short; the member's record contains one")
    racks_per_partition_max: int = bound(16, "racks", "a partition has few replicas")
    group_racks_bytes_max: int = bound(4 << 20, "bytes",
        "total of the rack names in the record of a group's topics; above it the group is assigned "
        "without racks")
    client_assignors_max: int = bound(16, "assignors per member",
        "every target compares them with the assignors of all other members")
    client_assignor_name_bytes_max: int = bound(256, "bytes", "each member's record and reply contain it")
    client_metadata_bytes_max: int = bound(16_384, "bytes",
        "total for all assignors of a member, and for what an assignor sends to one member; it is "
        "written to records and held in memory on every node")
    client_members_max: int = bound(1_000, "members of a group with client-side assignors",
        "an installed target is written in one decision, at 20 µs a member; larger groups use the server "
        "assignor")
    client_partitions_max: int = bound(25_000, "partitions of such a group's topics",
        "an installed target is written in one decision, at 1 µs a partition for checking and writing")
    client_round_max_ms: int = bound(600_000, "ms",
        "total for all members asked to compute one target, twice the usual rebalance timeout of "
        "clients; then the server assignor computes it")
    prepare_bytes_max: int = bound(8_388_608, "bytes",
        "size of a prepare response to the member that computes the target; above it the server assignor "
        "computes it")
    target_bytes_max: int = bound(4_194_304, "bytes",
        "size of one target's records; the same entry also holds what a member owns")
    expiries_max: int = bound(500, "members",
        "expired members removed in one decision, which takes about 20 ms of the event loop")
    removal_bytes_max: int = bound(2_097_152, "bytes",
        "offset records removed in one decision: about 7,000, which take about 10 ms of the event loop")
    offsets_deleted_max: int = bound(50_000, "partitions",
        "partitions named by one OffsetDelete request, which takes at most about 50 ms of the event loop")
    members_named_max: int = bound(10_000, "members",
        "members named by one LeaveGroup request, known or not, which takes about 20 ms of the event loop")
    expiry_slice_max: int = bound(500, "offsets",
        "offsets checked for expiry in one slice, which takes about 3 ms of the event loop")
    expiry_pause_ms: int = bound(10, "ms",
        "pause between two slices of the expiry check; no request waits for it")
    topics_max: int = bound(100_000, "topics", "every node holds the catalog in memory")
    partitions_per_topic_max: int = bound(100_000, "partitions", "a target assignment names every partition")
    partitions_max: int = bound(500_000, "partitions of all topics",
        "one member may own all of them, and its assignment is one record")
    num_partitions_default: int = bound(1, "partitions",
        "Kafka's num.partitions, for a topic created without a partition count")
    target_pause_factor: int = bound(10, "times the cost",
        "a group spends at most a tenth of the event loop's time on targets")
    target_pause_max_ms: int = bound(1_000, "ms", "Kafka's default assignment interval (KIP-1263)")
    target_pause_free_ms: float = bound(1.0, "ms",
        "a target that costs less than this does not delay other requests, so it is never postponed")
    configured_groups_max: int = bound(10_000, "groups",
        "groups with configs of their own, which every node holds in memory whether the group exists or not")
    regex_bytes_max: int = bound(4_096, "bytes",
        "size of one regular expression, which a record of each member and a record key contain")
    regex_program_bytes_max: int = bound(524_288, "bytes",
        "RE2's memory for one expression; refusing a larger one takes 5 ms of the event loop")
    resolve_inline_cost_max: int = bound(5_000, "matches",
        "topic names times expressions matched in one turn of the event loop, about 5 ms; more goes to a "
        "child process")
    resolve_inline_ms_max: float = bound(10.0, "ms",
        "after this time a round that was estimated as small moves to a child process")
    resolved_topics_max: int = bound(10_000, "topics",
        "topics that one expression matches, which are one record")
    resolved_names_max: int = bound(100_000, "topics",
        "topics that all expressions of a group match, which are held in memory: about 10 MB")
    resolved_names_at_once_max: int = bound(10_000, "topics",
        "resolved topics written in one decision (the last expression may exceed it): at most 20 ms of "
        "the event loop")
    resolved_names_look_max: int = bound(250, "topics",
        "resolved topics compared with the group's previous ones in one turn of the event loop, about 0.1 ms")
    resolved_pause_ms: int = bound(1, "ms",
        "pause between two turns that process a result, in which heartbeats of other groups are answered")
    regex_pause_factor: int = bound(10, "times the duration",
        "pause between rounds: one group uses at most a tenth of a child process's time")
    regex_pause_ms: int = bound(100, "ms",
        "shortest pause between rounds of a group, so that topics created one after another share a round")
    regex_pause_max_ms: int = bound(10_000, "ms",
        "Kafka's fixed pause; reached when a round takes over a second")
    regex_retry_ms: int = bound(10_000, "ms", "delay before a round whose child process failed is repeated")
    target_retry_ms: int = bound(1_000, "ms",
        "delay before a target that failed, or whose topics are unknown, is computed again; doubles with "
        "each failure")
    target_retry_max_ms: int = bound(60_000, "ms", "an assignor that keeps failing is called once a minute")
    assign_inline_cost_max: int = bound(30_000, "µs, estimated",
        "well below the longest acceptable stall of the event loop; costlier targets go to a child process")
    assign_deadline_ms: int = bound(10_000, "ms", "an assignor that takes longer is considered hung")
    assign_memory_bytes_max: int = bound(1 << 30, "bytes",
        "address space of an assignor's process, ten times what the largest group needs")
    serves_classic: bool = bound(True, "",
        "whether the classic protocol is served; its groups in the log keep their members otherwise")
    classic_initial_delay_ms: int = bound(100, "ms",
        "Kafka's group.initial.rebalance.delay.ms, there 3,000: how long a group without members waits for "
        "more of them; enough for clients that start together")
    classic_several_delay_ms: int = bound(100, "ms",
        "the same where that is 0, and the first client to join comes with others; alone it does not wait")
    classic_session_timeout_min_ms: int = bound(6_000, "ms", "Kafka's group.min.session.timeout.ms")
    classic_session_timeout_max_ms: int = bound(1_800_000, "ms", "Kafka's group.max.session.timeout.ms")
    classic_group_size_max: int = bound(2_500, "members",
        "Kafka's group.max.size, there unbounded: a generation is one record, and one turn of the event loop")
    classic_pending_max: int = bound(10_000, "member ids",
        "given out for one group and not used yet; the oldest is forgotten, and its client asks again")
    classic_protocols_max: int = bound(100, "protocols",
        "clients name as many as they have assignors; each join counts them")
    migration_policy: str = bound("bidirectional", "",
        "Kafka's group.consumer.migration.policy and its default (`MigrationPolicy`): a group moves to the "
        "consumer protocol with the first member that speaks it, and back with the last")
    classic_new_member_timeout_ms: int = bound(300_000, "ms",
        "Kafka's: how long a first JoinGroup waits, as its client may be gone and cannot send heartbeats")
    transaction_timeout_max_ms: int = bound(900_000, "ms", "Kafka's transaction.max.timeout.ms")
    transactional_id_expiration_ms: int = bound(604_800_000, "ms",
        "Kafka's transactional.id.expiration.ms: a week")
    transactional_ids_max: int = bound(10_000, "ids",
        "every node holds them in memory; a client that invents ids must not fill it")
    transactional_id_bytes_max: int = bound(1_024, "bytes", "the record of an id contains it")
    transaction_partitions_max: int = bound(10_000, "partitions in one AddPartitionsToTxn",
        "a request takes a few milliseconds of the event loop")
    transaction_groups_max: int = bound(1_000, "groups of one transaction",
        "its record is a few milliseconds of the event loop on each node; a program has one or two")
    transaction_bytes_max: int = bound(262_144, "bytes",
        "record of a transaction: each request that adds partitions or a group writes them all")
    pending_of_partition_max: int = bound(1_000, "transactions",
        "open ones with an offset of the same partition of a group: a commit of the partition supersedes all "
        "in one decision, about 10 ms of the event loop; a partition has one owner at a time")
    install_records_max: int = bound(500, "records",
        "records of a target in one decision, about 10 ms on each node; a larger target takes several "
        "decisions")
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Settings that may differ by group (Kafka: group.consumer.* and its dynamic group configs)."""

    # fmt: off
    session_timeout_ms: int = bound(45_000, "ms", "Kafka's default")
    session_timeout_min_ms: int = bound(1_000, "ms",
        "with a shorter one, a paused process is mistaken for a dead one")
    session_timeout_max_ms: int = bound(1_800_000, "ms", "Kafka's maximum for classic groups")
    heartbeat_interval_ms: int = bound(1_000, "ms",
        "a rebalance takes about one interval; clients wait as long for a reply")
    heartbeat_interval_min_ms: int = bound(500, "ms", "clients take the interval as their request timeout")
    heartbeat_interval_max_ms: int = bound(15_000, "ms", "Kafka's maximum")
    assignment_interval_ms: int = bound(0, "ms",
        "shortest pause between two targets of a group; the pause by cost (`pacing`) applies as well and "
        "suffices")
    assignment_interval_min_ms: int = bound(0, "ms", "Kafka's minimum")
    assignment_interval_max_ms: int = bound(15_000, "ms", "Kafka's maximum")
    assignors: tuple[str, ...] = bound(("uniform", "range"), "names", "the first is the default, as in Kafka")
    rack_assignors: frozenset[str] = bound(frozenset(), "names",
        "the assignors that use the racks of partitions")
    regex_refresh_interval_ms: int = bound(600_000, "ms", "Kafka's default")
    max_size: int = bound(10_000, "members",
        "computing targets of larger groups takes too much of the event loop's time")
    offset_metadata_max_bytes: int = bound(4_096, "bytes", "Kafka's offset.metadata.max.bytes")
    offsets_retention_ms: int = bound(604_800_000, "ms", "Kafka's offsets.retention.minutes: a week")
    offsets_retention_check_interval_ms: int = bound(600_000, "ms",
        "Kafka's default; the shortest time between two expiry checks of a group, and how long an empty "
        "group stays")
    # fmt: on


class SettingsView(Protocol):
    """The settings in force.

    `version` changes with every change that affects all groups, so that cached replies notice it. A change
    for single groups is reported for these alone (`GroupContext.configs_changed`). `defaults` are the
    broker's own settings, which bound those of every group."""

    @property
    def defaults(self) -> GroupSettings: ...

    @property
    def version(self) -> int: ...

    def for_group(self, group_id: str) -> GroupSettings: ...


@dataclass(frozen=True, slots=True)
class SameForAll:
    """The simplest settings view: the same values for every group."""

    settings: GroupSettings = GroupSettings()
    version: int = 1

    @property
    def defaults(self) -> GroupSettings:
        return self.settings

    def for_group(self, group_id: str) -> GroupSettings:
        return self.settings
