"""Every two options of the source together: rows must pass both, or the pair is refused.

The oracle is the full set of rows, filtered and cut to columns in plain Python. Invariants: no option is
without effect beside another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")
pytest.importorskip("pyspark", reason="needs the extra spark")

from history.reading.node import ShardFiles
from quorate.spark.errors import OptionError
from quorate.spark.source.options import OPTIONS, Rows
from tests.pipeline.rows import moment
from tests.pipeline.source_rows import Row, rows_of

GROUP = "orders-service-00003"
FIRST, LAST = 400, 1_000
"""Requested indexes, with segments and snapshots on both sides."""

Passes = Callable[[Row], bool]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A value of an option, and the rows that pass it."""

    value: str
    passes: Passes = lambda row: True
    columns: tuple[str, ...] | None = None
    adds: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Log:
    """All rows of one kind, with every column, and the options to try."""

    path: str
    rows: list[Row]
    asked: dict[str, Asked] = field(default_factory=dict)


def _asked(first_ms: int, last_ms: int) -> dict[str, Asked]:
    ranges = f'{{"0": [null, {LAST}]}}'
    return {
        "shards": Asked(value="0", passes=lambda row: row["shard"] == 0),
        "types": Asked(value="OffsetCommit,8", passes=lambda row: row["type"] in (1, 8)),
        "groups": Asked(value=GROUP, passes=lambda row: row["group_id"] == GROUP),
        "from_index": Asked(value=str(FIRST), passes=lambda row: row["raft_index"] >= FIRST),
        "to_index": Asked(value=str(LAST), passes=lambda row: row["raft_index"] <= LAST),
        "from_time": Asked(value=str(first_ms), passes=lambda row: row["timestamp"] >= moment(first_ms)),
        "to_time": Asked(value=str(last_ms), passes=lambda row: row["timestamp"] <= moment(last_ms)),
        "columns": Asked(value="raft_index,term", columns=("raft_index", "term")),
        "raw": Asked(value="true", adds=("key_bytes", "value_bytes", "cause_bytes")),
        "mode": Asked(value="permissive", adds=("damage",)),
        "ranges": Asked(value=ranges, passes=lambda row: row["shard"] == 0 and row["raft_index"] <= LAST),
    }


REFUSED = {
    Rows.RECORDS: set[str](),
    Rows.ENTRIES: {"types", "groups", "raw"},
    Rows.SNAPSHOT: {"from_index", "from_time"},
}
"""Options that do not apply to a kind of rows; every other pair must work."""


@pytest.fixture(scope="module")
def logs(mixed_log: str) -> dict[Rows, Log]:
    reader = ShardFiles(mixed_log, 0)
    at = {frame.index: frame.timestamp_ms for frame in reader.frames()}
    asked = _asked(at[FIRST + 100], at[LAST + 100])
    everything = {"raw": "true", "mode": "permissive"}
    snapshots = [
        row
        for header in reader.snapshots()
        for row in rows_of(
            mixed_log, rows="snapshot", shards="0", to_index=str(header.last_index), **everything
        )
    ]
    return {
        Rows.RECORDS: Log(path=mixed_log, rows=rows_of(mixed_log, **everything), asked=asked),
        Rows.ENTRIES: Log(
            path=mixed_log, rows=rows_of(mixed_log, rows="entries", mode="permissive"), asked=asked
        ),
        Rows.SNAPSHOT: Log(path=mixed_log, rows=snapshots, asked=asked),
    }


NAMES = tuple(_asked(0, 0))


def test_every_option_is_asked_for() -> None:
    assert set(NAMES) == set(OPTIONS) - {"path", "rows"}


@pytest.mark.parametrize("rows", REFUSED)
def test_each_option_by_itself_leaves_some_rows_and_not_all(logs: dict[Rows, Log], rows: Rows) -> None:
    """Otherwise the pairs would prove nothing."""
    log = logs[rows]
    of_one_shard = {"shards"} if rows is Rows.SNAPSHOT else set[str]()  # the other one has no snapshot
    for name in set(NAMES) - REFUSED[rows] - of_one_shard:
        one = log.asked[name]
        assert expected(log, rows, {name: one}) != expected(log, rows, {}), name
        assert expected(log, rows, {name: one}), name


@pytest.mark.parametrize("rows", REFUSED)
@pytest.mark.parametrize("names", [*combinations(NAMES, 2)], ids="-".join)
def test_both_count_or_they_are_refused(logs: dict[Rows, Log], rows: Rows, names: tuple[str, str]) -> None:
    log = logs[rows]
    asked = {name: log.asked[name] for name in names}
    options = {"rows": str(rows), **{name: one.value for name, one in asked.items()}}
    if REFUSED[rows].isdisjoint(names):
        assert in_order(rows_of(log.path, **options)) == in_order(expected(log, rows, asked))
    else:
        with pytest.raises(OptionError, match=f"does not apply to rows={rows}"):
            rows_of(log.path, **options)


def expected(log: Log, rows: Rows, asked: dict[str, Asked]) -> list[Row]:
    """Return the rows that pass all options; of several snapshots, only those of the newest."""
    places = [name for name in asked if name not in ("types", "groups")] if rows is Rows.SNAPSHOT else asked
    found = [row for row in log.rows if all(asked[name].passes(row) for name in places)]
    if rows is Rows.SNAPSHOT:
        newest = max((row["raft_index"] for row in found), default=0)
        found = [row for row in found if row["raft_index"] == newest]
        found = [row for row in found if all(one.passes(row) for one in asked.values())]
    extra = [name for name in ("key_bytes", "value_bytes", "cause_bytes", "damage") if name in log.rows[0]]
    added = {name for one in asked.values() for name in one.adds}
    chosen = next((one.columns for one in asked.values() if one.columns), None)
    if chosen:
        names = [*chosen, *(name for name in extra if name in added)]
    else:
        names = [name for name in log.rows[0] if name not in extra or name in added]
    return [{name: row[name] for name in names} for row in found]


def in_order(rows: list[Row]) -> list[str]:
    """Sort by content: without the columns of their position, rows have no order of their own."""
    return sorted(map(repr, rows))
