"""Epochs, owners and double owners by Spark against the facts and tracks of plain `history`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from coordinator.state.group_records import MEMBERSHIP_TYPES
from history.answers.stats import stats
from history.checking.invariants import InvariantChecker
from history.checking.old_groups import ONE_OWNER
from history.facts.change import Partition
from history.reading.node import NodeLog
from quorate.spark.analyses.ownership import double_ownership
from quorate.spark.analyses.unowned import unowned_partition_seconds
from records import Cause, Record, Trigger, group_id_of, iter_records
from records.ids import topic_id_text
from tests.support.group_view import GroupView
from tests.support.memory_log import (
    MemoryReader,
    Writer,
    current,
    gone,
    group_epoch,
    member,
)

from .logs import READ, all_logs, check_columns, columns_of, interpreted, read_by_the_source, table, told
from .randomlogs import random_log
from .rows import Row, exported_names, records_frame, rows_of, table_frame
from .second_opinions import epochs, owners

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def logs(scratch: Path) -> dict[str, NodeLog]:
    """The logs; two of them occur twice, read by plain Python and by the source."""
    written = all_logs(scratch)
    return {**written, **{name + READ: written[name] for name in ("incident", "mixed")}}


@pytest.fixture(scope="module")
def broken() -> dict[str, NodeLog]:
    """Logs in which members own partitions of others, by chance and by plan."""
    random = {f"random-{seed}": random_log(seed) for seed in range(12)}
    return {name: NodeLog(name, {0: log}, 1) for name, log in {**random, "planted": planted()}.items()}


@pytest.fixture(scope="module")
def records(
    spark: SparkSession, scratch: Path, logs: dict[str, NodeLog], broken: dict[str, NodeLog]
) -> DataFrame:
    both = {name: log for name, log in {**logs, **broken}.items() if not name.endswith(READ)}
    plain = records_frame(spark, [row for name, log in both.items() for row in rows_of(log, name)])
    return plain.unionByName(read_by_the_source(spark, scratch)).cache()


@pytest.fixture(autouse=True)
def _interpreted(spark: SparkSession) -> Iterator[None]:
    with interpreted(spark):
        yield


def are_of(rows: list[Row], logs: dict[str, NodeLog]) -> list[Row]:
    return [row for row in rows if row["cluster_id"] in logs]


def test_epochs_by_counting_are_those_of_the_table(records: DataFrame, logs: dict[str, NodeLog]) -> None:
    frame = epochs.epochs_by_counting(records)
    names = exported_names(epochs.COLUMNS)
    found = are_of(told(frame), logs)
    expected = [row for name, log in logs.items() for row in table(log, "group_epochs", name)]
    assert columns_of(found, names) == columns_of(expected, names)
    assert {row["state"] for row in found} >= {"Stable", "Empty", "Reconciling", "Assigning"}
    assert any(row["overtaken_by"] for row in found)
    assert any(row["target_index"] not in (None, row["raft_index"]) for row in found)


def test_intervals_are_those_of_the_table(records: DataFrame, logs: dict[str, NodeLog]) -> None:
    frame = owners.ownership_intervals(records)
    names = exported_names(owners.COLUMNS)
    found = are_of(told(frame), logs)
    expected = [row for name, log in logs.items() for row in owned(log, name)]
    assert columns_of(found, names) == columns_of(expected, names)
    assert {row["kind"] for row in found} == {"owned", "revoking"}


def owned(log: NodeLog, name: str) -> Iterator[Row]:
    """Yield table ownership except unowned partitions; topics are ids if there is no metadata shard."""
    for row in table(log, "ownership", name):
        if row["kind"] != "unowned":
            yield row if -1 in log.shards else {**row, "topic": row["topic_id"]}


def test_double_owners_are_found(
    records: DataFrame, logs: dict[str, NodeLog], broken: dict[str, NodeLog]
) -> None:
    frame = double_ownership(records)
    check_columns(frame, "double_ownership")
    found = told(frame)
    assert are_of(found, logs) == []
    expected = [row for name, log in broken.items() for row in overlaps(log.reader(0), name)]
    names = list(expected[0])
    assert columns_of(found, names) == columns_of(expected, names)
    checked = {(name, group_id) for name, log in broken.items() for group_id in accused(log.reader(0))}
    assert {(row["cluster_id"], row["group_id"]) for row in found} == checked
    assert [
        (
            row["partition"],
            row["holder"],
            row["taker"],
            row["from_index"],
            row["to_index"],
            row["duration_ms"],
        )
        for row in sorted(found, key=lambda row: (row["partition"], row["from_index"]))
        if row["cluster_id"] == "planted"
    ] == [
        (1, "ann", "bob", 4, 6, 200),
        (2, "ann", "bob", 4, None, None),
        (2, "ann", "eve", 7, None, None),
    ]


def planted() -> MemoryReader:
    """Bob is given 1 and 2, which ann owns; ann revokes 1, eve is given 2. 0 and 3 have one owner each."""
    log = Writer()
    beat = Cause(trigger=Trigger.HEARTBEAT)

    def append(*records: Record) -> None:
        log.after(100).append(beat, *records)

    append(member("ann", "app"), member("bob", "app"), member("eve", "app"), group_epoch(1))
    append(current("ann", 1, (0, 1), (2,)))
    append(current("bob", 1, (3,)))
    append(current("bob", 1, (1, 2, 3)))
    append(current("bob", 1, (1, 2), (3,)))  # must revoke 3, but still owns it
    append(current("ann", 1, (2,)), current("eve", 1, (0,)))  # 0 changes hands within an entry
    append(current("eve", 1, (0, 2)), *gone("dan"))
    append(current("bob", 1, (2,)), current("eve", 1, (0, 1, 2, 3)), current("eve", 1, (0, 2)))
    return log.log


def tracked(reader: MemoryReader) -> Iterator[tuple[int, int, str, GroupView]]:
    """Yield index, time, group and its state after each entry with records of the group."""
    tracks: dict[str, GroupView] = {}
    for frame in reader.frames():
        touched = set()
        for raw in iter_records(frame.body):
            if raw.type in MEMBERSHIP_TYPES:
                group_id = group_id_of(raw) or ""
                tracks.setdefault(group_id, GroupView(group_id)).apply(raw)
                touched.add(group_id)
        for group_id in touched:
            yield frame.index, frame.timestamp_ms, group_id, tracks[group_id]


def overlaps(reader: MemoryReader, cluster_id: str) -> Iterator[Row]:
    """Yield the intervals that begin while another member owns the partition, by comparing all with all."""
    never = 1 << 60
    open_: dict[tuple[str, Partition, str], tuple[int, int]] = {}
    ended: list[tuple[str, Partition, str, int, int, int, int | None]] = []
    for index, ms, group_id, track in tracked(reader):
        now = {(group_id, part, who) for who, one in track.members.items() for part in one.owned}
        for hand in [hand for hand in open_ if hand[0] == group_id and hand not in now]:
            ended.append((*hand, *open_.pop(hand), index, ms))
        for hand in now:
            open_.setdefault(hand, (index, ms))
    ended += [(*hand, *begun, never, None) for hand, begun in open_.items()]
    for group_id, part, taker, from_index, from_ms, end, end_ms in ended:
        place = (from_index, end, taker)
        before = [
            (other[5], -other[3], other[6] or never, other[2])
            for other in ended
            if other[:2] == (group_id, part) and (other[3], other[5], other[2]) < place
        ]
        if before and max(before)[0] > from_index:
            held_to, _, held_ms, holder = max(before)
            is_over = min(end, held_to) < never
            yield {
                "cluster_id": cluster_id,
                "group_id": group_id,
                "topic_id": topic_id_text(part[0]),
                "partition": part[1],
                "holder": holder,
                "taker": taker,
                "from_index": from_index,
                "from_ms": from_ms,
                "to_index": min(end, held_to) if is_over else None,
                "to_ms": min(end_ms or never, held_ms) if is_over else None,
            }


def accused(reader: MemoryReader) -> set[str]:
    """Return the groups of which `history.checking` reports a partition with two owners."""
    checker = InvariantChecker()
    for frame in reader.frames():
        checker.entry(frame.index, iter_records(frame.body))
    return {one.group_id for one in checker.violations if one.rule == ONE_OWNER}


def test_unowned_time_is_what_the_statistics_say(spark: SparkSession, logs: dict[str, NodeLog]) -> None:
    rows = [row for name, log in logs.items() for row in table(log, "ownership", name)]
    ownership = table_frame(spark, "ownership", rows)
    until_ms = {name: stats(log).until_ms for name, log in logs.items()}
    found = []
    for name in ("story", "incident"):
        frame = unowned_partition_seconds(ownership.where(ownership.cluster_id == name), until_ms[name])
        found += told(frame)
    check_columns(frame, "unowned_partition_seconds")
    for name in ("story", "incident"):
        for group in stats(logs[name]).groups:
            mine = [row for row in found if (row["cluster_id"], row["group_id"]) == (name, group.group_id)]
            figures = group.figures
            assert sum(row["unowned_seconds"] for row in mine) == pytest.approx(figures.unowned_ms / 1000)
            expected_ms = figures.unowned_ms + figures.owned_ms + figures.revoking_ms
            assert sum(row["expected_seconds"] for row in mine) == pytest.approx(expected_ms / 1000)


def test_of_several_partitions_the_first_is_told_and_no_time_is_less_than_none(spark: SparkSession) -> None:
    spans = [(3, 100, 300), (1, 50, 250), (2, 400, 390)]  # the clock went back during the last
    known = {"cluster_id": "c", "shard": 0, "group_id": "g", "topic": "t", "topic_id": "T", "kind": "unowned"}
    rows = [{**known, "partition": one, "from_ms": since, "to_ms": until} for one, since, until in spans]
    (row,) = told(unowned_partition_seconds(table_frame(spark, "ownership", rows)))
    assert (row["longest_ms"], row["longest_partition"], row["unowned_seconds"]) == (200, 1, 0.4)
