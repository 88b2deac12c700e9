"""`compare` on the directories of three nodes: what is equal, what is merely undecided, what differs."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path

import pytest

from history.checking.compare import Comparison, ShardComparison, compare, comparison_text
from history.reading.opening import open_node
from history.reading.source import NothingToRead, Walk
from history.render import UTC_STYLE
from quorate.commands.log.common import plain
from raftlog.env.files import OsFiles
from raftlog.storage.archive import ARCHIVE, read_manifest, write_manifest
from raftlog.storage.directory import NODE_FILE, NodeIdentity, format_node
from raftlog.storage.metafile import write_meta
from records import Cause, OffsetCommitKey, OffsetCommitValue, Record, TermWhy, Trigger
from tests.report import count_fault
from tests.support.disk_node import DiskNode
from tests.support.golden_texts import golden
from tests.support.long_story import GROUP, SMALL_SNAPSHOTS, long_story
from tests.support.memory_log import commit, group_epoch
from tests.support.three_logs import ThreeLogs


@pytest.fixture
def logs(tmp_path: Path) -> ThreeLogs:
    """Three nodes that hold the same ten entries."""
    three = ThreeLogs(tmp_path)
    three.opens(1, term=1, why=TermWhy.START)
    three.fill(9)
    return three


def shard_of(comparison: Comparison, number: int = 0) -> ShardComparison:
    return next(one for one in comparison.shards if one.shard == number)


def compared(logs: ThreeLogs) -> ShardComparison:
    return shard_of(compare(logs.paths))


# -- the same ---------------------------------------------------------------------------------------------


def test_equal_logs_are_the_same_in_bytes_chain_and_state(logs: ThreeLogs) -> None:
    comparison = compare(logs.paths)
    found = shard_of(comparison)
    assert comparison.ok
    assert comparison.quorum == 2
    assert (found.decided_index, found.common_index, found.compared) == (10, 10, 10)
    assert found.chain_hash is not None
    assert found.state_hash is not None
    assert [(node.behind, node.undecided) for node in found.nodes] == [(0, 0)] * 3


def test_the_folder_that_holds_them_is_the_same_as_naming_each(logs: ThreeLogs) -> None:
    assert compare([str(logs.folder)]) == compare(logs.paths)


def test_freshly_formatted_nodes_are_the_same(tmp_path: Path) -> None:
    comparison = compare(ThreeLogs(tmp_path).paths)
    assert comparison.ok
    assert all(shard.common_index == 0 for shard in comparison.shards)


def test_a_node_that_is_behind_is_compared_as_far_as_it_goes(logs: ThreeLogs) -> None:
    logs.fill(7, 1, 2)
    found = compared(logs)
    assert found.ok
    assert (found.decided_index, found.common_index, found.compared) == (17, 10, 17)
    assert [node.behind for node in found.nodes] == [0, 0, 7]
    assert found.chain_hash is not None
    assert found.state_hash is not None


def test_two_of_three_are_compared_and_the_third_is_missed(logs: ThreeLogs) -> None:
    comparison = compare(logs.paths[:2])
    assert comparison.ok
    assert comparison.notes == ("missing: node 3",)


# -- undecided --------------------------------------------------------------------------------------------


def test_a_tail_on_one_node_only_is_undecided_and_no_difference(logs: ThreeLogs) -> None:
    logs.fill(3, 1, commit_index=10)
    found = compared(logs)
    assert found.ok
    assert (found.decided_index, found.common_index) == (10, 10)
    assert [node.undecided for node in found.nodes] == [3, 0, 0]


def test_what_a_fallen_leader_left_below_the_decided_index_is_undecided(logs: ThreeLogs) -> None:
    """Node 1 failed with entries that it had not replicated; term 2 wrote others at the same indexes."""
    logs.fill(3, 1, commit_index=10)
    logs.last[1] = 10
    logs.opens(2, 2, 3, term=2, previous=1)
    logs.fill(4, 2, 3, term=2)
    found = compared(logs)
    assert found.ok
    assert (found.decided_index, found.common_index) == (15, 10)
    assert [(node.last_index, node.behind, node.undecided) for node in found.nodes] == [
        (10, 5, 3),
        (15, 0, 0),
        (15, 0, 0),
    ]


def test_an_entry_of_an_old_term_that_may_still_be_overwritten_is_undecided(tmp_path: Path) -> None:
    """Figure 8 of the Raft paper: the entry is on two of three nodes and yet undecided."""
    logs = ThreeLogs(tmp_path)
    logs.entry(term=1, commit_index=0)
    logs.entry(1, 2, term=2, commit_index=0)
    logs.entry(3, term=3, commit_index=0)
    logs.entry(1, term=4, commit_index=0)
    found = compared(logs)
    assert found.ok
    assert (found.decided_index, found.common_index) == (1, 1)
    assert [node.undecided for node in found.nodes] == [2, 1, 1]


# -- different --------------------------------------------------------------------------------------------


def test_a_decided_entry_of_another_content_is_told_in_words(logs: ThreeLogs) -> None:
    cause = Cause(trigger=Trigger.OFFSETS_COMMITTED, member_id="ann")
    logs.entry(1, 3, cause=cause, records=[commit(0, 11), commit(1, 5)])
    logs.entry(2, cause=cause, records=[commit(0, 12), commit(1, 5)])
    logs.fill(2)
    count_fault("history", "log that differs")
    comparison = compare(logs.paths)
    found = shard_of(comparison)
    assert not comparison.ok
    assert comparison.num_findings == 1
    assert found.difference is not None
    assert found.difference.words() == (
        "entry 11 of node 1 and node 3 differs from that of node 2: record 1: OffsetCommit of group payments"
    )
    assert found.common_index == 10
    assert found.chain_hash is not None


def test_every_difference_is_named(logs: ThreeLogs) -> None:
    logs.entry(1, 2, term=2)
    logs.after(5).entry(
        3,
        term=1,
        commit_index=4,
        cause=Cause(trigger=Trigger.MEMBER_JOINED),
        records=[group_epoch(1), commit(1, 1)],
    )
    logs.entry(1, 2, term=2, commit_index=11)
    logs.entry(3, term=2, commit_index=11)
    difference = compared(logs).difference
    assert difference is not None
    assert difference.index == 11
    assert [what.split(" (")[0] for what in difference.what] == [
        "the term",
        "the time",
        "the commit index that the leader knew",
        "the number of records",
        "the cause",
        "record 1: OffsetCommit of group payments",
    ]
    assert [variant.nodes for variant in difference.variants] == [("node 1", "node 2"), ("node 3",)]


def test_entries_of_one_term_with_other_bytes_differ_also_while_undecided(
    logs: ThreeLogs,
) -> None:
    logs.entry(1, 2)
    logs.after(1).entry(3)
    difference = compared(logs).difference
    assert difference is not None
    assert difference.what[0].startswith("the time")


def test_a_state_that_is_not_its_logs_is_found(logs: ThreeLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    from history.state.replay import ShardReplay

    sound = ShardReplay.state_hash.fget  # type: ignore[attr-defined]
    calls = iter(range(100))
    monkeypatch.setattr(ShardReplay, "state_hash", property(lambda self: sound(self) + next(calls)))
    found = compared(logs)
    assert any(what.startswith("the state at index 10 differs: node 1 has") for what in found.findings)


# -- golden -----------------------------------------------------------------------------------------------


def lines_of(comparison: Comparison, folder: Path) -> list[str]:
    return [line.replace(str(folder), "FOLDER") for line in comparison_text(comparison, UTC_STYLE)]


def test_a_comparison_as_text(logs: ThreeLogs) -> None:
    logs.fill(3, 1, commit_index=10)
    logs.last[1] = 10
    logs.opens(2, 2, 3, term=2, previous=1)
    logs.fill(4, 2, 3, term=2)
    golden("history/golden/compare_same.txt", lines_of(compare(logs.paths), logs.folder))


def test_a_difference_as_text(logs: ThreeLogs) -> None:
    logs.entry(1, 3, records=[commit(0, 11), commit(1, 5)])
    logs.entry(2, records=[commit(0, 12), commit(1, 5)])
    logs.fill(2)
    golden("history/golden/compare_different.txt", lines_of(compare(logs.paths), logs.folder))


def test_a_comparison_as_json(logs: ThreeLogs) -> None:
    logs.entry(1, 3, records=[commit(0, 11)])
    logs.entry(2, records=[commit(0, 12)])
    logs.fill(2)
    read = json.loads(json.dumps(plain(compare(logs.paths))))
    (shard,) = (one for one in read["shards"] if one["shard"] == 0)
    assert shard["difference"]["index"] == 11
    assert shard["nodes"][0]["state_hash"] == shard["nodes"][1]["state_hash"]


# -- hostile directories ----------------------------------------------------------------------------------


def test_one_directory_given_twice_is_refused(logs: ThreeLogs) -> None:
    with pytest.raises(NothingToRead, match="is given twice"):
        compare([logs.paths[0], logs.paths[0] + "/."])


@pytest.mark.parametrize("given", [1, 0])
def test_one_node_alone_is_refused(logs: ThreeLogs, given: int) -> None:
    with pytest.raises(NothingToRead, match="needs at least two"):
        compare([logs.paths[given]])


def test_two_copies_of_one_node_are_compared_and_count_once(logs: ThreeLogs, tmp_path: Path) -> None:
    logs.fill(2, 1)
    copy = str(tmp_path / "copy")
    shutil.copytree(logs.paths[0], copy)
    comparison = compare([logs.paths[0], copy])
    assert comparison.ok
    assert "they count once" in " ".join(comparison.notes)
    assert shard_of(comparison).decided_index == 11


def test_directories_of_two_clusters_are_not_compared(logs: ThreeLogs, tmp_path: Path) -> None:
    stranger = str(tmp_path / "elsewhere")
    identity = NodeIdentity(cluster_id="another", node_id=3, incarnation="i", num_shards=1)
    format_node(OsFiles(), stranger, identity)
    comparison = compare([*logs.paths[:2], stranger])
    assert not comparison.ok
    assert comparison.shards == ()
    assert "different cluster: node 1 says test, node 2 says test, node 3 says another" in comparison.findings


def test_what_is_no_directory_of_a_node_is_refused(logs: ThreeLogs, tmp_path: Path) -> None:
    for wrong in (tmp_path / "nowhere", tmp_path / "empty"):
        if wrong.name == "empty":
            wrong.mkdir()
        with pytest.raises(NothingToRead, match="expected the data directory of one node"):
            compare([logs.paths[0], str(wrong)])


def test_a_missing_shard_is_named_and_the_others_are_compared(logs: ThreeLogs) -> None:
    shutil.rmtree(Path(logs.path(2), "shard-0"))
    comparison = compare(logs.paths)
    found = shard_of(comparison)
    assert found.findings == (f"node 2 does not hold shard-0: {logs.path(2)}",)
    assert found.common_index == 10
    assert shard_of(comparison, -1).ok


def test_damage_in_the_middle_is_named_and_the_rest_is_compared(logs: ThreeLogs) -> None:
    key = OffsetCommitKey(group_id="payments", topic="orders", partition=0)
    long = Record(key, OffsetCommitValue(offset=1, commit_timestamp_ms=1, metadata="x" * 100_000))
    for _ in range(6):
        logs.entry(records=[long])
    flip(logs.file(2), 400)
    comparison = compare(logs.paths)
    found = shard_of(comparison)
    assert not comparison.ok
    assert found.difference is None
    assert {problem.file for problem in found.problems} == {str(logs.file(2))}
    assert all(problem.offset for problem in found.problems)
    assert found.compared == 16
    assert found.nodes[1].chain_hash is None


@pytest.mark.parametrize("harm", ["truncated segment", "flipped byte"])
def test_what_may_be_a_torn_tail_is_behind_and_no_difference(logs: ThreeLogs, harm: str) -> None:
    """A crash may tear a write of many frames anywhere; the node gets the rest again from the others."""
    if harm == "flipped byte":
        flip(logs.file(2), 400)
    else:
        logs.file(2).write_bytes(logs.file(2).read_bytes()[:-300])
        count_fault("history", harm)
    found = compared(logs)
    assert found.ok
    assert found.nodes[1].behind > 0
    assert found.nodes[1].torn_bytes > 0


def test_an_answer_from_such_a_node_alone_says_what_is_missing(logs: ThreeLogs) -> None:
    flip(logs.file(2), 400)
    walk = Walk(0, open_node(logs.path(2)).reader(0))
    for _ in walk:
        pass
    assert walk.basis.last_index is not None
    assert f"entries after index {walk.basis.last_index} cannot be read" in walk.basis.words()
    whole = Walk(0, open_node(str(logs.folder)).reader(0))
    assert sum(1 for _ in whole) == 10, "the folder of all nodes is read from one that has it all"
    assert not whole.basis.gaps


def flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 0x40
    file.write_bytes(data)
    count_fault("history", "flipped byte")


def test_a_log_that_ends_before_what_it_named_as_committed_has_lost_entries(logs: ThreeLogs) -> None:
    from raftlog.storage.loader import CLEAN_FILE, CLEAN_KIND

    clean = str(logs.file(2).parent / CLEAN_FILE)
    write_meta(OsFiles(), clean, CLEAN_KIND, 30, 1, 30, bytes(16), 30)
    found = compared(logs)
    assert (
        "node 2 says that entry 30 is committed, but ends with entry 10: it has lost entries"
    ) in found.findings


@pytest.mark.parametrize("harm", ["gone", "emptied", "halved"])
def test_any_file_harmed_is_told_and_breaks_nothing(logs: ThreeLogs, harm: str) -> None:
    for file in sorted(path for path in Path(logs.path(2)).rglob("*") if path.is_file()):
        sound = file.read_bytes()
        if harm == "gone":
            file.unlink()
        else:
            file.write_bytes(b"" if harm == "emptied" else sound[: len(sound) // 2])
        count_fault("history", "harmed file")
        try:
            comparison = compare(logs.paths)
        except NothingToRead:
            comparison = None
        if comparison is not None:
            assert list(comparison_text(comparison))
            assert all(shard.difference is None for shard in comparison.shards)
            if file.suffix == ".log" and harm != "halved":
                assert not comparison.ok, f"{file} {harm}"
        file.write_bytes(sound)
    assert compare(logs.paths).ok


# -- a replaced disk --------------------------------------------------------------------------------------


def as_member(path: str, node_id: int) -> None:
    """Turn the directory of a single node into that of a member of a cluster of three."""
    write_meta(
        OsFiles(), str(Path(path, NODE_FILE)), "node", "test", node_id, f"disk-{node_id}", 1, [1, 2, 3], False
    )


def without_history(path: str) -> None:
    """Delete the shard's log before its snapshot, so that the node looks like one with a replaced disk."""
    archive = Path(path, "shard-0", ARCHIVE)
    manifest = read_manifest(OsFiles(), str(archive))
    for file in [*archive.glob("*.log"), *archive.glob("*.index")]:
        file.unlink()
    write_manifest(OsFiles(), str(archive), (), manifest.last_index)


