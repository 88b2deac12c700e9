"""Queries on one group skip other groups: the same answers, also with damaged entries."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.mixedlog import Written, group_name, write_log
from history.answers.owner import owner, parse_partition
from history.facts import shard as shard_facts
from history.facts.group import facts_of
from history.facts.rows import GroupRows
from history.facts.shard import rows_of
from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.reading.source import PassingReader, Walk
from history.telling.dump import DumpedEntry, Filter, dump
from raftlog.env.files import OsFiles
from raftlog.offline.group_filter import Passed
from raftlog.offline.reader import ShardReader
from raftlog.storage.frames import Frame
from raftlog.storage.segments import first_indexes

RECORDS = 6_000
GROUPS = 20
SEGMENT_BYTES = 128 << 10
GROUP = group_name(3)


class EveryFrame:
    """A reader of the same files that cannot skip anything."""

    def __init__(self, reader: object) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> object:
        if name == "frames_about":
            raise AttributeError(name)
        return getattr(self._reader, name)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Written]:
    path = tmp_path_factory.mktemp("mixed") / "node"
    return path, write_log(str(path), RECORDS, groups=GROUPS, segment_bytes=SEGMENT_BYTES)


def slow(log: NodeLog) -> NodeLog:
    readers = {shard: EveryFrame(log.reader(shard)) for shard in log.shards}
    assert not isinstance(readers[0], PassingReader)
    return replace(log, readers=readers)  # type: ignore[arg-type]


def about(path: Path, group: str = GROUP) -> list[Frame | Passed]:
    return list(ShardReader(path, 0).frames_about({group}))


def first_sealed(path: Path) -> int:
    return first_indexes([one.name for one in (path / "shard-0").glob("*.log")])[0]


def test_the_log_has_sealed_segments_and_one_that_is_not(written: tuple[Path, Written]) -> None:
    home = written[0] / "shard-0"
    assert len(list(home.glob("*.log"))) - 1 == len(list(home.glob("*.index"))) >= 3


def test_what_is_passed_by_and_what_is_not_are_the_whole_log(written: tuple[Path, Written]) -> None:
    path, facts = written
    expected = 1
    frames = 0
    times = {frame.index: frame.timestamp_ms for frame in ShardReader(path, 0).frames()}
    for item in about(path):
        if isinstance(item, Passed):
            assert item.first_index == expected
            assert item.timestamp_ms == times[item.last_index]
            expected = item.last_index + 1
        else:
            assert item.index == expected
            expected, frames = expected + 1, frames + 1
    assert expected == facts.entries + 1
    assert 0 < frames < facts.entries / 5


@pytest.mark.parametrize("share", [None, 0.05, 0.5, 0.999])
@pytest.mark.parametrize("by_time", [False, True])
def test_facts_are_the_same(written: tuple[Path, Written], share: float | None, by_time: bool) -> None:
    path, facts = written
    to_index = None if share is None else int(facts.entries * share)
    to_ms = None if share is None else facts.last_ms - int((1 - share) * facts.entries * 3)
    end = {"to_ms": to_ms} if by_time else {"to_index": to_index}
    log = open_node(str(path))
    for group in (GROUP, group_name(0)):
        mine: GroupRows = facts_of(log, group, **end)
        assert mine.epochs
        assert mine == facts_of(slow(log), group, **end)


def test_other_answers_are_the_same(written: tuple[Path, Written]) -> None:
    log = open_node(str(written[0]))
    wanted = Filter(groups=frozenset([GROUP]))

    def dumped(of: NodeLog) -> list[tuple[int, object]]:
        return [(one.frame.index, one.entry) for one in dump(of, wanted) if isinstance(one, DumpedEntry)]

    assert dumped(log) == dumped(slow(log)) != []
    partition = parse_partition("orders-3")
    for group in (GROUP, None):
        found = owner(log, partition, group=group)
        assert found == owner(slow(log), partition, group=group)
        assert all(one.last_commit is not None for one in found.groups)


def _flip(path: Path, file: str, offset: int) -> None:
    with open(path / "shard-0" / Path(file).name, "r+b") as opened:
        opened.seek(offset)
        byte = opened.read(1)
        opened.seek(offset)
        opened.write(bytes([byte[0] ^ 1]))


def test_damage_in_a_sealed_segment(tmp_path: Path) -> None:
    path = tmp_path / "node"
    write_log(str(path), RECORDS, groups=GROUPS, segment_bytes=SEGMENT_BYTES)
    log = open_node(str(path))
    whole = facts_of(log, GROUP)
    mine = {item.index for item in about(path) if isinstance(item, Frame)}
    frames = [frame for frame in ShardReader(path, 0).frames() if frame.offset < SEGMENT_BYTES // 2]
    of_others = next(frame for frame in frames if frame.index > 50 and frame.index not in mine)
    _flip(path, of_others.file, of_others.offset + 60)
    assert facts_of(log, GROUP) == whole, "damage to what is of others does not matter"
    of_mine = next(frame for frame in frames if frame.index > 60 and frame.index in mine)
    _flip(path, of_mine.file, of_mine.offset + 60)
    hurt = facts_of(log, GROUP)
    assert hurt.basis is not None
    assert [gap.after_index for gap in hurt.basis.gaps] == [of_mine.index - 1]


def test_without_a_sound_index_the_segment_is_read(tmp_path: Path) -> None:
    path = tmp_path / "node"
    write_log(str(path), RECORDS, groups=GROUPS, segment_bytes=SEGMENT_BYTES)
    whole = facts_of(open_node(str(path)), GROUP)
    indexes = sorted((path / "shard-0").glob("*.index"))
    _flip(path, indexes[0].name, 300)
    indexes[1].unlink()
    assert facts_of(open_node(str(path)), GROUP) == whole
    segment = OsFiles().read(str(indexes[2].with_suffix(".log")))
    indexes[2].with_suffix(".log").write_bytes(segment[:-1])
    hurt = facts_of(open_node(str(path)), GROUP)
    assert hurt.basis is not None
    assert hurt.basis.gaps, "a file that is not the one that was indexed is read itself"


def _peak(question: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        question()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_facts_of_all_groups_need_memory_for_the_state_not_for_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_facts, "DRAIN_ENTRIES", 200)

    def peak(records: int) -> int:
        path = tmp_path / f"log-{records}"
        write_log(str(path), records, groups=5, segment_bytes=64 << 10, snapshot_records=1 << 30)
        log = open_node(str(path))
        return _peak(lambda: sum(1 for _ in rows_of(0, log.catalog(), Walk(0, log.reader(0)))))

    peak(500)  # what is made once is made
    assert peak(24_000) < 2 * peak(3_000), "of eight times as many; what other tests left warm counts, too"
