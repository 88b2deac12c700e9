"""The generated logs: complete, the same for the same arguments, and true to their plan."""

from __future__ import annotations

import csv
import hashlib
import re
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.mixedlog import Life, write_life, write_log
from benchmarks.mixedlog.files import START_MS
from benchmarks.mixedlog.plan import DAY_MS, Deployment, Stall, planned
from history.answers.stats import stats
from history.checking.verify import verify
from history.facts.group import facts_of
from history.reading.opening import open_node
from raftlog.storage.hash_chain import GENESIS
from raftlog.storage.index_build import build_index
from raftlog.storage.sealed_index import decode_index
from raftlog.storage.segments import first_indexes, index_name, log_name

RECORDS, DAYS = 20_000, 2
SEGMENT_BYTES = 256 << 10


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Life]:
    path = tmp_path_factory.mktemp("life") / "node"
    life = write_life(
        str(path), RECORDS, days=DAYS, seed=5, segment_bytes=SEGMENT_BYTES, snapshot_records=5_000
    )
    return path, life


def digests(path: Path) -> dict[str, str]:
    return {
        str(one.relative_to(path)): hashlib.sha256(one.read_bytes()).hexdigest()
        for one in sorted(path.rglob("*"))
        if one.is_file() and one.name != "boot"
    }


def test_a_steady_log_keeps_its_bytes(tmp_path: Path) -> None:
    write_log(str(tmp_path / "node"), 3_000, groups=9, segment_bytes=64 << 10, snapshot_records=1_000)
    found = digests(tmp_path / "node")
    said = hashlib.sha256("".join(f"{name} {found[name]}\n" for name in found).encode()).hexdigest()
    assert said == "cdb54e9fa1276c679c99d2f1ba1c8105da7096f1417a963ad849f00755b94175"


def test_a_life_keeps_its_bytes(written: tuple[Path, Life]) -> None:
    """The figures of docs/performance.md come from these logs."""
    found = digests(written[0])
    said = hashlib.sha256("".join(f"{name} {found[name]}\n" for name in found).encode()).hexdigest()
    assert said == "82d6aca4f3f9a063129f66103c468eba4c6026a808909628c92b8d79a80db59d"


@pytest.mark.parametrize(
    ("records", "shards", "days", "said"),
    [
        (1_000, 1, 0.01, "take 0.02 days: give more"),
        (1_000_000, 1, 0.0, "take 0.04 days"),
        (0, 1, 3, "0 records in 1 shards are no log"),
        (1_000, 0, 3, "1000 records in 0 shards"),
    ],
)
def test_a_life_that_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, records: int, shards: int, days: float, said: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        write_life(str(tmp_path / "node"), records, shards=shards, days=days)
    assert not (tmp_path / "node").exists()


@pytest.mark.parametrize("days", [0.03, 1])
def test_a_service_is_deployed_one_time_after_the_other(days: float) -> None:
    for seed in range(20):
        plan = planned(1_000 if days < 1 else 500_000, shards=1, days=days, seed=seed)
        by_service: dict[int, list[Deployment]] = {}
        for one in plan.deployments:
            by_service.setdefault(one.service, []).append(one)
        assert days < 1 or max(map(len, by_service.values())) > 1
        for made in by_service.values():
            assert all(one.until_ms <= later.from_ms for one, later in pairwise(made))


def test_it_is_as_long_as_was_asked_for(written: tuple[Path, Life]) -> None:
    _, life = written
    assert RECORDS <= life.records <= RECORDS * 1.01
    for shard in life.written:
        assert shard.last_ms == pytest.approx(START_MS + DAYS * DAY_MS, abs=DAY_MS // 10)
        assert shard.snapshots


def test_it_is_a_whole_log_in_which_the_protocol_holds(written: tuple[Path, Life]) -> None:
    report = verify(str(written[0]))
    assert report.ok, [problem.what for problem in report.problems]
    assert sum(shard.records for shard in report.shards) == written[1].records + 1


def test_the_index_of_a_segment_is_what_a_node_builds(written: tuple[Path, Life]) -> None:
    home = written[0] / "shard-1"
    chain = GENESIS
    sealed = [
        one
        for one in first_indexes([path.name for path in home.iterdir()])
        if (home / index_name(one)).exists()
    ]
    assert len(sealed) > 1
    for first in sealed:
        path = home / log_name(first)
        facts, index = build_index(path.read_bytes(), str(path), chain)
        found = home / index_name(first)
        assert found.read_bytes() == index
        assert decode_index(index, str(found)) == facts
        chain = facts.chain_after


def test_equal_arguments_make_equal_bytes_however_many_write(
    written: tuple[Path, Life], tmp_path: Path
) -> None:
    again = tmp_path / "node"
    write_life(
        str(again),
        RECORDS,
        days=DAYS,
        seed=5,
        segment_bytes=SEGMENT_BYTES,
        snapshot_records=5_000,
        workers=2,
    )
    assert digests(again) == digests(written[0])


def test_the_worst_deployment_makes_the_most_epochs(written: tuple[Path, Life]) -> None:
    path, life = written
    log = open_node(str(path))
    made = {}
    for one in life.plan.deployments:
        epochs = [
            row
            for group_id in life.plan.services[one.service].groups
            for row in facts_of(log, group_id).epochs
            if one.from_ms <= row.timestamp_ms < one.until_ms
        ]
        made[one.version, one.service] = len(epochs)
        assert len(epochs) >= 8 * (1 + one.crashes)
    worst = life.plan.worst
    assert max(made, key=made.__getitem__) == (worst.version, worst.service)


def test_the_partitions_that_stall_are_found(written: tuple[Path, Life]) -> None:
    path, life = written
    planned = {(one.group_id, one.partition) for one in life.plan.happenings if isinstance(one, Stall)}
    found = {
        (stall.group_id, stall.partition.partition)
        for group in stats(open_node(str(path))).groups
        for stall in group.stalls
    }
    assert planned
    assert found == planned


def test_the_deployments_go_to_a_file_of_their_own(written: tuple[Path, Life], tmp_path: Path) -> None:
    plan = written[1].plan
    plan.write_deployments(tmp_path / "deployments.csv")
    with (tmp_path / "deployments.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["service"] for row in rows] == [plan.services[one.service].name for one in plan.deployments]
    assert all(int(row["from_ms"]) < int(row["until_ms"]) for row in rows)
