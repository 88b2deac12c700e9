"""Damage on some nodes: a read has every entry that any node holds, and never one that the others lack."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")
pytest.importorskip("pyspark", reason="needs the extra spark")

from quorate.spark.errors import InputError
from quorate.spark.source.inputs import InputLog, open_input
from quorate.spark.source.loading import RepairNote
from quorate.spark.source.options import parse_options
from quorate.spark.source.plan import Task, plan, plan_records
from quorate.spark.source.reading import read_bundle, read_task
from quorate.spark.source.verifying import readable, verify
from raftlog.env.settings import CHAIN_STRIDE
from raftlog.storage.frames import HEADER, HEADER_BYTES, encode_frame, frame_at
from raftlog.storage.segments import LogIdentity, encode_header, first_indexes, log_name, next_frame
from tests.pipeline.growing import SHARD, Growing
from tests.pipeline.source_rows import Row, rows_of

STEPS = 110
SEEDS = 6


def files_of(folder: Path) -> list[Path]:
    """Return all segments of all nodes, live and archived."""
    return sorted(folder.glob("node-*/shard-0/**/*.log"))


def whole_entries(path: Path) -> set[int]:
    """Return the indexes of the whole frames in a file."""
    data = path.read_bytes()
    view, found, at = memoryview(data), set(), next_frame(data, 0, 0)
    while at is not None and (frame := frame_at(view, at[0])) is not None:
        found.add(frame[1])
        at = next_frame(data, frame[0], frame[1])
    return found


def spoil(rng: random.Random, path: Path) -> str:
    """Damage a file somehow and return how."""
    data = bytearray(path.read_bytes())
    kind = rng.choice(["flip", "flip", "cut", "unlink", "garbage", "empty", "folder", "zeros"])
    at = rng.randrange(len(data))
    if kind == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[at:]
    elif kind == "garbage":
        data[at : at + 300] = rng.randbytes(300)
    elif kind == "zeros":
        data[at : at + 500] = bytes(500)
    elif kind == "empty":
        data.clear()
    if kind in ("unlink", "folder"):
        path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind != "unlink":
        path.write_bytes(data)
    return f"{kind} {path} at {at}"


def grown(folder: Path, seed: int, steps: int = STEPS) -> Growing:
    """Return nodes that sealed and archived different segments, some behind or with an undecided tail."""
    cluster = Growing(folder, seed=seed)
    for _ in range(steps):
        cluster.step()
    cluster.align()
    cluster.settle()
    for _ in range(steps // 5):
        cluster.step()
    return cluster


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_entry_that_a_node_holds_is_read(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "cluster"
    grown(folder, seed)
    rng = random.Random(seed)
    sound = {row["raft_index"]: row for row in rows_of(folder, shards="0", raw="true")}
    decided = open_input(str(folder)).shards[SHARD].decided_index
    assert set(sound) == set(range(1, decided + 1))
    for round_ in range(4):
        copy = Path(shutil.copytree(folder, tmp_path / f"copy-{round_}"))
        harm = [spoil(rng, path) for path in files_of(copy) if rng.random() < 0.4]
        shard = open_input(str(copy)).shards[SHARD]
        held = {
            index
            for node in shard.copies
            for path in Path(node.directory).glob("shard-0/**/*.log")
            if path.is_file()
            for index in whole_entries(path)
            if shard.begins_index <= index <= min(node.decided_index, shard.decided_index)
        }
        rows = rows_of(copy, shards="0", raw="true", mode="permissive")
        damage = [row for row in rows if row["damage"] is not None]
        read = {
            row["raft_index"]: {k: v for k, v in row.items() if k != "damage"}
            for row in rows
            if row not in damage
        }
        assert all(sound[index] == row for index, row in read.items()), harm
        missed = held - set(read)
        assert not missed, (missed, damage, harm)


@pytest.fixture
def cluster(tmp_path: Path) -> Growing:
    """Return three nodes with equal entries and different segments; nothing is sealed."""
    made = Growing(tmp_path / "cluster")
    for at in range(6):
        made.write(CHAIN_STRIDE)
        for disk in made.disks:
            made.replicate(disk)
            if disk.node_id == 1 or at % disk.node_id == 0:
                disk.cut()
    for _ in range(2):
        made.settle()
    made.leader.commit_index = len(made.leader.entries)
    return made


def sealed(cluster: Growing) -> Growing:
    for disk in cluster.disks:
        disk.seal()
    return cluster


def home(cluster: Growing, node: int) -> Path:
    return Path(cluster.disks[node - 1].home)


def primary(cluster: Growing) -> int:
    """Return the number of the node that the shard is read from."""
    node = open_input(str(cluster.folder)).shards[SHARD].node_id
    assert node is not None
    return node


def place_of(path: Path, index: int) -> int:
    """Return the offset of an entry's frame in a file."""
    found = next_frame(path.read_bytes(), 0, index - 1)
    assert found is not None
    assert found[1] == index
    return found[0]


