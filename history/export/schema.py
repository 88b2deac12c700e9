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

from collections.abc import Iterator
from typing import Any

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
_SHARD = int32("shard", "Its shard; indexes are of this shard's log.")

_RECORDS = TableSchema(
    name="records",
    means="Every record of every shard, in the order of the log.",
    columns=(
        int32("shard", "The shard; -1 is the metadata shard."),
        int64("raft_index", "The entry that holds it.", "index"),
        int64("term", "The term in which the entry was written."),
        moment("timestamp_ms", "When it was written."),
        int32("sequence", "Its place in the entry, from 0."),
        int32("type", "The record type's number (docs/records.md)."),
        text("type_name", "The record type's name."),
        int32("version", "The version of its value."),
        maybe(text("group_id", "The group that it is about.")),
        maybe(text("member_id", "The member that its key names.")),
        maybe(text("topic", "The topic that its key names.")),
        maybe(int32("partition", "The partition that its key names.")),
        json_text("key", 'Its key; {"base64": …} where this release cannot read it.'),
        maybe(json_text("value", "Its value, as the key is written; null: it deletes what the key names.")),
        text("trigger", "The trigger of the entry's cause."),
        texts("reasons", "The reasons for a new group epoch that the cause names."),
        maybe(text("cause_member_id", "The member whose request the entry answers.")),
        maybe(text("principal", "Who asked, of an operator's request.")),
        maybe(text("address", "From where.")),
        json_text("cause", "The whole cause."),
    ),
)

_EPOCHS = TableSchema(
    name="group_epochs",
    means="One row for each group epoch: its cause, who was there, how long it took to be stable.",
    columns=(
        _GROUP,
        _SHARD,
        int32("epoch", "The group epoch."),
        int32("epoch_before", "The one before it; 0: it founded the group."),
        int64("raft_index", "The entry that began it; of an unknown beginning the first known one.", "index"),
        moment("timestamp_ms", "When it began."),
        maybe(text("trigger", "The trigger of its cause.", begun(lambda cause: trigger_name(cause.trigger)))),
        texts("reasons", "The reasons of its cause.", lambda row: reason_names(row.cause)),
        maybe(text("certainty", "`RECORDED`, or `INFERRED` by an import.", begun(certainty_name))),
        maybe(text("cause_member_id", "The member that brought it about.", known("cause.member_id"))),
        maybe(text("principal", "The operator who did.", known("cause.principal"))),
        maybe(text("address", "From where.", known("cause.address"))),
        int32("num_members", "Members behind the entry that began it."),
        texts("members", "Their ids; none are listed above 1,000.", listed("members")),
        texts("away", "Static members that were away.", listed("away")),
        maybe(int64("target_index", "The entry that completed its target.")),
        maybe(moment("target_ms", "When that was.")),
        maybe(
            text(
                "target_trigger",
                "The trigger of that entry's cause.",
                lambda row: row.target_cause and trigger_name(row.target_cause.trigger),
            )
        ),
        int32(
            "num_moves", "Partitions whose place changed with its target (table moves).", count_of("moves")
        ),
        int32("num_waits", "Waits that began in it (table waits).", count_of("waits")),
        maybe(int64("settled_index", "The entry behind which the group was Stable or Empty first.")),
        maybe(moment("settled_ms", "When that was.")),
        maybe(span("time_to_stable_ms", "How long that took.", lasted("timestamp_ms", "settled_ms"))),
        int32("relapses", "How often it was not Stable again after that.", count_of("relapses")),
        text("state", "The group's state at its end."),
        maybe(int32("overtaken_by", "The next epoch, which began before this one was settled.")),
        maybe(int64("end_index", "The entry that ended it; null: it had not ended.")),
        maybe(moment("end_ms", "When that was.")),
        maybe(span("duration_ms", "How long it lasted.", lasted("timestamp_ms", "end_ms"))),
        boolean("is_begin_known", "False: it began in entries that are missing."),
        boolean("is_end_known", "False: it ended in entries that are missing."),
    ),
)

_MOVES = TableSchema(
    name="moves",
    means="One row for each partition whose place changed with the target of an epoch.",
    columns=(
        text("group_id", "The group.", "epoch.group_id"),
        int32("shard", "Its shard.", "epoch.shard"),
        int32("epoch", "The group epoch that the target is of.", "epoch.epoch"),
        maybe(int64("target_index", "The entry that completed the target.", "epoch.target_index")),
        maybe(moment("target_ms", "When that was.", "epoch.target_ms")),
        text("topic", "The topic.", "moved.partition.topic"),
        int32("partition", "The partition.", "moved.partition.partition"),
        maybe(text("source", "Whose it was; null: nobody's.", "moved.source")),
        maybe(text("target", "Whose it is; null: nobody's.", "moved.target")),
    ),
)

_OWNERSHIP = TableSchema(
    name="ownership",
    means="One row for each time that a partition was in one hand, or in nobody's.",
    columns=(
        _GROUP,
        _SHARD,
        text("topic", "The topic.", "partition.topic"),
        text("topic_id", "Its id: a topic made anew has another one."),
        int32("partition", "The partition.", "partition.partition"),
        text("kind", "`owned`, `revoking` (told to give it up) or `unowned`.", "kind.value"),
        maybe(text("member_id", "Whose it was; null: nobody's.")),
        int32("epoch", "The group epoch when it began."),
        int64("from_index", "The entry that began it."),
        moment("from_ms", "When that was."),
        maybe(int64("to_index", "The entry that ended it; null: it had not ended.")),
        maybe(moment("to_ms", "When that was.")),
        maybe(span("duration_ms", "How long it lasted.", lasted("from_ms", "to_ms"))),
    ),
)

