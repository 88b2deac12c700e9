"""Every exported table, column by column; documents and writers are derived from this module only.

Invariant: a column keeps its name, type and meaning. New columns are appended, and `SCHEMA_VERSION` rises
only if this is broken.

Names ending in ``_ms`` are milliseconds: times since 1970 UTC, unless the meaning says that they are
durations. A time is an int64 in every format, so that all formats agree; Spark's
``timestamp_millis(timestamp_ms)`` makes a timestamp of it. An entry's index is called ``raft_index``, because
data frames use ``index`` for something else. Null always means "none" or "unknown"; -1 and the empty text are
not used for this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from history.facts.rows import EpochRow, begun_ms
from history.words import certainty_name, reason_names, trigger_name

from .columns import (
    TableSchema,
    begun,
    boolean,
    count_of,
    int32,
    int64,
    ints,
    json_text,
    known,
    lasted,
    listed,
    maybe,
    moment,
    span,
    text,
    texts,
)

SCHEMA_VERSION = 1

_GROUP = text("group_id", "The group.")
_SHARD = int32("shard", "The group's shard; indexes refer to its log.")

_RECORDS = TableSchema(
    name="records",
    means="Every record of every shard, in log order.",
    columns=(
        int32("shard", "The shard; -1 is the metadata shard."),
        int64("raft_index", "The entry that contains the record.", "index"),
        int64("term", "The term in which the entry was written."),
        moment("timestamp_ms", "When the entry was written."),
        int32("sequence", "The record's position in the entry, from 0."),
        int32("type", "The record type's number (`quorate docs records`)."),
        text("type_name", "The record type's name."),
        int32("version", "The version of the record's value."),
        maybe(text("group_id", "The group of the record.")),
        maybe(text("member_id", "The member in the record's key.")),
        maybe(text("topic", "The topic in the record's key.")),
        maybe(int32("partition", "The partition in the record's key.")),
        json_text("key", 'The key of the record; {"base64": …} if this release cannot read it.'),
        maybe(json_text("value", "The record's value, in the same form; null: a tombstone.")),
        text("trigger", "The trigger of the entry's cause."),
        texts("reasons", "The cause's reasons for a new group epoch."),
        maybe(text("cause_member_id", "The member whose request the entry answers.")),
        maybe(text("principal", "The principal of an operator's request.")),
        maybe(text("address", "The address that the operator's request came from.")),
        json_text("cause", "The whole cause."),
    ),
)


def _of_phases(name: str) -> Callable[[EpochRow], int | None]:
    """Read a time from the phases of a classic group's rebalance."""
    return lambda row: None if row.cause.phases is None else getattr(row.cause.phases, name)


def _waited_for(row: EpochRow) -> list[str]:
    return [] if row.cause.phases is None else [one.member_id for one in row.cause.phases.waited_for]


_EPOCHS = TableSchema(
    name="group_epochs",
    means="One row for each group epoch: its cause, its members, and how long it took to become stable.",
    columns=(
        _GROUP,
        _SHARD,
        int32(
            "epoch",
            "The group epoch; a generation of a classic or `rewrite` group, a round of a `push` group.",
        ),
        int32("epoch_before", "The previous group epoch; 0: this epoch created the group."),
        int64(
            "raft_index",
            "The entry that began the epoch; if that is unknown, the first known entry of the epoch.",
            "index",
        ),
        moment("timestamp_ms", "When the epoch began."),
        maybe(
            text(
                "trigger",
                "The trigger of the epoch's cause.",
                begun(lambda cause: trigger_name(cause.trigger)),
            )
        ),
        texts("reasons", "The reasons of the epoch's cause.", lambda row: reason_names(row.cause)),
        maybe(text("certainty", "`RECORDED`, or `INFERRED` by an import.", begun(certainty_name))),
        maybe(text("cause_member_id", "The member that caused the epoch.", known("cause.member_id"))),
        maybe(text("principal", "The operator who caused the epoch.", known("cause.principal"))),
        maybe(text("address", "The address that the operator's request came from.", known("cause.address"))),
        int32("num_members", "Number of members after the entry that began the epoch."),
        texts("members", "Ids of these members; empty for more than 1,000.", listed("members")),
        texts("away", "Static members that had left temporarily.", listed("away")),
        maybe(int64("target_index", "The entry that completed the epoch's target.")),
        maybe(moment("target_ms", "The time of that entry.")),
        maybe(
            text(
                "target_trigger",
                "The trigger of that entry's cause.",
                lambda row: row.target_cause and trigger_name(row.target_cause.trigger),
            )
        ),
        int32("num_moves", "Number of partitions that the target moved (table moves).", count_of("moves")),
        int32("num_waits", "Number of waits that began in the epoch (table waits).", count_of("waits")),
        maybe(int64("settled_index", "The entry after which the group was first Stable or Empty.")),
        maybe(moment("settled_ms", "The time of that entry.")),
        maybe(
            span(
                "time_to_stable_ms",
                "Time from the epoch's begin (in a classic group: of its join phase) to that entry.",
                lambda row: None if row.settled_ms is None else row.settled_ms - begun_ms(row),
            )
        ),
        int32("relapses", "How often the group was not Stable again after that.", count_of("relapses")),
        text("state", "The group's state at the end of the epoch."),
        maybe(int32("overtaken_by", "The next epoch, if it began before this one was settled.")),
        maybe(int64("end_index", "The entry that ended it; null: it had not ended yet.")),
        maybe(moment("end_ms", "The time of that entry.")),
        maybe(span("duration_ms", "Duration.", lasted("timestamp_ms", "end_ms"))),
        boolean("is_begin_known", "False: its begin is in entries that are missing."),
        boolean("is_end_known", "False: its end is in entries that are missing."),
        maybe(
            moment("join_began_ms", "In a classic group, when the join phase began.", _of_phases("began_ms"))
        ),
        maybe(moment("sync_began_ms", "When the sync phase began.", _of_phases("joined_ms"))),
        texts("waited_for", "The members that joined last, the last one first.", _waited_for),
        maybe(
            text(
                "protocol",
                "The group's protocol when the epoch began: `consumer`, `classic`, `mixed` (a consumer group "
                "with classic members), `rewrite`, or `push`.",
            )
        ),
        maybe(int32("num_classic", "Number of its members that spoke the classic protocol.")),
    ),
)

