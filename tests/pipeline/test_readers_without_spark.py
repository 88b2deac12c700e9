"""Tables in pandas and DuckDB by `arrow_table`: every moment, null and integer as it is in the table."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from quorate.spark.schema import MS_MAX, MS_MIN, micros
from quorate.spark.tables import Output, arrow_table

from .lake import CLUSTER, rows_of, written

GIVEN = {"a": MS_MIN, "b": -1, "c": 0, "d": 1_700_000_000_123, "e": MS_MAX, "f": None}
"""The ends of spans by group, in ms since 1970."""


@pytest.fixture
def spans(tmp_path: Path) -> pa.Table:
    """Table `ownership`, whose spans end at the first and last moments that SQL has, or not at all."""
    ends = [None if ms is None else micros(ms) for ms in GIVEN.values()]
    rows = rows_of("ownership", *GIVEN, to_time=ends, to_index=[1, None, 3, None, 5, 6])
    place = str(tmp_path)
    with Output.open(place, cluster_id=CLUSTER, num_shards=1) as output, output.begin() as transaction:
        transaction.add(written(output, "ownership", rows))
        transaction.commit(output.progress)
    return arrow_table(tmp_path, "ownership")


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Chatham"])
def test_duckdb_has_every_moment_in_any_zone(spans: pa.Table, zone: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as database:
        database.register("ownership", spans)
        database.execute(f"SET TimeZone = '{zone}'")
        found = database.sql(
            "SELECT group_id, epoch_ms(to_time), to_index FROM ownership ORDER BY 1"
        ).fetchall()
        back = database.sql("SELECT * FROM ownership").to_arrow_table()
    assert {group: ms for group, ms, _ in found} == GIVEN
    assert [index for *_, index in found] == [1, None, 3, None, 5, 6]
    assert back["to_time"].cast(pa.int64()).to_pylist() == spans["to_time"].cast(pa.int64()).to_pylist()


def test_pandas_with_arrow_types_has_every_moment_and_integers_beside_nulls(spans: pa.Table) -> None:
    pandas = pytest.importorskip("pandas")
    frame = spans.to_pandas(types_mapper=pandas.ArrowDtype).sort_values("group_id")
    assert str(frame["to_index"].dtype) == "int64[pyarrow]"
    assert [None if pandas.isna(one) else one for one in frame["to_index"]] == [1, None, 3, None, 5, 6]
    assert frame["to_time"].isna().tolist() == [ms is None for ms in GIVEN.values()]
    back = pa.Table.from_pandas(frame, schema=spans.schema, preserve_index=False)
    assert back == spans
    shown = frame.set_index("group_id")["to_time"]["d"]
    assert shown == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
