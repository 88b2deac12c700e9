"""Records of any log as rows of `RECORD_COLUMNS`, decoded one by one in plain Python, to compare with.

`rows_of` walks a log that `history` can open, or one that a test wrote in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from history.reading.node import NodeLog
from history.reading.source import Reader, Walk
from history.state.embedded import assigned, subscribed
from history.words import reason_names, state_name, trigger_name, type_name
from quorate.spark.schema import (
    RECORD_COLUMNS,
    TABLES,
    ColumnKind,
    TableColumn,
    arrow_type,
    ms_name,
    spark_type,
)
from raftlog.storage.frames import Frame
from records import (
    RawRecord,
    RecordsError,
    RecordType,
    TopicPartitions,
    decode_cause,
    decode_key,
    decode_value,
    group_id_of,
    iter_records,
)
from records.entry import cause_bytes
from records.ids import topic_id_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLUSTER = "tests"
NAMES = [column.name for column in RECORD_COLUMNS]
Row = dict[str, Any]


def moment(ms: int) -> datetime:
    """Return a moment in ms as Arrow's timestamps are in Python."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def ms_of(value: Any) -> Any:
    """Return a moment of Arrow or Spark in ms, as an export has it, and any other value as it is."""
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


def as_exported(row: Mapping[str, Any]) -> Row:
    """Return a row of Arrow or Spark with the names and values that an export gives its moments."""
    return {
        ms_name(name) if name == "timestamp" or name.endswith("_time") else name: ms_of(value)
        for name, value in row.items()
    }


def exported_names(columns: Iterable[TableColumn]) -> list[str]:
    """Return the names that an export gives these columns."""
    return [ms_name(one.name) if one.kind is ColumnKind.MOMENT else one.name for one in columns]


def table_frame(spark: SparkSession, name: str, rows: Iterable[Row]) -> DataFrame:
    """Return a DataFrame like a table, from rows with the names and values of an export; nulls anywhere."""
    import pyarrow as pa

    columns = [replace(one, is_required=False) for one in TABLES[name].columns]
    moments = [one.name for one in columns if one.kind is ColumnKind.MOMENT]
    data = [{**row, **{at: _moment_in(row, at) for at in moments}} for row in rows]
    made = pa.Table.from_pylist(data, schema=arrow_type(columns))
    return spark.createDataFrame(made, spark_type(columns)).repartition(3)


def _moment_in(row: Row, name: str) -> datetime | None:
    ms = row.get(ms_name(name))
    return None if ms is None else moment(ms)


def rows_of(log: NodeLog, cluster_id: str = CLUSTER) -> Iterator[Row]:
    """Yield every record of every shard, from the entries that can be read."""
    for shard in log.shards:
        yield from rows_of_shard(log.reader(shard), shard, cluster_id)


def rows_of_shard(reader: Reader, shard: int, cluster_id: str = CLUSTER) -> Iterator[Row]:
    """Yield the records of entries; a bridging snapshot replaces missing ones, at its last index."""
    for item in Walk(shard, reader):
        if isinstance(item, Frame):
            yield from rows_of_frame(item, shard, cluster_id)
        elif hasattr(item, "header"):
            header = item.header
            where = {
                "raft_index": header.last_index,
                "term": header.last_term,
                "timestamp": moment(header.last_timestamp_ms),
            }
            for sequence, raw in enumerate(item.records):
                yield row(raw, cluster_id=cluster_id, shard=shard, sequence=sequence, **where)


def rows_of_frame(frame: Frame, shard: int, cluster_id: str = CLUSTER) -> Iterator[Row]:
    cause = decode_cause(frame.body)
    said = {
        "trigger": trigger_name(cause.trigger),
        "reasons": reason_names(cause),
        "cause_member_id": cause.member_id or None,
        "cause_member_epoch": _known(cause.member_epoch),
        "principal": cause.principal or None,
        "address": cause.address or None,
        "join_began_time": None if cause.phases is None else moment(cause.phases.began_ms),
        "cause_bytes": bytes(cause_bytes(frame.body)),
    }
    for sequence, raw in enumerate(iter_records(frame.body)):
        yield row(
            raw,
            cluster_id=cluster_id,
            shard=shard,
            raft_index=frame.index,
            term=frame.term,
            timestamp=moment(frame.timestamp_ms),
            sequence=sequence,
            **said,
        )


def row(raw: RawRecord, **where: Any) -> Row:
    """Return one record as a row; columns that do not apply are null."""
    found: Row = dict.fromkeys(NAMES)
    found.update(where)
    found.update(
        type=int(raw.type),
        type_name=type_name(raw.type),
        version=raw.version,
        is_tombstone=raw.value is None,
        key_bytes=bytes(raw.key),
        value_bytes=None if raw.value is None else bytes(raw.value),
    )
    try:
        key: Any = decode_key(raw)
    except RecordsError:
        return found
    found["group_id"] = group_id_of(raw)
    found["member_id"] = getattr(key, "member_id", None)
    found["topic"] = getattr(key, "topic", None) or getattr(key, "name", None)
    found["partition"] = getattr(key, "partition", None)
    found["producer_id"] = getattr(key, "producer_id", None)
    if raw.value is not None:
        found.update(_of_value(raw.type, decode_value(raw)))
    return found


def _classic(member: Any) -> Row:
    return {
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "topics": sorted(set(subscribed(member))),
        "assigned": {topic: sorted(numbers) for topic, numbers in sorted(assigned(member).items())},
    }


def _of_value(type_: int, value: Any) -> Row:
    match type_:
        case RecordType.OFFSET_COMMIT | RecordType.OFFSET_COMMIT_LEGACY | RecordType.PENDING_OFFSET:
            return {
                "offset": value.offset,
                "leader_epoch": _known(value.leader_epoch),
                "metadata": value.metadata or None,
            }
        case RecordType.GROUP_METADATA:
            return {
                "epoch": value.generation,
                "protocol_type": value.protocol_type or None,
                "members": json.dumps([_classic(one) for one in value.members], separators=(",", ":")),
            }
        case RecordType.CONSUMER_GROUP_METADATA:
            return {"epoch": value.epoch}
        case RecordType.CONSUMER_GROUP_MEMBER_METADATA:
            return {
                "client_id": value.client_id,
                "client_host": value.client_host,
                "instance_id": value.instance_id,
            }
        case RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA:
            return {"epoch": value.assignment_epoch}
        case RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER:
            return {"epoch": _known(value.assignment_epoch), "assigned": _parts(value.topic_partitions)}
        case RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT:
            return {
                "epoch": value.member_epoch,
                "previous_epoch": value.previous_member_epoch,
                "member_state": state_name(value.state),
                "assigned": _parts(value.assigned_partitions),
                "pending": _parts(value.partitions_pending_revocation),
            }
    return {}


def _known(number: int) -> int | None:
    return None if number == -1 else number


def _parts(parts: Iterable[TopicPartitions]) -> list[Row]:
    return [{"topic_id": topic_id_text(one.topic_id), "partitions": list(one.partitions)} for one in parts]


def records_frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """Return a DataFrame like that of the source, with raw columns; the rows are in no particular order."""
    import pyarrow as pa

    data = pa.Table.from_pylist(list(rows), schema=arrow_type(RECORD_COLUMNS))
    return spark.createDataFrame(data, spark_type(RECORD_COLUMNS)).repartition(3)
