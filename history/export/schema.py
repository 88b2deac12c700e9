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
from operator import attrgetter
from typing import Any

from .columns import (
    ExportKind,
    Table,
    begun,
    certainty,
    column,
    known,
    lasted,
    maybe,
    reason_names,
    trigger_name,
)

SCHEMA_VERSION = 1

_GROUP = column("group_id", ExportKind.TEXT, "The group.")
_SHARD = column("shard", ExportKind.INT32, "Its shard; indexes are of this shard's log.")

_RECORDS = Table(
    name="records",
    means="Every record of every shard, in the order of the log.",
    columns=(
        column("shard", ExportKind.INT32, "The shard; -1 is the metadata shard."),
        column("raft_index", ExportKind.INT64, "The entry that holds it.", attrgetter("index")),
        column("term", ExportKind.INT64, "The term in which the entry was written."),
        column("timestamp_ms", ExportKind.INT64, "When it was written."),
        column("sequence", ExportKind.INT32, "Its place in the entry, from 0."),
        column("type", ExportKind.INT32, "The record type's number (docs/records.md)."),
        column("type_name", ExportKind.TEXT, "The record type's name."),
        column("version", ExportKind.INT32, "The version of its value."),
        maybe("group_id", ExportKind.TEXT, "The group that it is about."),
        maybe("member_id", ExportKind.TEXT, "The member that its key names."),
        maybe("topic", ExportKind.TEXT, "The topic that its key names."),
        maybe("partition", ExportKind.INT32, "The partition that its key names."),
        column("key", ExportKind.JSON, 'Its key; {"base64": …} where this release cannot read it.'),
        maybe(
            "value", ExportKind.JSON, "Its value, as the key is written; null: it deletes what the key names."
        ),
        column("trigger", ExportKind.TEXT, "The trigger of the entry's cause."),
        column("reasons", ExportKind.TEXTS, "The reasons for a new group epoch that the cause names."),
        maybe("cause_member_id", ExportKind.TEXT, "The member whose request the entry answers."),
        maybe("principal", ExportKind.TEXT, "Who asked, of an operator's request."),
        maybe("address", ExportKind.TEXT, "From where."),
        column("cause", ExportKind.JSON, "The whole cause."),
    ),
)