def file_with(cluster: Growing, node: int, index: int) -> Path:
    first = max(
        one for one in first_indexes([path.name for path in home(cluster, node).iterdir()]) if one <= index
    )
    return home(cluster, node) / log_name(first)


def spoil_entry(cluster: Growing, node: int, index: int) -> Path:
    """Flip a bit in the body of an entry on one node."""
    path = file_with(cluster, node, index)
    data = bytearray(path.read_bytes())
    data[place_of(path, index) + HEADER_BYTES + 3] ^= 4
    path.write_bytes(data)
    return path


def rewrite_entry(cluster: Growing, node: int, index: int, *, term: int | None = None) -> None:
    """Replace an entry of one node by another one of the same length, with a sound CRC."""
    path = file_with(cluster, node, index)
    data = bytearray(path.read_bytes())
    at = place_of(path, index)
    _, _, length, count, _, old_term, commit_index, timestamp_ms = HEADER.unpack_from(data, at)
    body = bytes(data[at + HEADER_BYTES : at + HEADER_BYTES + length])
    made = encode_frame(index, term or old_term, commit_index, timestamp_ms + (term is None), count, body)
    data[at : at + len(made)] = made
    path.write_bytes(data)


def read_all(log: InputLog) -> tuple[list[Row], list[Row], list[RepairNote]]:
    """Return the records of the group shard, the damage, and the notes."""
    notes: list[RepairNote] = []
    shard = log.shards[SHARD]
    tasks = plan_records(log, {SHARD: (1, shard.decided_index)})
    tasks = [Task.of(task.packed()) for task in tasks]
    rows = [row for task in tasks for batch in read_bundle(task, notes.append) for row in batch.to_pylist()]
    return (
        [row for row in rows if row["damage"] is None],
        [row for row in rows if row["damage"] is not None],
        notes,
    )


def lost_on(cluster: Growing) -> tuple[set[int], list[RepairNote]]:
    """Return the entries that cannot be read, and the notes."""
    rows, damage, notes = read_all(open_input(str(cluster.folder)))
    assert [row["raft_index"] for row in rows] == sorted(row["raft_index"] for row in rows)
    lost = set(range(1, len(cluster.leader.entries) + 1)) - {row["raft_index"] for row in rows}
    assert bool(lost) == bool(damage)
    return lost, notes


def test_damage_on_the_node_that_is_read_stops_nothing(cluster: Growing) -> None:
    path, whole = str(cluster.folder), rows_of(cluster.folder)
    node = primary(cluster)
    at = place_of(file_with(cluster, node, 100), 100)
    file = spoil_entry(cluster, node, 100)
    assert rows_of(path, mode="fail") == whole
    lost, (note,) = lost_on(cluster)
    assert not lost
    assert (note.shard, note.first_index, note.last_index) == (SHARD, 100, 100)
    assert (note.file, note.offset) == (str(file), at)
    assert note.from_ms == note.to_ms > 0
    assert f"{file}: byte {note.offset}: " in note.words
    assert "entry 100 read from node-" in note.words
    assert note.read_from != f"node-{node}"


