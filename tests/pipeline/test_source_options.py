"""Every option of the source: the rows it leaves out, and the values that are refused."""

from __future__ import annotations

import json
import re
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")
pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql.types import StructType

from history.export.columns import text
from quorate.spark.errors import NoSpark, OptionError
from quorate.spark.schema import DAMAGE, ENTRY_COLUMNS, RECORD_COLUMNS, spark_type
from quorate.spark.source.options import OPTIONS, WantedRange, parse_options
from quorate.spark.source.plan import plan
from tests.pipeline.rows import ms_of
from tests.pipeline.source_rows import Row, rows_of
from tests.support.recorded_incident import INCIDENT

MIDDLE = 500


@pytest.fixture(scope="module")
def everything(mixed_log: str) -> list[Row]:
    return rows_of(mixed_log)


def test_types_by_number_and_by_any_spelling_of_the_name(mixed_log: str, everything: list[Row]) -> None:
    expected = [row for row in everything if row["type"] in (3, 1000)]
    assert expected
    for said in ("3,1000", "ConsumerGroupMetadata,TermStart", " CONSUMER_GROUP_METADATA , term_start"):
        assert rows_of(mixed_log, types=said) == expected
    assert rows_of(mixed_log, types="77") == []


def test_groups_by_commas_and_as_json(mixed_log: str, everything: list[Row]) -> None:
    names = ["orders-service-00003", "orders-service-00011"]
    expected = [row for row in everything if row["group_id"] in names]
    assert len(expected) > 100
    assert rows_of(mixed_log, groups=", ".join(names)) == expected
    assert rows_of(mixed_log, groups=json.dumps(names)) == expected
    assert rows_of(mixed_log, groups="nobody") == []


def test_a_group_with_columns_that_do_not_show_it(mixed_log: str, everything: list[Row]) -> None:
    name = "orders-service-00003"
    found = rows_of(mixed_log, groups=name, columns="offset,raft_index")
    expected = [row for row in everything if row["group_id"] == name]
    assert [row["raft_index"] for row in found] == [row["raft_index"] for row in expected]
    assert list(found[0]) == ["offset", "raft_index"]


def test_indexes_and_times_with_both_ends(mixed_log: str, everything: list[Row]) -> None:
    low, high = MIDDLE, MIDDLE + 400
    expected = [row for row in everything if row["shard"] == 0 and low <= row["raft_index"] <= high]
    assert rows_of(mixed_log, shards="0", from_index=str(low), to_index=str(high)) == expected
    first, last = ms_of(expected[0]["timestamp"]), ms_of(expected[-1]["timestamp"])
    assert rows_of(mixed_log, shards="0", from_time=str(first), to_time=str(last)) == expected
    assert rows_of(mixed_log, from_index=str(1 << 40)) == []
    assert rows_of(mixed_log, from_index="-7", to_index=str(1 << 80)) == everything
    assert rows_of(mixed_log, shards="0", from_index=str(MIDDLE), to_index=str(MIDDLE)) == expected[:1]


def test_ranges_by_shard_leave_out_those_that_are_not_named(mixed_log: str, everything: list[Row]) -> None:
    expected = [row for row in everything if row["shard"] == 0 and row["raft_index"] >= MIDDLE]
    assert rows_of(mixed_log, ranges=json.dumps({"0": [MIDDLE, None]})) == expected
    both = rows_of(mixed_log, ranges=json.dumps({"0": [MIDDLE, MIDDLE], "-1": [1, None]}))
    assert {(row["shard"], row["raft_index"]) for row in both} == {(-1, 1), (0, MIDDLE)}
    narrowed = rows_of(mixed_log, ranges=json.dumps({"0": [None, MIDDLE + 1]}), from_index=str(MIDDLE))
    assert {row["raft_index"] for row in narrowed} == {MIDDLE, MIDDLE + 1}
    assert rows_of(mixed_log, ranges="{}") == []
    with pytest.raises(OptionError, match="does not hold shard 7"):
        plan(parse_options({"path": mixed_log, "ranges": '{"0": [1, 2], "7": [1, 2]}'}))


def test_shards_by_number_and_by_name(mixed_log: str, everything: list[Row]) -> None:
    for said, number in (("metadata", -1), ("-1", -1), ("0", 0), ("shard-0", 0)):
        assert rows_of(mixed_log, shards=said) == [row for row in everything if row["shard"] == number]
    with pytest.raises(OptionError, match="does not hold shard 7"):
        plan(parse_options({"path": mixed_log, "shards": "7"}))


@pytest.mark.parametrize("column", [column.name for column in RECORD_COLUMNS])
def test_each_column_by_itself_is_what_it_is_among_all(column: str, mixed_log: str) -> None:
    places = ("shard", "raft_index", "sequence")
    names = [*(name for name in places if name != column), column]
    alone = rows_of(mixed_log, columns=",".join(names), to_index="300")
    assert alone == [
        {name: row[name] for name in names} for row in rows_of(mixed_log, raw="true", to_index="300")
    ]