_EPOCHS = Table(
    name="group_epochs",
    means="One row for each group epoch: its cause, who was there, how long it took to be stable.",
    columns=(
        _GROUP,
        _SHARD,
        column("epoch", ExportKind.INT32, "The group epoch."),
        column("epoch_before", ExportKind.INT32, "The one before it; 0: it founded the group."),
        column(
            "raft_index",
            ExportKind.INT64,
            "The entry that began it; of an unknown beginning the first known one.",
            attrgetter("index"),
        ),
        column("timestamp_ms", ExportKind.INT64, "When it began."),
        maybe(
            "trigger",
            ExportKind.TEXT,
            "The trigger of its cause.",
            begun(lambda cause: trigger_name(cause.trigger)),
        ),
        column("reasons", ExportKind.TEXTS, "The reasons of its cause.", lambda row: reason_names(row.cause)),
        maybe(
            "certainty",
            ExportKind.TEXT,
            "`RECORDED`, or `INFERRED` by an import.",
            begun(certainty),
        ),
        maybe(
            "cause_member_id", ExportKind.TEXT, "The member that brought it about.", known("cause.member_id")
        ),
        maybe("principal", ExportKind.TEXT, "The operator who did.", known("cause.principal")),
        maybe("address", ExportKind.TEXT, "From where.", known("cause.address")),
        column("num_members", ExportKind.INT32, "Members behind the entry that began it."),
        column(
            "members",
            ExportKind.TEXTS,
            "Their ids; none are listed above 1,000.",
            lambda row: list(row.members),
        ),
        column("away", ExportKind.TEXTS, "Static members that were away.", lambda row: list(row.away)),
        maybe("target_index", ExportKind.INT64, "The entry that completed its target."),
        maybe("target_ms", ExportKind.INT64, "When that was."),
        maybe(
            "target_trigger",
            ExportKind.TEXT,
            "The trigger of that entry's cause.",
            lambda r: None if r.target_cause is None else trigger_name(r.target_cause.trigger),
        ),
        column(
            "num_moves",
            ExportKind.INT32,
            "Partitions whose place changed with its target (table moves).",
            lambda row: len(row.moves),
        ),
        column(
            "num_waits", ExportKind.INT32, "Waits that began in it (table waits).", lambda row: len(row.waits)
        ),
        maybe(
            "settled_index", ExportKind.INT64, "The entry behind which the group was Stable or Empty first."
        ),
        maybe("settled_ms", ExportKind.INT64, "When that was."),
        maybe(
            "time_to_stable_ms", ExportKind.INT64, "How long that took.", lasted("timestamp_ms", "settled_ms")
        ),
        column(
            "relapses",
            ExportKind.INT32,
            "How often it was not Stable again after that.",
            lambda row: len(row.relapses),
        ),
        column("state", ExportKind.TEXT, "The group's state at its end."),
        maybe("overtaken_by", ExportKind.INT32, "The next epoch, which began before this one was settled."),
        maybe("end_index", ExportKind.INT64, "The entry that ended it; null: it had not ended."),
        maybe("end_ms", ExportKind.INT64, "When that was."),
        maybe("duration_ms", ExportKind.INT64, "How long it lasted.", lasted("timestamp_ms", "end_ms")),
        column("is_begin_known", ExportKind.BOOL, "False: it began in entries that are missing."),
        column("is_end_known", ExportKind.BOOL, "False: it ended in entries that are missing."),
    ),
)

_MOVES = Table(
    name="moves",
    means="One row for each partition whose place changed with the target of an epoch.",
    columns=(
        column("group_id", ExportKind.TEXT, "The group.", attrgetter("epoch.group_id")),
        column("shard", ExportKind.INT32, "Its shard.", attrgetter("epoch.shard")),
        column(
            "epoch", ExportKind.INT32, "The group epoch that the target is of.", attrgetter("epoch.epoch")
        ),
        maybe(
            "target_index",
            ExportKind.INT64,
            "The entry that completed the target.",
            attrgetter("epoch.target_index"),
        ),
        maybe("target_ms", ExportKind.INT64, "When that was.", attrgetter("epoch.target_ms")),
        column("topic", ExportKind.TEXT, "The topic.", attrgetter("moved.partition.topic")),
        column("partition", ExportKind.INT32, "The partition.", attrgetter("moved.partition.partition")),
        maybe("source", ExportKind.TEXT, "Whose it was; null: nobody's.", attrgetter("moved.source")),
        maybe("target", ExportKind.TEXT, "Whose it is; null: nobody's.", attrgetter("moved.target")),
    ),
)

_OWNERSHIP = Table(
    name="ownership",
    means="One row for each time that a partition was in one hand, or in nobody's.",
    columns=(
        _GROUP,
        _SHARD,
        column("topic", ExportKind.TEXT, "The topic.", attrgetter("partition.topic")),
        column("topic_id", ExportKind.TEXT, "Its id: a topic made anew has another one."),
        column("partition", ExportKind.INT32, "The partition.", attrgetter("partition.partition")),
        column(
            "kind",
            ExportKind.TEXT,
            "`owned`, `revoking` (told to give it up) or `unowned`.",
            lambda row: row.kind.value,
        ),
        maybe("member_id", ExportKind.TEXT, "Whose it was; null: nobody's."),
        column("epoch", ExportKind.INT32, "The group epoch when it began."),
        column("from_index", ExportKind.INT64, "The entry that began it."),
        column("from_ms", ExportKind.INT64, "When that was."),
        maybe("to_index", ExportKind.INT64, "The entry that ended it; null: it had not ended."),
        maybe("to_ms", ExportKind.INT64, "When that was."),
        maybe("duration_ms", ExportKind.INT64, "How long it lasted.", lasted("from_ms", "to_ms")),
    ),
)