def test_a_node_that_began_with_a_snapshot_is_compared_by_chain_and_state(tmp_path: Path) -> None:
    node, _ = long_story(str(tmp_path / "node-1"))
    node.stop()
    for number in (2, 3):
        shutil.copytree(tmp_path / "node-1", tmp_path / f"node-{number}")
    for number in (1, 2, 3):
        as_member(str(tmp_path / f"node-{number}"), number)
    without_history(str(tmp_path / "node-3"))
    comparison = compare([str(tmp_path)])
    found = shard_of(comparison)
    assert comparison.ok
    assert found.common_index == found.decided_index > 200
    assert found.nodes[2].first_index == (found.nodes[2].snapshot_index or 0) + 1 > 1
    assert found.chain_hash is not None
    assert found.state_hash is not None


def test_a_snapshot_that_is_not_its_logs_gives_itself_away(tmp_path: Path) -> None:
    """Node 3 has the snapshot of another history; its entries after the snapshot are the same."""
    for number, offset in ((1, 5), (3, 6)):
        node = DiskNode(str(tmp_path / f"node-{number}"), num_shards=1, log=SMALL_SNAPSHOTS)
        node.create_topic("orders", 4)
        ann = node.member(GROUP, "app-1", "orders").join()
        ann.commit({0: offset})
        for later in range(300):
            ann.commit({later % 4: 10 + later})
            if later % 20 == 0:
                node.pass_ms(500, ann)
        node.stop()
        as_member(str(tmp_path / f"node-{number}"), number)
    without_history(str(tmp_path / "node-3"))
    comparison = compare([str(tmp_path)])
    found = shard_of(comparison)
    assert not comparison.ok
    assert any(what.startswith("the hash chain at index") for what in found.findings)