_MOVES = TableSchema(
    name="moves",
    means="One row for each partition that the target of an epoch moved.",
    columns=(
        text("group_id", "The group.", "epoch.group_id"),
        int32("shard", "Its shard.", "epoch.shard"),
        int32("epoch", "The group epoch of the target.", "epoch.epoch"),
        maybe(int64("target_index", "The entry that completed the target.", "epoch.target_index")),
        maybe(moment("target_ms", "The time of that entry.", "epoch.target_ms")),
        text("topic", "The topic.", "moved.partition.topic"),
        int32("partition", "The partition.", "moved.partition.partition"),
        maybe(text("source", "The member that owned it; null: no member.", "moved.source")),
        maybe(text("target", "The member that is to own it; null: no member.", "moved.target")),
    ),
)

_OWNERSHIP = TableSchema(
    name="ownership",
    means="One row for each span of time in which a partition had the same owner, or none.",
    columns=(
        _GROUP,
        _SHARD,
        text("topic", "The topic.", "partition.topic"),
        text("topic_id", "The topic's id; a topic that is created again gets another one."),
        int32("partition", "The partition.", "partition.partition"),
        text("kind", "`owned`, `revoking` (told to give it up) or `unowned`.", "kind.value"),
        maybe(text("member_id", "The member that owned it; null: no member.")),
        int32("epoch", "The group epoch at the begin."),
        int64("from_index", "The entry that began it."),
        moment("from_ms", "The time of that entry."),
        maybe(int64("to_index", "The entry that ended it; null: it had not ended yet.")),
        maybe(moment("to_ms", "The time of that entry.")),
        maybe(span("duration_ms", "Duration.", lasted("from_ms", "to_ms"))),
    ),
)

_COMMITS = TableSchema(
    name="commits",
    means="One row for each committed offset and each removal of one.",
    columns=(
        _GROUP,
        _SHARD,
        text("topic", "The topic.", "partition.topic"),
        int32("partition", "The partition.", "partition.partition"),
        int64("raft_index", "The entry.", "index"),
        moment("timestamp_ms", "When the entry was written."),
        maybe(int64("offset", "The committed offset; null: the commit was removed.")),
        maybe(int32("leader_epoch", "The leader epoch of the commit.", known("leader_epoch"))),
        maybe(text("metadata", "The metadata of the commit.", known("metadata"))),
        maybe(text("member_id", "The member; null: a client that is not a member.", known("member_id"))),
        maybe(int32("member_epoch", "The member's epoch.", known("member_epoch"))),
        int32("sequence", "The record's position in the entry, from 0; the last one applies."),
    ),
)

_SESSIONS = TableSchema(
    name="member_sessions",
    means="One row for each membership of a member in a group, from joining to removal.",
    columns=(
        _GROUP,
        _SHARD,
        text("member_id", "The member."),
        maybe(text("instance_id", "Its group.instance.id.")),
        text("client_id", "The client id of the member."),
        text("client_host", "The client host of the member."),
        int64("from_index", "The entry in which it joined, or the first known one."),
        moment("from_ms", "The time of that entry."),
        maybe(int64("to_index", "The entry that removed it; null: it was a member at the end.")),
        maybe(moment("to_ms", "The time of that entry.")),
        maybe(span("duration_ms", "Duration of the membership.", lasted("from_ms", "to_ms"))),
        text(
            "end",
            "`left`, `session expired`, `rebalance expired`, `removed`, `replaced`, `join expired`, "
            "`sync expired` (both in a classic group, the first in a `rewrite` group too), `forgotten` (in a "
            "`push` group, after a failover), `open`, `unknown`.",
            "end.value",
        ),
        maybe(span("timeout_ms", "The timeout that ended the membership (a span).")),
        maybe(moment("last_heartbeat_ms", "The last heartbeat of a member that expired.")),
        maybe(moment("deadline_ms", "The deadline that it missed.")),
        maybe(span("rebalance_timeout_ms", "The member's last rebalance timeout (a span).")),
        int32("rejoins", "How often it joined again with epoch 0."),
        int32("aways", "How often it left temporarily (static membership).", count_of("aways")),
        maybe(text("replaced", "The member id that it replaced.")),
        boolean("is_begin_known", "False: it joined before the entries that were read."),
        maybe(
            text(
                "protocol",
                "The protocol of the member: `consumer`, `classic`, `rewrite` or `push`.",
                known("protocol"),
            )
        ),
        maybe(int32("number", "The member's number in the group's life: 2 for `m2`.")),
    ),
)