_COMMITS = Table(
    name="commits",
    means="One row for each committed offset, and for each that was removed.",
    columns=(
        _GROUP,
        _SHARD,
        column("topic", ExportKind.TEXT, "The topic.", attrgetter("partition.topic")),
        column("partition", ExportKind.INT32, "The partition.", attrgetter("partition.partition")),
        column("raft_index", ExportKind.INT64, "The entry.", attrgetter("index")),
        column("timestamp_ms", ExportKind.INT64, "When it was written."),
        maybe("offset", ExportKind.INT64, "The offset; null: what was committed is removed."),
        maybe(
            "leader_epoch", ExportKind.INT32, "The leader epoch that the client gave.", known("leader_epoch")
        ),
        maybe("metadata", ExportKind.TEXT, "What the client wrote beside it.", known("metadata")),
        maybe(
            "member_id", ExportKind.TEXT, "The member; null: a client without membership.", known("member_id")
        ),
        maybe("member_epoch", ExportKind.INT32, "Its member epoch.", known("member_epoch")),
        column(
            "sequence", ExportKind.INT32, "The record's place in the entry, from 0: the later one counts."
        ),
    ),
)

_SESSIONS = Table(
    name="member_sessions",
    means="One row for each stay of a member in a group.",
    columns=(
        _GROUP,
        _SHARD,
        column("member_id", ExportKind.TEXT, "The member."),
        maybe("instance_id", ExportKind.TEXT, "Its group.instance.id."),
        column("client_id", ExportKind.TEXT, "What its client calls itself."),
        column("client_host", ExportKind.TEXT, "From where it came."),
        column("from_index", ExportKind.INT64, "The entry that admitted it, or the first one known."),
        column("from_ms", ExportKind.INT64, "When that was."),
        maybe("to_index", ExportKind.INT64, "The entry that removed it; null: it was there at the end."),
        maybe("to_ms", ExportKind.INT64, "When that was."),
        maybe("duration_ms", ExportKind.INT64, "How long it stayed.", lasted("from_ms", "to_ms")),
        column(
            "end",
            ExportKind.TEXT,
            "`left`, `session expired`, `rebalance expired`, `removed`, `replaced`, `open`, `unknown`.",
            lambda row: row.end.value,
        ),
        maybe("timeout_ms", ExportKind.INT64, "The timeout that ended it (a span)."),
        maybe("last_heartbeat_ms", ExportKind.INT64, "Its last heartbeat, of one that expired."),
        maybe("deadline_ms", ExportKind.INT64, "When it was to be heard of at the latest."),
        maybe("rebalance_timeout_ms", ExportKind.INT64, "As it last said (a span)."),
        column("rejoins", ExportKind.INT32, "How often it joined again with epoch 0."),
        column(
            "aways",
            ExportKind.INT32,
            "How often it was away (static membership).",
            lambda row: len(row.aways),
        ),
        maybe("replaced", ExportKind.TEXT, "The member id whose place it took."),
        column("is_begin_known", ExportKind.BOOL, "False: it was admitted before what was read."),
    ),
)

_FAILOVERS = Table(
    name="failovers",
    means="One row for each term of each shard: failovers, hand-overs and starts.",
    columns=(
        column("shard", ExportKind.INT32, "The shard; -1 is the metadata shard."),
        column("term", ExportKind.INT64, "The term."),
        column("raft_index", ExportKind.INT64, "Its first entry.", attrgetter("index")),
        column("timestamp_ms", ExportKind.INT64, "When that was written."),
        column("node_id", ExportKind.INT32, "The node that leads in it."),
        maybe("previous_leader", ExportKind.INT32, "The node that led before.", known("previous_leader")),
        column("why", ExportKind.TEXT, "`START`, `EXPIRY`, `RESET` or `TRANSFER`."),
        column("is_takeover", ExportKind.BOOL, "True: a failover or a hand-over."),
        maybe("gap_ms", ExportKind.INT64, "How long since the entry before: at most so long nobody led."),
    ),
)