def test_nodes_without_a_common_entry_are_not_called_the_same(tmp_path: Path) -> None:
    node, _ = long_story(str(tmp_path / "node-1"))
    node.stop()
    shutil.copytree(tmp_path / "node-1", tmp_path / "node-3")
    for number in (1, 3):
        as_member(str(tmp_path / f"node-{number}"), number)
    without_history(str(tmp_path / "node-3"))
    shutil.rmtree(tmp_path / "node-1" / "shard-0")
    ThreeLogs(tmp_path / "empty")
    shutil.copytree(tmp_path / "empty" / "node-1" / "shard-0", tmp_path / "node-1" / "shard-0")
    found = shard_of(compare([str(tmp_path / "node-1"), str(tmp_path / "node-3")]))
    assert found.common_index is None
    assert any(what.startswith("no entry is on all nodes: node 3 begins after") for what in found.findings)


# -- long logs --------------------------------------------------------------------------------------------


def test_a_long_log_is_compared_in_the_memory_of_a_few_segments(tmp_path: Path) -> None:
    logs = ThreeLogs(tmp_path)
    key = OffsetCommitKey(group_id="payments", topic="orders", partition=0)
    long = Record(key, OffsetCommitValue(offset=1, commit_timestamp_ms=1, metadata="x" * 4_000))
    for _ in range(16):
        for _ in range(64):
            logs.entry(records=[long])
        segment_bytes = logs.file(1).stat().st_size
        logs.cut()
    tracemalloc.start()
    found = compared(logs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.ok
    assert found.compared == 16 * 64
    assert peak < 3 * 3 * segment_bytes, "three segments a node: the read one, its frames, and little else"