def test_an_entry_that_is_damaged_on_all_nodes_is_lost_and_refused(cluster: Growing) -> None:
    for node in (1, 2, 3):
        spoil_entry(cluster, node, 100)
    spoil_entry(cluster, 1, 50)
    spoil_entry(cluster, 2, 51)
    assert lost_on(cluster)[0] == {100}
    with pytest.raises(InputError, match="no complete frame where entry 100 should be"):
        rows_of(cluster.folder)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_an_altered_copy_is_never_mixed_in(cluster: Growing, is_sealed: bool) -> None:
    if is_sealed:
        sealed(cluster)
    node = primary(cluster)
    other, third = [one for one in (1, 2, 3) if one != node]
    spoil_entry(cluster, node, 100)
    rewrite_entry(cluster, other, 100)
    lost, notes = lost_on(cluster)
    if is_sealed:  # the checksum in the index decides between the two
        assert not lost
        assert [note.read_from for note in notes] == [f"node-{third}"]
    else:
        assert lost == {100}
        assert not notes
    shutil.rmtree(home(cluster, third))
    assert lost_on(cluster)[0] == ({100} if is_sealed else set())


def test_a_copy_that_differs_beside_the_damage_is_not_used(cluster: Growing) -> None:
    node = primary(cluster)
    other, third = [one for one in (1, 2, 3) if one != node]
    spoil_entry(cluster, node, 100)
    rewrite_entry(cluster, other, 101)
    lost, (note,) = lost_on(cluster)
    assert not lost
    assert note.read_from == f"node-{third}"
    rewrite_entry(cluster, third, 99)
    log = open_input(str(cluster.folder))
    _, (damage,), _ = read_all(log)
    assert damage["raft_index"] == 100
    assert "differs at entry 99" in damage["damage"]
    assert "differs at entry 101" in damage["damage"]


def test_an_undecided_tail_is_never_mixed_in(tmp_path: Path) -> None:
    """Node 1 failed with entries that no other node has; the others used the same indexes again."""
    cluster = Growing(tmp_path / "cluster")
    cluster.write(20)
    for disk in cluster.disks:
        cluster.replicate(disk)
    cluster.commit()
    cluster.write(10)
    cluster.leader, cluster.term = cluster.disks[1], 2
    cluster.write(12)
    cluster.replicate(cluster.disks[2])
    cluster.commit()
    cluster.write(1)
    cluster.replicate(cluster.disks[2])
    node = primary(cluster)
    assert node in (2, 3)
    spoil_entry(cluster, 2, 25)
    spoil_entry(cluster, 3, 26)
    assert lost_on(cluster)[0] == set()
    spoil_entry(cluster, 2, 26)
    assert lost_on(cluster)[0] == {26}
    spoil_entry(cluster, 2, 15)
    spoil_entry(cluster, 3, 15)
    assert lost_on(cluster)[0] == {26}


def test_a_file_that_vanishes_between_plan_and_read_is_read_from_another_node(cluster: Growing) -> None:
    path, whole = str(cluster.folder), rows_of(cluster.folder)
    tasks = plan(parse_options({"path": path}))
    file_with(cluster, primary(cluster), 100).unlink()
    notes: list[RepairNote] = []
    rows = [row for task in tasks for batch in read_task(task, notes.append) for row in batch.to_pylist()]
    assert sorted(row["raft_index"] for row in rows) == sorted(row["raft_index"] for row in whole)
    assert all("missing" in note.words for note in notes)
    assert notes


def test_a_history_that_only_a_node_further_behind_keeps_is_read(cluster: Growing) -> None:
    whole = rows_of(cluster.folder)
    node = primary(cluster)
    for path in home(cluster, node).glob("*.log"):
        if int(path.stem) <= 200:
            path.unlink()
    log = open_input(str(cluster.folder))
    assert log.shards[SHARD].begins_index == 1
    assert rows_of(cluster.folder) == whole


def test_entries_of_each_node_are_read_as_they_are(cluster: Growing) -> None:
    spoil_entry(cluster, 2, 100)
    rows = rows_of(cluster.folder, rows="entries", mode="permissive", shards="0")
    held = {(row["node_id"], row["raft_index"]) for row in rows if row["damage"] is None}
    assert (2, 100) not in held
    assert {(1, 100), (3, 100)} <= held


