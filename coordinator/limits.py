"""The bounds of the coordinator and the settings of a group: name, default, unit and reason in one place.

Nothing here is read from a file or the environment: the layer above fills these dataclasses and passes them
in. Every bound is checked before the first record of a decision is written, so reaching one causes a refusal
with a Kafka error code and never a partial decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds that apply to a whole shard, independent of group configs."""

    groups_max: int = bound(
        100_000,
        "groups per shard",
        "with members, and as many with offsets: a client that invents group ids must not fill memory",
    )
    group_id_bytes_max: int = bound(1_024, "bytes", "a group id stands in every key of the group")
    member_id_bytes_max: int = bound(
        256, "bytes", "clients send 22 to 36 bytes; an id stands in three keys per member"
    )
    topics_per_member_max: int = bound(
        10_000, "topics", "a subscription is one record and must stay well below a frame"
    )
    subscription_bytes_max: int = bound(
        1_048_576, "bytes", "of topic names in one subscription, as a name may have any length there"
    )
    instance_id_bytes_max: int = bound(
        256, "bytes", "clients allow 249 characters; it stands in the member's record"
    )
    rack_id_bytes_max: int = bound(256, "bytes", "names of racks are short; it stands in the member's record")
    racks_per_partition_max: int = bound(16, "racks", "replicas of a partition are few")
    group_racks_bytes_max: int = bound(
        4 << 20, "bytes", "a group's topics are one record: with more racks than that it goes without"
    )
    client_assignors_max: int = bound(
        16, "assignors per member", "each is compared with those of all members for every target"
    )
    client_assignor_name_bytes_max: int = bound(256, "bytes", "it stands in each member's record and reply")
    client_metadata_bytes_max: int = bound(
        16_384,
        "bytes",
        "of all assignors of a member together, and of what one tells a member: in records, and in memory "
        "on every node",
    )
    client_members_max: int = bound(
        1_000,
        "members of a group with client-side assignors",
        "what one installs is written in one decision, 20 µs each; the server assignor has larger groups",
    )
    client_partitions_max: int = bound(
        25_000, "partitions of such a group's topics", "the same, at 1 µs each to check and to write"
    )
    client_round_max_ms: int = bound(
        600_000,
        "ms",
        "for all members that are asked for one target, twice what clients take for their rebalance timeout: "
        "then the server assignor computes it",
    )
    prepare_bytes_max: int = bound(
        8_388_608, "bytes", "of an answer to a member that is to compute; above it the server assignor does"
    )
    target_bytes_max: int = bound(
        4_194_304, "bytes", "of the records of one target; beside them the entry holds what a member owns"
    )
    expiries_max: int = bound(500, "members", "removed in one decision: about 20 ms of the loop")
    removal_bytes_max: int = bound(
        2_097_152, "bytes", "of offsets removed in one decision: 7,000 of them, about 10 ms of the loop"
    )
    offsets_deleted_max: int = bound(
        50_000, "partitions", "looked for by one OffsetDelete: about 50 ms of the loop at most"
    )
    members_named_max: int = bound(
        10_000, "members", "named by one LeaveGroup, known or not: about 20 ms of the loop"
    )
    expiry_slice_max: int = bound(
        500, "offsets", "read in one slice of the search for what is over: about 3 ms of the loop"
    )
    expiry_pause_ms: int = bound(10, "ms", "between two such slices: nobody waits for what expires")
    topics_max: int = bound(100_000, "topics", "the catalog is held in memory by every node")
    partitions_per_topic_max: int = bound(
        100_000, "partitions", "a target assignment names every one of them"
    )
    partitions_max: int = bound(
        500_000, "partitions of all topics", "one member may own them all, and what it owns is one record"
    )
    num_partitions_default: int = bound(
        1, "partitions", "Kafka's num.partitions: of a topic created without a count"
    )
    target_pause_factor: int = bound(
        10, "times the cost", "a group spends at most a tenth of the loop on targets"
    )
    target_pause_max_ms: int = bound(1_000, "ms", "Kafka's default assignment interval (KIP-1263)")
    target_pause_free_ms: float = bound(
        1.0, "ms", "a target that costs less than this delays nobody, so never waits"
    )
    configured_groups_max: int = bound(
        10_000,
        "groups",
        "with configs of their own: every node holds them all, whether the group exists or not",
    )
    regex_bytes_max: int = bound(
        4_096, "bytes", "of one expression; it stands in the record of each member and in a key"
    )
    regex_program_bytes_max: int = bound(
        524_288, "bytes", "of RE2 for one expression: to refuse a larger one takes 5 ms of the loop"
    )
    resolve_inline_cost_max: int = bound(
        5_000,
        "matches",
        "of one name by one expression, in a turn of the loop: about 5 ms; more is a child's",
    )
    resolve_inline_ms_max: float = bound(
        10.0, "ms", "after which a round that looked small is a child's after all"
    )
    resolved_topics_max: int = bound(10_000, "topics", "of one expression: they are one record")
    resolved_names_max: int = bound(
        100_000, "topics", "of all expressions of a group together, which memory holds: about 10 MB"
    )
    resolved_names_at_once_max: int = bound(
        10_000, "topics", "in the records of one decision, but for the last: at most 20 ms of the loop"
    )
    resolved_names_look_max: int = bound(
        250,
        "topics",
        "of an answer that are compared with what the group has, in one turn of the loop: about 0.1 ms",
    )
    resolved_pause_ms: int = bound(
        1, "ms", "between two turns that take an answer: others' heartbeats are answered in it"
    )
    regex_pause_factor: int = bound(
        10, "times the duration", "between rounds: a tenth of a child's time at most goes into one group"
    )
    regex_pause_ms: int = bound(
        100, "ms", "between rounds of a group at least: topics that are created in a row share them"
    )
    regex_pause_max_ms: int = bound(10_000, "ms", "Kafka's fixed pause; a round then took over a second")
    regex_retry_ms: int = bound(10_000, "ms", "until a round whose child failed is tried again")
    target_retry_ms: int = bound(
        1_000,
        "ms",
        "until a target that failed, or lacks its topics, is tried again; doubles with each failure",
    )
    target_retry_max_ms: int = bound(60_000, "ms", "an assignor that keeps failing is asked once a minute")
    assign_inline_cost_max: int = bound(
        30_000, "µs, estimated", "well below what the loop may stand still; more is a child's work"
    )
    assign_deadline_ms: int = bound(10_000, "ms", "an assignor that takes longer is taken for one that hangs")
    assign_memory_bytes_max: int = bound(
        1 << 30, "bytes", "address space of an assignor's process: ten times what the largest group takes"
    )
    install_records_max: int = bound(
        500, "records", "of a target in one decision: about 10 ms on each node; more go in several"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Settings that may differ by group (Kafka: group.consumer.* and its dynamic group configs)."""

    session_timeout_ms: int = bound(45_000, "ms", "Kafka's default")
    session_timeout_min_ms: int = bound(1_000, "ms", "below it a paused process is taken for a dead one")
    session_timeout_max_ms: int = bound(1_800_000, "ms", "Kafka's maximum for classic groups")
    heartbeat_interval_ms: int = bound(
        1_000, "ms", "a rebalance takes about one interval; clients wait as long for a reply"
    )
    heartbeat_interval_min_ms: int = bound(500, "ms", "clients take the interval as their request timeout")
    heartbeat_interval_max_ms: int = bound(15_000, "ms", "Kafka's maximum")
    assignment_interval_ms: int = bound(
        0, "ms", "between two targets of a group; the pause by cost (`pacing`) holds besides, and suffices"
    )
    assignment_interval_min_ms: int = bound(0, "ms", "Kafka's minimum")
    assignment_interval_max_ms: int = bound(15_000, "ms", "Kafka's maximum")
    assignors: tuple[str, ...] = bound(("uniform", "range"), "names", "first is the default, as in Kafka")
    rack_assignors: frozenset[str] = bound(
        frozenset(), "names", "those of them that ask for the racks of partitions"
    )
    regex_refresh_interval_ms: int = bound(600_000, "ms", "Kafka's default")
    max_size: int = bound(10_000, "members", "targets of larger groups do not fit into the loop's budget")
    offset_metadata_max_bytes: int = bound(4_096, "bytes", "Kafka's offset.metadata.max.bytes")
    offsets_retention_ms: int = bound(604_800_000, "ms", "Kafka's offsets.retention.minutes: a week")
    offsets_retention_check_interval_ms: int = bound(
        600_000, "ms", "Kafka's: a group is searched at most so often, an idle one stays as long"
    )


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