def test_raw_adds_the_bytes_of_the_log(mixed_log: str) -> None:
    from history.reading.node import ShardFiles
    from records import iter_records
    from records.entry import cause_bytes

    theirs = [
        (frame.index, raw.key, raw.value, cause_bytes(frame.body))
        for frame in ShardFiles(mixed_log, 0).frames()
        for raw in iter_records(frame.body)
    ]
    rows = rows_of(mixed_log, shards="0", raw="true")
    named = ("raft_index", "key_bytes", "value_bytes", "cause_bytes")
    assert [tuple(row[name] for name in named) for row in rows] == theirs
    assert any(row["value_bytes"] is None for row in rows)


def test_permissive_has_damage_for_its_last_column(mixed_log: str) -> None:
    asked = parse_options({"path": mixed_log, "mode": "permissive", "columns": "damage, shard"})
    assert [column.name for column in asked.columns] == ["shard", "damage"]
    assert [c.name for c in parse_options({"path": mixed_log, "mode": "permissive"}).columns][-1] == "damage"


def test_a_schema_names_what_is_read(mixed_log: str) -> None:
    schema = spark_type((RECORD_COLUMNS[4], RECORD_COLUMNS[1]))
    assert [c.name for c in parse_options({"path": mixed_log}, schema).columns] == ["timestamp", "shard"]
    with pytest.raises(OptionError, match="permissive"):
        parse_options({"path": mixed_log, "mode": "permissive"}, schema)
    with pytest.raises(OptionError, match="shard is int, not string"):
        parse_options({"path": mixed_log}, spark_type((text("shard", ""),)))
    with pytest.raises(OptionError, match="no column 'node_id'"):
        parse_options({"path": mixed_log}, spark_type(ENTRY_COLUMNS))
    assert DAMAGE in parse_options({"path": mixed_log, "mode": "permissive"}, spark_type((DAMAGE,))).columns
    with pytest.raises(OptionError, match="the column damage needs mode=permissive"):
        parse_options({"path": mixed_log}, spark_type((DAMAGE,)))
    with pytest.raises(OptionError, match="the schema has no columns"):
        parse_options({"path": mixed_log}, spark_type(()))


def test_spark_is_told_which_columns_are_never_null(mixed_log: str) -> None:
    asked = {"path": mixed_log, "columns": "shard,group_id,type"}
    told = spark_type(parse_options(asked).columns)
    assert [one.nullable for one in told] == [False, True, False]
    harmed = spark_type(parse_options({**asked, "mode": "permissive"}).columns)
    assert [one.nullable for one in harmed] == [False, True, True, True]  # damage has only a position
    caused = {"path": mixed_log, "columns": "trigger,type"}
    kept = spark_type(parse_options({**caused, "rows": "snapshot"}).columns)
    assert [one.nullable for one in kept] == [True, False]
    for schema in (told, spark_type(tuple(replace(one, is_required=False) for one in RECORD_COLUMNS[:3]))):
        assert spark_type(parse_options({"path": mixed_log}, schema).columns) == schema


def test_a_schema_that_denies_nulls_where_there_are_some_is_refused(mixed_log: str) -> None:
    by_name = {column.name: replace(column, is_required=True) for column in RECORD_COLUMNS}
    group, place, term = (spark_type((by_name[name],)) for name in ("group_id", "raft_index", "term"))
    with pytest.raises(OptionError, match="column group_id may be null"):
        parse_options({"path": mixed_log}, group)
    assert parse_options({"path": mixed_log}, place).columns[0].is_required
    assert parse_options({"path": mixed_log}, term).columns[0].is_required
    asked = {"path": mixed_log, "mode": "permissive"}
    assert parse_options(asked, StructType([*place, *spark_type((DAMAGE,))])).columns[0].is_required
    with pytest.raises(OptionError, match="column term may be null"):
        parse_options(asked, StructType([*term, *spark_type((DAMAGE,))]))