_FAILOVERS = TableSchema(
    name="failovers",
    means="One row for each term of each shard: failovers, leadership transfers and starts.",
    columns=(
        int32("shard", "The shard; -1 is the metadata shard."),
        int64("term", "The term."),
        int64("raft_index", "The term's first entry.", "index"),
        moment("timestamp_ms", "The time of that entry."),
        int32("node_id", "The leader of the term."),
        maybe(int32("previous_leader", "The previous leader.", known("previous_leader"))),
        text("why", "`START`, `EXPIRY`, `RESET` or `TRANSFER`."),
        boolean("is_takeover", "True: a failover or a leadership transfer."),
        maybe(
            span("gap_ms", "Time since the previous entry; the shard had no leader for at most that long.")
        ),
    ),
)

_FINDINGS = TableSchema(
    name="findings",
    means="One row for each diagnosis (`quorate log findings --rules` explains them).",
    columns=(
        text("kind", "The rule's name."),
        text("severity", "`note`, `warning` or `error`.", "severity.value"),
        maybe(text("group_id", "The group; null: the finding is about the leaders of the shard.")),
        _SHARD,
        ints("epochs", "The epochs that it affected.", listed("epochs")),
        texts("members", "The members that caused it or were affected.", listed("members")),
        texts("partitions", "Partitions, as `orders-3`.", lambda row: [str(one) for one in row.partitions]),
        int64("from_index", "The entry at which it began."),
        moment("from_ms", "The time of that entry."),
        maybe(int64("to_index", "The entry at which it ended; null: it had not ended yet.")),
        maybe(moment("to_ms", "The time of that entry.")),
        text("words", "The finding in words."),
        ints("rests_on", "Indexes of the entries that it is based on.", listed("rests_on")),
        boolean("is_certain", "False: it depends on evidence beside the log, which was used or is missing."),
    ),
)

_WAITS = TableSchema(
    name="waits",
    means="One row for each time that a member waited for a partition that another member still held.",
    columns=(
        text("group_id", "The group.", "wait.group_id"),
        int32("shard", "Its shard.", "epoch.shard"),
        int32("epoch", "The group epoch at the begin.", "wait.epoch"),
        text("topic", "The topic.", "wait.partition.topic"),
        int32("partition", "The partition.", "wait.partition.partition"),
        text("waiter", "The member that waited.", "wait.waiter"),
        text("holder", "The member that held it.", "wait.holder"),
        int64("from_index", "The entry at which it began.", "wait.from_index"),
        moment("from_ms", "The time of that entry.", "wait.from_ms"),
        maybe(int64("told_index", "The entry that told the holder to give it up.", "wait.told_index")),
        maybe(moment("told_ms", "The time of that entry.", "wait.told_ms")),
        maybe(int64("to_index", "The entry that ended it; null: it had not ended yet.", "wait.to_index")),
        maybe(moment("to_ms", "The time of that entry.", "wait.to_ms")),
        maybe(span("duration_ms", "Duration.", lasted("wait.from_ms", "wait.to_ms"))),
        text("end", "`released`, `fenced`, `left`, `overtaken`, `open` or `unknown`.", "wait.end.value"),
    ),
)

SCHEMAS: dict[str, TableSchema] = {
    table.name: table
    for table in (_RECORDS, _EPOCHS, _MOVES, _OWNERSHIP, _COMMITS, _SESSIONS, _FAILOVERS, _WAITS, _FINDINGS)
}


def tables_text() -> Iterator[str]:
    """The tables as Markdown, for `quorate log export --tables`."""
    for table in SCHEMAS.values():
        yield f"### Table {table.name}"
        yield ""
        yield table.means
        yield ""
        yield "| Column | Type | Meaning |"
        yield "|---|---|---|"
        for one in table.columns:
            kind = f"{one.kind.exported}, or null" if one.nullable else one.kind.exported
            yield f"| `{one.name}` | {kind} | {one.means} |"
        yield ""


def tables_json() -> list[dict[str, Any]]:
    """The tables as JSON objects."""
    return [
        {
            "table": table.name,
            "means": table.means,
            "columns": [
                {"name": one.name, "type": one.kind.exported, "nullable": one.nullable, "means": one.means}
                for one in table.columns
            ],
        }
        for table in SCHEMAS.values()
    ]