_FINDINGS = Table(
    name="findings",
    means="One row for each diagnosis (docs/history.md has the rules).",
    columns=(
        column("kind", ExportKind.TEXT, "The rule's name."),
        column("severity", ExportKind.TEXT, "`note`, `warning` or `error`.", lambda row: row.severity.value),
        _GROUP,
        _SHARD,
        column("epochs", ExportKind.INTS, "The epochs that it disturbed.", lambda row: list(row.epochs)),
        column("members", ExportKind.TEXTS, "Who is to blame or was hit.", lambda row: list(row.members)),
        column(
            "partitions",
            ExportKind.TEXTS,
            "Partitions, as `orders-3`.",
            lambda row: [str(one) for one in row.partitions],
        ),
        column("from_index", ExportKind.INT64, "The entry with which it began."),
        column("from_ms", ExportKind.INT64, "When that was."),
        maybe("to_index", ExportKind.INT64, "The entry with which it ended; null: it had not."),
        maybe("to_ms", ExportKind.INT64, "When that was."),
        column("words", ExportKind.TEXT, "What was found, in a sentence or two."),
        column(
            "rests_on",
            ExportKind.INTS,
            "Indexes of the entries that show it.",
            lambda row: list(row.rests_on),
        ),
        column("is_certain", ExportKind.BOOL, "False: evidence beside the log was used or is missing."),
    ),
)

_WAITS = Table(
    name="waits",
    means="One row for each time that a member had to wait for a partition that another one still held.",
    columns=(
        column("group_id", ExportKind.TEXT, "The group.", attrgetter("wait.group_id")),
        column("shard", ExportKind.INT32, "Its shard.", attrgetter("epoch.shard")),
        column("epoch", ExportKind.INT32, "The group epoch when it began.", attrgetter("wait.epoch")),
        column("topic", ExportKind.TEXT, "The topic.", attrgetter("wait.partition.topic")),
        column("partition", ExportKind.INT32, "The partition.", attrgetter("wait.partition.partition")),
        column("waiter", ExportKind.TEXT, "The member that waited.", attrgetter("wait.waiter")),
        column("holder", ExportKind.TEXT, "The member that held it.", attrgetter("wait.holder")),
        column(
            "from_index", ExportKind.INT64, "The entry with which it began.", attrgetter("wait.from_index")
        ),
        column("from_ms", ExportKind.INT64, "When that was.", attrgetter("wait.from_ms")),
        maybe(
            "told_index",
            ExportKind.INT64,
            "The entry that told the holder to give it up.",
            attrgetter("wait.told_index"),
        ),
        maybe("told_ms", ExportKind.INT64, "When that was.", attrgetter("wait.told_ms")),
        maybe(
            "to_index",
            ExportKind.INT64,
            "The entry that ended it; null: it had not ended.",
            attrgetter("wait.to_index"),
        ),
        maybe("to_ms", ExportKind.INT64, "When that was.", attrgetter("wait.to_ms")),
        maybe("duration_ms", ExportKind.INT64, "How long it lasted.", lasted("wait.from_ms", "wait.to_ms")),
        column(
            "end",
            ExportKind.TEXT,
            "`released`, `fenced`, `left`, `overtaken`, `open` or `unknown`.",
            lambda row: row.wait.end.value,
        ),
    ),
)

SCHEMAS: dict[str, Table] = {
    table.name: table
    for table in (
        _RECORDS,
        _EPOCHS,
        _MOVES,
        _OWNERSHIP,
        _COMMITS,
        _SESSIONS,
        _FAILOVERS,
        _WAITS,
        _FINDINGS,
    )
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