_COMMITS = TableSchema(
    name="commits",
    means="One row for each committed offset, and for each that was removed.",
    columns=(
        _GROUP,
        _SHARD,
        text("topic", "The topic.", "partition.topic"),
        int32("partition", "The partition.", "partition.partition"),
        int64("raft_index", "The entry.", "index"),
        moment("timestamp_ms", "When it was written."),
        maybe(int64("offset", "The offset; null: what was committed is removed.")),
        maybe(int32("leader_epoch", "The leader epoch that the client gave.", known("leader_epoch"))),
        maybe(text("metadata", "What the client wrote beside it.", known("metadata"))),
        maybe(text("member_id", "The member; null: a client without membership.", known("member_id"))),
        maybe(int32("member_epoch", "Its member epoch.", known("member_epoch"))),
        int32("sequence", "The record's place in the entry, from 0: the later one counts."),
    ),
)

_SESSIONS = TableSchema(
    name="member_sessions",
    means="One row for each stay of a member in a group.",
    columns=(
        _GROUP,
        _SHARD,
        text("member_id", "The member."),
        maybe(text("instance_id", "Its group.instance.id.")),
        text("client_id", "What its client calls itself."),
        text("client_host", "From where it came."),
        int64("from_index", "The entry that admitted it, or the first one known."),
        moment("from_ms", "When that was."),
        maybe(int64("to_index", "The entry that removed it; null: it was there at the end.")),
        maybe(moment("to_ms", "When that was.")),
        maybe(span("duration_ms", "How long it stayed.", lasted("from_ms", "to_ms"))),
        text(
            "end",
            "`left`, `session expired`, `rebalance expired`, `removed`, `replaced`, `open`, `unknown`.",
            "end.value",
        ),
        maybe(span("timeout_ms", "The timeout that ended it (a span).")),
        maybe(moment("last_heartbeat_ms", "Its last heartbeat, of one that expired.")),
        maybe(moment("deadline_ms", "When it was to be heard of at the latest.")),
        maybe(span("rebalance_timeout_ms", "As it last said (a span).")),
        int32("rejoins", "How often it joined again with epoch 0."),
        int32("aways", "How often it was away (static membership).", count_of("aways")),
        maybe(text("replaced", "The member id whose place it took.")),
        boolean("is_begin_known", "False: it was admitted before what was read."),
    ),
)

_FAILOVERS = TableSchema(
    name="failovers",
    means="One row for each term of each shard: failovers, hand-overs and starts.",
    columns=(
        int32("shard", "The shard; -1 is the metadata shard."),
        int64("term", "The term."),
        int64("raft_index", "Its first entry.", "index"),
        moment("timestamp_ms", "When that was written."),
        int32("node_id", "The node that leads in it."),
        maybe(int32("previous_leader", "The node that led before.", known("previous_leader"))),
        text("why", "`START`, `EXPIRY`, `RESET` or `TRANSFER`."),
        boolean("is_takeover", "True: a failover or a hand-over."),
        maybe(span("gap_ms", "How long since the entry before: at most so long nobody led.")),
    ),
)

_FINDINGS = TableSchema(
    name="findings",
    means="One row for each diagnosis (docs/history.md has the rules).",
    columns=(
        text("kind", "The rule's name."),
        text("severity", "`note`, `warning` or `error`.", "severity.value"),
        _GROUP,
        _SHARD,
        ints("epochs", "The epochs that it disturbed.", listed("epochs")),
        texts("members", "Who is to blame or was hit.", listed("members")),
        texts("partitions", "Partitions, as `orders-3`.", lambda row: [str(one) for one in row.partitions]),
        int64("from_index", "The entry with which it began."),
        moment("from_ms", "When that was."),
        maybe(int64("to_index", "The entry with which it ended; null: it had not.")),
        maybe(moment("to_ms", "When that was.")),
        text("words", "What was found, in a sentence or two."),
        ints("rests_on", "Indexes of the entries that show it.", listed("rests_on")),
        boolean("is_certain", "False: evidence beside the log was used or is missing."),
    ),
)

_WAITS = TableSchema(
    name="waits",
    means="One row for each time that a member had to wait for a partition that another one still held.",
    columns=(
        text("group_id", "The group.", "wait.group_id"),
        int32("shard", "Its shard.", "epoch.shard"),
        int32("epoch", "The group epoch when it began.", "wait.epoch"),
        text("topic", "The topic.", "wait.partition.topic"),
        int32("partition", "The partition.", "wait.partition.partition"),
        text("waiter", "The member that waited.", "wait.waiter"),
        text("holder", "The member that held it.", "wait.holder"),
        int64("from_index", "The entry with which it began.", "wait.from_index"),
        moment("from_ms", "When that was.", "wait.from_ms"),
        maybe(int64("told_index", "The entry that told the holder to give it up.", "wait.told_index")),
        maybe(moment("told_ms", "When that was.", "wait.told_ms")),
        maybe(int64("to_index", "The entry that ended it; null: it had not ended.", "wait.to_index")),
        maybe(moment("to_ms", "When that was.", "wait.to_ms")),
        maybe(span("duration_ms", "How long it lasted.", lasted("wait.from_ms", "wait.to_ms"))),
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
            kind = f"{one.kind}, or null" if one.nullable else one.kind
            yield f"| `{one.name}` | {kind} | {one.means} |"
        yield ""


def tables_json() -> list[dict[str, Any]]:
    """The tables as JSON objects."""
    return [
        {
            "table": table.name,
            "means": table.means,
            "columns": [
                {"name": one.name, "type": one.kind.value, "nullable": one.nullable, "means": one.means}
                for one in table.columns
            ],
        }
        for table in SCHEMAS.values()
    ]
