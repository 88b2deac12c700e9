"""Tables for tests of the report: those of a log as plain history fills them, and years of many groups."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from history.export.columns import ColumnKind
from history.export.schema import SCHEMAS
from history.export.sources import ShardRows
from history.moments import LogWindow
from history.reading.node import NodeLog
from quorate.spark.schema import TABLES, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tables = Callable[[str], "DataFrame"]
YEARS_FROM = "timestamp'2024-01-15 00:00:00'"
YEARS_DAYS = 900
STABLE_SECONDS = "pow(10, pmod(hash(id, 3), 700) / 200.0)"


def plain_tables(spark: SparkSession, log: NodeLog) -> Tables:
    """Return the tables as plain history fills them."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in SCHEMAS}
    catalog = log.catalog()
    for shard in log.shards:

        def take(table: str, row: object) -> None:
            columns = SCHEMAS[table].columns
            made = zip(columns, SCHEMAS[table].values(row), strict=True)
            rows[table].append({one.name: value for one, value in made})

        ShardRows(shard, catalog, tuple(SCHEMAS), None, LogWindow(), take).run(log.reader(shard))

    @cache
    def table(name: str) -> DataFrame:
        if name == "records":
            moments = [(one["shard"], one["raft_index"], _time(one["timestamp_ms"])) for one in rows[name]]
            return spark.createDataFrame(moments, "shard int, raft_index bigint, timestamp timestamp")
        exported = SCHEMAS[name].columns
        made = [("c", *(_value(one.kind, row[one.name]) for one in exported)) for row in rows[name]]
        return spark.createDataFrame(made, spark_type(TABLES[name].columns))

    return table


def _value(kind: ColumnKind, value: Any) -> Any:
    return _time(value) if kind is ColumnKind.MOMENT and value is not None else value


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _one_of(*words: str) -> str:
    return f"element_at(array{words!r}, cast(pmod(hash(id, 5), {len(words)}) + 1 as int))"


def tables_of_years(spark: SparkSession, *, groups: int, rows: int) -> Tables:
    """Return tables of `YEARS_DAYS` days: ``rows`` epochs, ownership spans and sessions, fewer findings."""
    columns = {
        "group_epochs": {
            "epoch": "cast(id as int)",
            "epoch_before": "cast(id - 1 as int)",
            "trigger": _one_of("MEMBER_JOINED", "MEMBER_LEFT", "SESSION_EXPIRED"),
            "num_members": "3",
            "num_moves": "cast(id % 5 as int)",
            "settled_time": f"if(id % 11 = 0, null, {{at}} + make_dt_interval(0, 0, 0, {STABLE_SECONDS}))",
            "time_to_stable_ms": f"if(id % 11 = 0, null, cast(1000 * {STABLE_SECONDS} as bigint))",
            "overtaken_by": "if(id % 11 = 0, cast(id + 1 as int), null)",
            "end_time": "{at} + interval 3 hours",
            "is_begin_known": "true",
        },
        "ownership": {
            "kind": "if(id % 4 = 0, 'unowned', 'owned')",
            "topic": "'orders'",
            "partition": "cast(id % 12 as int)",
            "from_time": "{at}",
            "to_time": "{at} + make_dt_interval(0, 0, 0, cast(id % 90 as decimal(18,6)))",
        },
        "member_sessions": {
            "member_id": "concat('member-', id)",
            "client_id": "concat('consumer-', {group}, '-', hash(id) % 4)",
            "instance_id": "if(id % 2 = 0, concat('instance-', id % 3), null)",
            "client_host": "concat('/10.0.0.', id % 250)",
            "from_time": "{at}",
            "duration_ms": "id % 100000",
            "end": _one_of("left", "session expired", "open"),
            "rejoins": "0",
            "aways": "0",
        },
        "findings": {
            "kind": _one_of("FLAPPING_MEMBER", "REBALANCE_STORM", "SESSION_EXPIRED"),
            "severity": _one_of("error", "warning", "note"),
            "members": "array(concat('member-', id))",
            "from_index": "id",
            "from_time": "{at}",
            "words": "concat('group `', {group}, '` lost a member: its session expired, number ', id)",
        },
        "commits": {"offset": "id", "timestamp": "{at}"},
        "moves": {"source": "'a'", "target": "'b'"},
        "failovers": {
            "is_takeover": "true",
            "node_id": "cast(id % 3 as int)",
            "previous_leader": "cast((id + 1) % 3 as int)",
            "why": "'expiry'",
            "gap_ms": "id % 4000",
        },
        "records": {"raft_index": "id"},
    }
    few = {"findings": rows // 10, "failovers": 300}

    def table(name: str) -> DataFrame:
        number = few.get(name, rows)
        seconds = f"cast(id * {YEARS_DAYS * 86_400 / number} as decimal(18,6))"
        at = f"({YEARS_FROM} + make_dt_interval(0, 0, 0, {seconds}))"
        number_of_group = f"cast(pow(pmod(hash(id, 7), 1000003) / 1000003.0, 2) * {groups} as int)"
        group = f"concat('production.payments-', {number_of_group})"
        given = {"timestamp": "{at}", "group_id": "{group}", "shard": "0"} | columns[name]
        fields = spark_type(TABLES[name].columns).fields
        made = [
            f"cast({given.get(one.name, 'null').format(at=at, group=group)} as {one.dataType.simpleString()})"
            f" as `{one.name}`"
            for one in fields
        ]
        return spark.range(number).selectExpr(*made)

    return table