@pytest.mark.parametrize("name", ["09999999999999999999.log", "00000000000000000077.log"])
def test_a_file_with_a_wrong_number_costs_neither_time_nor_entries(cluster: Growing, name: str) -> None:
    whole = rows_of(cluster.folder)
    (home(cluster, primary(cluster)) / name).write_bytes(b"x" * 100)
    rows = rows_of(cluster.folder, mode="permissive")
    assert [row["raft_index"] for row in rows if row["damage"] is None] == [
        row["raft_index"] for row in whole
    ]


def test_the_wrong_clusters_file_is_refused_not_replaced(cluster: Growing) -> None:
    path = file_with(cluster, primary(cluster), 100)
    foreign = encode_header(LogIdentity(cluster_id="other", shard=0, num_shards=1), int(path.stem))
    path.write_bytes(foreign)
    with pytest.raises(InputError, match="two clusters"):
        rows_of(cluster.folder, mode="permissive")


# What can be read, before it is


def verified(log: InputLog) -> tuple[set[int], list[RepairNote]]:
    found = [verify(task) for task in plan_records(log, {SHARD: (1, log.shards[SHARD].decided_index)})]
    lost = {
        index for one in found for each in one.lost for index in range(each.first_index, each.last_index + 1)
    }
    return lost, [note for one in found for note in one.notes]


@pytest.mark.parametrize("seed", range(3))
def test_verification_finds_what_a_read_would(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "cluster"
    grown(folder, seed)
    rng = random.Random(seed)
    for path in files_of(folder):
        if rng.random() < 0.5:
            spoil(rng, path)
    log = open_input(str(folder))
    rows, _, notes = read_all(log)
    wanted = set(range(log.shards[SHARD].begins_index, log.shards[SHARD].decided_index + 1))
    assert verified(log) == (wanted - {row["raft_index"] for row in rows}, notes)


def test_a_loss_is_readable_again_when_a_file_is_restored_or_a_node_added(cluster: Growing) -> None:
    paths = [spoil_entry(cluster, node, index) for node in (1, 2, 3) for index in (100, 103)]
    log = open_input(str(cluster.folder))
    last = log.shards[SHARD].decided_index
    assert readable(log, SHARD, 95, 110) == ((95, 99), (101, 102), (104, 110))
    assert readable(log, SHARD, last + 1, last + 5) == ()
    assert readable(log, 7, 1, 5) == ()
    assert readable(log, SHARD, 100, 100) == ()
    data = bytearray(paths[0].read_bytes())
    frame = cluster.disks[0].entries[99][1]
    at = data.index(frame[:HEADER_BYTES])
    data[at : at + len(frame)] = frame
    paths[0].write_bytes(data)
    again = open_input(str(cluster.folder), remembered=log.to_remember())
    assert readable(again, SHARD, 100, 103) == ((100, 102),)


def test_a_loss_that_stayed_as_it_was_is_not_read_again(
    cluster: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in (1, 2, 3):
        spoil_entry(cluster, node, 100)
    log = open_input(str(cluster.folder))
    assert readable(log, SHARD, 100, 100) == ()
    again = open_input(str(cluster.folder), remembered=log.to_remember())

    def no_read(*_: object) -> None:
        raise AssertionError("a file is read")

    with monkeypatch.context() as patched:
        patched.setattr("quorate.spark.source.verifying.verify", no_read)
        assert readable(again, SHARD, 100, 100) == ()
    shutil.rmtree(home(cluster, 3))
    fewer = open_input(str(cluster.folder), remembered=again.to_remember())
    monkeypatch.setattr("quorate.spark.source.verifying.verify", no_read)
    with pytest.raises(AssertionError, match="a file is read"):
        readable(fewer, SHARD, 100, 100)


def test_a_task_is_few_bytes(cluster: Growing) -> None:
    asked = parse_options({"path": str(cluster.folder), "types": "OffsetCommit", "from_time": "0"})
    for task in plan(asked):
        assert len(task.packed(with_options=False)) <= 250 + len(str(cluster.folder))
        assert Task.of(task.packed()) == task
    (bundle,) = plan_records(open_input(str(cluster.folder)), {SHARD: (1, 300)})
    assert len(bundle.packed()) <= 250 + len(str(cluster.folder))
    with pytest.raises(ValueError, match="format 9"):
        Task.of(bundle.packed().replace(b"\x98\x02", b"\x98\x09", 1))