@pytest.mark.parametrize("options", [{"columns": "shard,term"}, {"raw": "true"}])
def test_a_schema_beside_other_words_for_columns_says_the_same_or_is_refused(
    mixed_log: str, options: dict[str, str]
) -> None:
    """Spark also passes the columns that the options produced as a schema."""
    asked = {"path": mixed_log, **options}
    same = parse_options(asked).columns
    assert parse_options(asked, spark_type(same)).columns == same
    with pytest.raises(OptionError, match="conflicts with the columns of the schema"):
        parse_options(asked, spark_type(same[1:]))


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "an unknown option": ({"type": "3"}, "no option 'type'"),
    "an unknown type": ({"types": "Offset"}, "no record type 'Offset'"),
    "a type beyond its bounds": ({"types": "70000"}, "no record type '70000'"),
    "an unknown column": ({"columns": "group"}, "no column 'group'"),
    "a column twice": ({"columns": "shard,shard"}, "shard occurs twice"),
    "a shard that is no number": ({"shards": "first"}, "'first' is not a shard"),
    "an index that is none": ({"from_index": "one"}, "from_index='one' is not a number"),
    "a moment that is none": ({"to_time": "noon"}, "to_time='noon' is not a moment"),
    "groups that are no texts": ({"groups": "[1]"}, "not a list of strings"),
    "groups that are no JSON": ({"groups": '["a'}, "not valid JSON"),
    "ranges that are no object": ({"ranges": "[1]"}, "not a JSON object"),
    "ranges of one index": ({"ranges": '{"0": [1]}'}, "not two indexes"),
    "a mode that is none": ({"mode": "dropmalformed"}, "there are fail, permissive"),
    "rows that are none": ({"rows": "groups"}, "there are records, entries"),
    "raw that is neither": ({"raw": "yes"}, "neither true nor false"),
    "types of entries": ({"rows": "entries", "types": "3"}, "types does not apply to rows=entries"),
    "groups of entries": ({"rows": "entries", "groups": "a"}, "groups does not apply to rows=entries"),
    "raw bytes of entries": ({"rows": "entries", "raw": "true"}, "raw does not apply to rows=entries"),
    "a snapshot from an index on": (
        {"rows": "snapshot", "from_index": "3"},
        "from_index does not apply to rows",
    ),
    "a snapshot from a moment on": (
        {"rows": "snapshot", "from_time": "3"},
        "from_time does not apply to rows",
    ),
    "a snapshot of a range": ({"rows": "snapshot", "ranges": '{"0": [3, 9]}'}, "a snapshot has no beginning"),
    "types of spans": ({"rows": "spans", "types": "3"}, "types does not apply to rows=spans"),
    "spans from a moment on": ({"rows": "spans", "from_time": "3"}, "from_time does not apply to rows=spans"),
    "spans that are damaged": ({"rows": "spans", "mode": "permissive"}, "mode does not apply to rows=spans"),
    "no types": ({"types": ""}, "types is empty"),
    "no shards": ({"shards": " , "}, "shards is empty"),
    "no groups": ({"groups": ""}, "groups is empty"),
    "no groups in JSON": ({"groups": "[]"}, "groups is empty"),
    "no columns": ({"columns": ","}, "columns is empty"),
    "damage that nobody asked for": ({"columns": "shard,damage"}, "the column damage needs mode=permissive"),
    "indexes the wrong way round": (
        {"from_index": "9", "to_index": "8"},
        "from_index=9 is after to_index=8",
    ),
    "times the wrong way round": ({"from_time": "9", "to_time": "8"}, "from_time=9 is after to_time=8"),
    "a shard twice": ({"ranges": '{"0": [1, 2], "shard-0": [3, 4]}'}, "shard 0 occurs twice"),
    "a shard twice alike": ({"ranges": '{"0": [1, 2], "0": [3, 4]}'}, "shard 0 occurs twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused_with_what_there_is(name: str) -> None:
    options, said = REFUSED[name]
    with pytest.raises(OptionError) as refused:
        parse_options({"path": str(INCIDENT), **options})
    assert said in str(refused.value)
    assert refused.value.hint


def test_no_path_is_refused() -> None:
    with pytest.raises(OptionError, match="no path"):
        parse_options({})


MOMENTS: list[tuple[str, Any]] = [
    ("1772366400000", 1_772_366_400_000),
    ("2026-03-01T12:00:00Z", 1_772_366_400_000),
    ("2026-03-01 12:00", 1_772_366_400_000),
    ("2026-03-01T13:00:00.25+01:00", 1_772_366_400_250),
]


@pytest.mark.parametrize(("said", "ms"), MOMENTS)
def test_moments(said: str, ms: int) -> None:
    assert parse_options({"path": "x", "from_time": said}).selection.span == WantedRange(from_ms=ms)


def test_every_option_is_in_the_document() -> None:
    text = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
    section = text.split("## The log as a DataFrame")[1].split("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE))))
    assert named == set(OPTIONS) - {"path"}


def test_a_pyspark_without_what_streams_need_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark 4.1 reads logs but lacks a class that the reader of streams imports."""
    pyspark_source = pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs PySpark 4.2")
    from quorate.spark.source.datasource import QuorateSource

    lacking = types.ModuleType(pyspark_source.__name__)
    monkeypatch.setitem(sys.modules, pyspark_source.__name__, lacking)
    monkeypatch.delitem(sys.modules, "quorate.spark.source.stream", raising=False)
    source = QuorateSource({"path": "anywhere"})
    with pytest.raises(NoSpark) as refused:
        source.streamReader(source.schema())
    assert str(refused.value).startswith("PySpark 4.1 has no ")
    assert str(refused.value).endswith(
        "; pip install 'pyspark[sql]>=4.2,<4.4'; spark.read works with this one"
    )
