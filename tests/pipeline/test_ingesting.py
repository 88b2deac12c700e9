"""Commits and failovers out of rows of `records`, as `quorate log export` has them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa

from quorate.spark.runs.ingesting import IngestResult, Run, commits_of, joined, note_entries
from quorate.spark.runs.rows import table_rows
from quorate.spark.runs.terms import Place, terms_begun
from quorate.spark.schema import RECORD_COLUMNS, TABLES, arrow_type, micros
from records import Record, RecordType, TermStartKey, TermStartValue, TermWhy, encode_record

AS_READ = pa.schema([one.with_nullable(True) for one in arrow_type(RECORD_COLUMNS)])


def rows(*given: dict[str, Any]) -> pa.Table:
    """Return rows of `records`; missing columns are null."""
    plain = {"cluster_id": "c", "shard": 0, "sequence": 0}
    made = [{**plain, **one, "timestamp": micros(one.get("timestamp_ms", 0))} for one in given]
    return pa.Table.from_pylist(made, AS_READ)


def failovers(*chunks: pa.Table, ends: dict[Place, int]) -> pa.Table:
    """Return the failovers of records that a task reads in these chunks."""
    found = IngestResult()
    for chunk in chunks:
        note_entries(found, chunk)
    again = IngestResult()
    again.take(found.packed())  # as the driver sees it
    return table_rows("failovers", "c", terms_begun(again.starts, ends))


def term(index: int, ms: int, term: int, *, before: int = -1, why: int = TermWhy.START) -> dict[str, Any]:
    value = TermStartValue(
        term=term, node_id=1 + term % 3, previous_leader=before, why=why, incarnation="i", boot_id="b"
    )
    raw = encode_record(Record(TermStartKey(), value))
    return {
        "raft_index": index,
        "timestamp_ms": ms,
        "term": term,
        "type": int(raw.type),
        "version": raw.version,
        "value_bytes": raw.value,
    }


def commit(index: int, **given: Any) -> dict[str, Any]:
    plain = {"type": int(RecordType.OFFSET_COMMIT), "group_id": "g", "topic": "t", "partition": 0}
    return {"raft_index": index, "timestamp_ms": 1_000 + index, **plain, **given}


def test_a_commit_says_null_where_nothing_is_said() -> None:
    records = rows(
        commit(1, offset=7, leader_epoch=-1, metadata="", cause_member_id="", cause_member_epoch=-1),
        commit(
            2, sequence=2, offset=8, leader_epoch=3, metadata="m", cause_member_id="ann", cause_member_epoch=4
        ),
        commit(3, is_tombstone=True, cause_member_id="ann", cause_member_epoch=4),
        commit(4, shard=-1, offset=9),
        {"raft_index": 5, "type": int(RecordType.CONSUMER_GROUP_METADATA), "group_id": "g", "offset": 1},
    )
    made = commits_of(records)
    assert made.column_names == TABLES["commits"].names
    made = made.set_column(6, "timestamp", made.column("timestamp").cast(pa.int64()))
    assert [tuple(row.values())[5:] for row in made.to_pylist()] == [
        (1, 1_001_000, 7, None, None, None, None, 0),
        (2, 1_002_000, 8, 3, "m", "ann", 4, 2),
        (3, 1_003_000, None, None, None, "ann", 4, 0),
    ]


def test_a_terms_gap_is_since_the_entry_before_it_wherever_that_is() -> None:
    """The entry before is in the same chunk, in the one before, at the end of an earlier run, or unknown."""
    chunks = (
        rows(
            term(1, 1_000, 1), commit(2, timestamp_ms=1_100), {**commit(2, timestamp_ms=1_100), "sequence": 1}
        ),
        rows(
            term(3, 1_600, 2, before=2, why=TermWhy.EXPIRY),
            term(4, 1_650, 3, before=1),
            {**term(2, 1_150, 1), "shard": 1},
            {**term(9, 9_000, 5, before=1, why=TermWhy.TRANSFER), "shard": 2},
            {**term(9, 9_000, 5), "shard": 3},
        ),
    )
    made = failovers(*chunks, ends={(2, 8): 8_900, (3, 7): 8_900})
    assert made.column_names == TABLES["failovers"].names
    found = {(row["shard"], row["raft_index"]): row for row in made.to_pylist()}
    assert {at: row["gap_ms"] for at, row in found.items()} == {
        (0, 1): None,
        (0, 3): 500,
        (0, 4): 50,
        (1, 2): None,
        (2, 9): 100,
        (3, 9): None,
    }
    took_over, first = found[0, 3], found[0, 1]
    assert (took_over["term"], took_over["node_id"], took_over["previous_leader"]) == (2, 3, 2)
    assert (took_over["why"], took_over["is_takeover"]) == ("EXPIRY", True)
    assert (first["previous_leader"], first["why"], first["is_takeover"]) == (None, "START", False)


def test_a_term_of_a_newer_release_is_passed_over() -> None:
    newer = {**term(1, 1_000, 1), "version": 99}
    made = failovers(rows(newer, term(2, 2_000, 2)), ends={})
    assert made.column("raft_index").to_pylist() == [2]


def test_a_task_says_which_entries_it_read() -> None:
    found = IngestResult()
    note_entries(found, rows(commit(3), commit(1), {**commit(3), "sequence": 1}, commit(2)))
    note_entries(found, rows(commit(4), commit(7), {**commit(9, timestamp_ms=4), "shard": 1}))
    assert found.runs == {0: [Run(1, 4, 1_001, 1_004), Run(7, 7, 1_007, 1_007)], 1: [Run(9, 9, 4, 4)]}
    assert joined([Run(5, 6, 50, 60), *found.runs[0]]) == [Run(1, 7, 1_001, 1_007)]
