"""Analyses of a cluster's days, and of a recorded incident, against plain `history` on the same logs."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from benchmarks.mixedlog import Life, write_life
from history.answers.findings import findings
from history.answers.stalls import PartitionCommits, stalls_of
from history.answers.stats import stats
from history.facts.rows import OwnershipSpan, SpanKind, TopicPartition
from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.whatif.settings import WhatIf, assignor_named
from history.words import trigger_name
from quorate.spark.analyses import ANALYSES
from quorate.spark.analyses.capacity import capacity
from quorate.spark.analyses.commits import stalled_commits
from quorate.spark.analyses.members import flapping_members
from quorate.spark.analyses.storms import rebalance_storms
from quorate.spark.analyses.whatif import whatif
from quorate.spark.schema import spark_type
from quorate.spark.source import register
from records import RecordType, Trigger
from tests.pipeline.whatif_rows import Row, _whatif
from tests.support.recorded_incident import INCIDENT

from .logs import columns_of, table
from .rows import as_exported, exported_names, ms_of, table_frame
from .rows import rows_of as record_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Life]:
    path = tmp_path_factory.mktemp("life") / "node"
    return path, write_life(str(path), 9_000, days=1, seed=7, segment_bytes=1 << 20)


@pytest.fixture(scope="module")
def log(life: tuple[Path, Life]) -> NodeLog:
    return open_node(str(life[0]))


@pytest.fixture(scope="module")
def records(spark: SparkSession, life: tuple[Path, Life]) -> DataFrame:
    register(spark)
    return spark.read.format("quorate").option("raw", "true").load(str(life[0])).cache()


def told(frame: DataFrame, name: str) -> list[Row]:
    """Return the rows of an analysis, after checking that it has the columns it declares."""
    columns = ANALYSES[name].columns
    assert [(one.name, one.dataType) for one in frame.schema] == [
        (one.name, one.dataType) for one in spark_type(columns)
    ]
    rows = (as_exported(row.asDict(recursive=True)) for row in frame.collect())
    return columns_of(rows, exported_names(columns))


def frame_of(spark: SparkSession, name: str, rows: Iterable[Row]) -> DataFrame:
    return table_frame(spark, name, rows)


def cluster_of(life: tuple[Path, Life]) -> str:
    return f"life-{life[1].plan.seed}"


def test_stalled_commits_are_those_of_stats(
    spark: SparkSession, records: DataFrame, log: NodeLog, life: tuple[Path, Life]
) -> None:
    ownership = frame_of(spark, "ownership", table(log, "ownership", cluster_of(life)))
    found = told(stalled_commits(records, ownership), "stalled_commits")
    expected = [
        {
            "cluster_id": cluster_of(life),
            "group_id": one.group_id,
            "shard": one.shard,
            "topic": one.partition.topic,
            "partition": one.partition.partition,
            "member_id": one.member_id,
            "last_commit_ms": one.last_commit_ms,
            "owned_since_ms": one.owned_since_ms,
            "quiet_ms": one.quiet_ms,
            "usual_ms": one.usual_ms,
            "measured_by": one.measured_by,
        }
        for group in stats(log).groups
        for one in group.stalls
    ]
    assert expected
    assert found == columns_of(expected, list(found[0]))


def test_stalls_of_any_commits_are_those_of_the_rule(spark: SparkSession) -> None:
    """Random commits have removals, silences of all lengths, partitions without commits, and even counts."""
    rng = random.Random(3)
    said: list[tuple[Any, ...]] = []
    owned: list[Row] = []
    expected: list[tuple[Any, ...]] = []
    end_ms = 10_000_000
    for number in range(60):
        group_id = f"g{number}"
        commits: dict[TopicPartition, PartitionCommits] = {}
        spans = []
        for partition in range(3):
            one = TopicPartition(topic="orders", partition=partition)
            known = PartitionCommits()
            at_ms = end_ms - rng.choice((100_000, 400_000))
            for place in range(rng.choice((0, 2, 4, 9, 30))):
                at_ms = min(at_ms + rng.randrange(1, 9_000), end_ms - rng.choice((0, 20_000, 90_000)))
                is_removal = rng.random() < 0.1
                said.append((number * 100 + place + 1, partition, at_ms, is_removal, group_id))
                known.remove(at_ms, 0) if is_removal else known.commit(at_ms, 0)
                commits[one] = known
            if rng.random() < 0.8:
                from_ms = end_ms - rng.randrange(500_000)
                spans.append(_owned(group_id, one, from_ms))
                owned.append(_owned_row(group_id, partition, from_ms))
        expected += [
            (
                group_id,
                one.partition.partition,
                one.last_commit_ms,
                one.quiet_ms,
                one.usual_ms,
                one.measured_by,
            )
            for one in stalls_of(group_id, 0, spans, commits, end_ms, {})
        ]
    said.append((10_000, None, end_ms, False, None))  # something else ends the shard
    columns = "raft_index long, partition int, timestamp_ms long, is_tombstone boolean, group_id string"
    records = spark.createDataFrame(said, columns).selectExpr(
        "*",
        "timestamp_millis(timestamp_ms) AS timestamp",
        "'c' AS cluster_id",
        "0 AS shard",
        "0 AS sequence",
        "'orders' AS topic",
        f"CASE WHEN group_id IS NULL THEN 3 ELSE {int(RecordType.OFFSET_COMMIT)} END AS type",
    )
    found = told(stalled_commits(records, frame_of(spark, "ownership", owned)), "stalled_commits")
    names = ("group_id", "partition", "last_commit_ms", "quiet_ms", "usual_ms", "measured_by")
    assert sorted(tuple(row[name] for name in names) for row in found) == sorted(expected)
    assert {one[-1] for one in expected} == {"own", "others"}
    assert any(one[2] is None for one in expected)


def _owned(group_id: str, partition: TopicPartition, from_ms: int) -> OwnershipSpan:
    return OwnershipSpan(
        group_id=group_id,
        shard=0,
        partition=partition,
        kind=SpanKind.OWNED,
        member_id="m",
        epoch=1,
        from_index=1,
        from_ms=from_ms,
        to_index=None,
        to_ms=None,
    )


def _owned_row(group_id: str, partition: int, from_ms: int) -> Row:
    row: Row = {}
    mine = {"partition": partition, "from_ms": from_ms, "group_id": group_id, "shard": 0, "cluster_id": "c"}
    return {**row, **mine, "topic": "orders", "kind": "owned", "member_id": "m"}


def test_flapping_members_are_those_of_the_rule(
    spark: SparkSession, log: NodeLog, life: tuple[Path, Life]
) -> None:
    sessions = frame_of(spark, "member_sessions", table(log, "member_sessions", cluster_id=cluster_of(life)))
    found = told(flapping_members(sessions), "flapping_members")
    names = ("group_id", "from_index", "from_ms", "to_index", "to_ms", "members")
    told_by = [one for group in findings(log).groups for one in group.findings]
    rule = [one for one in told_by if one.kind == "FLAPPING_MEMBER"]
    expected = [
        (one.group_id, one.from_index, one.from_ms, one.to_index, one.to_ms, list(one.members))
        for one in rule
    ]
    assert len(expected) > 5
    assert sorted(tuple(row[name] for name in names) for row in found) == sorted(expected)
    assert all(
        any(one.words.startswith(f"{row['process']} returned {row['returns']} times") for one in rule)
        for row in found
    )


def test_storms_across_groups_are_failovers_and_deployments(
    spark: SparkSession, log: NodeLog, life: tuple[Path, Life]
) -> None:
    epochs = table(log, "group_epochs", cluster_of(life))
    plan = life[1].plan
    found = told(rebalance_storms(frame_of(spark, "group_epochs", epochs)), "rebalance_storms")
    across = [row for row in found if row["group_id"] is None]
    worst = plan.worst
    (hit,) = [
        row
        for row in across
        if row["from_ms"] <= worst.from_ms + 60_000 and row["to_ms"] >= worst.until_ms - 120_000
    ]
    assert hit["groups"] >= len(plan.services[worst.service].groups)
    assert set(hit["triggers"][:2]) == {"MEMBER_JOINED", "MEMBER_LEFT"}
    expected = _storms_across(epochs)
    assert [(row["from_ms"], row["rebalances"], row["groups"], row["moves"]) for row in across] == expected


def _storms_across(epochs: list[Row], window_ms: int = 60_000, groups_min: int = 3) -> list[tuple[int, ...]]:
    windows: dict[int, list[Row]] = defaultdict(list)
    for row in epochs:
        if row["num_members"] > 0:
            windows[row["timestamp_ms"] // window_ms].append(row)
    stormy = sorted(
        at for at, rows in windows.items() if len({row["group_id"] for row in rows}) >= groups_min
    )
    storms: list[list[Row]] = []
    for before, at in zip([None, *stormy], stormy, strict=False):
        if before is None or at != before + 1:
            storms.append([])
        storms[-1] += windows[at]
    return sorted(
        (
            min(row["timestamp_ms"] for row in rows),
            len(rows),
            len({row["group_id"] for row in rows}),
            sum(row["num_moves"] for row in rows),
        )
        for rows in storms
    )


def test_storms_of_one_group_are_windows_that_overlap(spark: SparkSession) -> None:
    rng = random.Random(8)
    rows: list[Row] = []
    expected = []
    for number in range(40):
        at_ms, mine = 0, []
        for index in range(1, 60):
            at_ms += rng.choice((1_000, 9_000, 15_000, 40_000, 100_000))
            row: Row = {}
            row.update(cluster_id="c", shard=0, group_id=f"g{number}", epoch=index, timestamp_ms=at_ms)
            row.update(num_members=2, is_begin_known=True, num_moves=1, trigger="MEMBER_LEFT")
            row["settled_index"] = rng.choice((None, None, index))
            mine.append(row)
        rows += mine
        expected += [(f"g{number}", *storm) for storm in _storms_of(mine)]
    found = told(
        rebalance_storms(frame_of(spark, "group_epochs", rows), groups_min=1_000), "rebalance_storms"
    )
    assert len(expected) > 20
    assert sorted((row["group_id"], row["from_ms"], row["rebalances"]) for row in found) == sorted(expected)


def _storms_of(rows: list[Row]) -> list[tuple[int, int]]:
    """Apply the rule `REBALANCE_STORM`, except for its check of members."""
    found: list[list[int]] = []
    for start, row in enumerate(rows):
        window = [one for one in rows[start:] if one["timestamp_ms"] <= row["timestamp_ms"] + 60_000]
        unsettled = sum(one["settled_index"] is None for one in window)
        if len(window) >= 6 and 2 * unsettled >= len(window):
            end = start + len(window) - 1
            if found and start <= found[-1][1]:
                found[-1][1] = end
            else:
                found.append([start, end])
    return [(rows[start]["timestamp_ms"], end - start + 1) for start, end in found]


def test_capacity_by_the_hour(records: DataFrame, log: NodeLog, life: tuple[Path, Life]) -> None:
    found = told(capacity(records), "capacity")
    counted: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    members: dict[tuple[int, int], int] = {}
    groups: dict[tuple[int, int], int] = {}
    alive: dict[int, set[tuple[str, str]]] = defaultdict(set)
    there: dict[int, set[str]] = defaultdict(set)
    heartbeats = {trigger_name(Trigger.HEARTBEAT), trigger_name(Trigger.MEMBER_ACKED)}
    for row in record_rows(log, cluster_of(life)):
        shard = row["shard"]
        hour = (shard, ms_of(row["timestamp"]) // 3_600_000 * 3_600_000)
        is_commit = row["type"] == RecordType.OFFSET_COMMIT
        counted[hour].update(
            entries=int(row["sequence"] == 0),
            records=1,
            commits=int(is_commit),
            group_records=int(not is_commit and row["group_id"] is not None),
            heartbeat_records=int(row["trigger"] in heartbeats),
        )
        if row["type"] == RecordType.CONSUMER_GROUP_MEMBER_METADATA:
            change = alive[shard].discard if row["is_tombstone"] else alive[shard].add
            change((row["group_id"], row["member_id"]))
        if row["type"] == RecordType.CONSUMER_GROUP_METADATA:
            there[shard].add(row["group_id"])
        members[hour], groups[hour] = len(alive[shard]), len(there[shard])
    expected = [
        {
            "cluster_id": cluster_of(life),
            "shard": shard,
            "hour_ms": hour_ms,
            **{name: counted[shard, hour_ms][name] for name in ("entries", "records", "commits")},
            **{name: counted[shard, hour_ms][name] for name in ("group_records", "heartbeat_records")},
            "groups": groups[shard, hour_ms],
            "members": members[shard, hour_ms],
        }
        for shard, hour_ms in counted
    ]
    assert found == columns_of(expected, list(found[0]))
    assert sum(row["heartbeat_records"] for row in found) > 100


def test_every_group_fares_as_in_plain_whatif(
    records: DataFrame, log: NodeLog, life: tuple[Path, Life]
) -> None:
    change = WhatIf(assignor=assignor_named("range"), session_timeout_ms=60_000)
    found = told(whatif(records, change), "whatif")
    assert len(found) == sum(len(one.groups) for one in life[1].plan.services)
    assert found == columns_of(_whatif(log, change, cluster_of(life)), list(found[0]))


def test_whatif_of_an_incident_with_its_evidence(spark: SparkSession) -> None:
    register(spark)
    incident = open_node(str(INCIDENT))
    records = spark.read.format("quorate").option("raw", "true").load(str(INCIDENT))
    change = WhatIf(session_timeout_ms=90_000)
    evidence = {shard: incident.reader(shard).evidence() for shard in incident.shards}
    assert any(evidence.values())
    found = told(whatif(records, change, evidence), "whatif")
    assert found == columns_of(_whatif(incident, change, found[0]["cluster_id"]), list(found[0]))
    assert any(row["has_evidence"] for row in found)
