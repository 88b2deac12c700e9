"""Damaged bytes: no wrong row, no sound row lost, and messages that name the place."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")
pytest.importorskip("pyspark", reason="needs the extra spark")

from benchmarks.mixedlog import write_log
from history.reading.node import ShardFiles
from history.reading.source import Walk
from quorate.spark.errors import InputError
from quorate.spark.source.buffer_pool import pooled_buffer
from quorate.spark.source.inputs import open_input
from raftlog.env.errors import Damaged
from raftlog.storage.frames import Frame, encode_frame
from raftlog.storage.segments import LogIdentity, encode_header, log_name
from records import (
    Cause,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    RawRecord,
    Record,
    Trigger,
    encode_entry,
    encode_record,
)
from records.entry import join_body
from tests.pipeline.damage import flip, segments
from tests.pipeline.source_rows import Row, rows_of

RECORDS = 700
FLIPS = 30


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments, the last one unsealed, of a few hundred entries."""
    path = tmp_path_factory.mktemp("written")
    write_log(str(path), RECORDS, groups=10, segment_bytes=25_000, snapshot_records=1 << 30)
    return path


@pytest.fixture
def log(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "log"))


def read(log: Path, **options: str) -> tuple[list[Row], list[Row]]:
    """Read permissively and return the records and the damage."""
    rows = rows_of(log, mode="permissive", **options)
    damage = [row for row in rows if row["damage"] is not None]
    return [row for row in rows if row["damage"] is None], damage


def walked(log: Path) -> set[tuple[int, int]]:
    """Return (index, term) of the entries that a stateless walk of `history` reads from the group shard."""
    walk = Walk(0, ShardFiles(str(log), 0), stateless=True)
    return {(item.index, item.term) for item in walk if isinstance(item, Frame)}


def places() -> Iterator[tuple[int, int]]:
    """Yield (segment, byte) positions: the headers densely, the rest at random."""
    rng = random.Random(7)
    for segment in range(3):
        for at in (0, 9, 13, 17, 30, 42, 50, 55, 60, 64, 70, 80, 88):
            yield segment, at
        for _ in range(FLIPS // 3):
            yield segment, rng.randrange(40, 24_000 if segment < 2 else 5_000)


def test_a_flipped_bit_anywhere_costs_entries_and_never_makes_a_wrong_row(log: Path) -> None:
    sound = [{**row, "damage": None} for row in rows_of(log, raw="true")]
    for segment, at in places():
        path = segments(log)[segment]
        before = path.read_bytes()
        flip(path, at % len(before))
        rows, damage = read(log, raw="true")
        theirs = walked(log) if at >= 50 else set()  # a walk skips a whole file if its header is damaged
        path.write_bytes(before)
        known = {(row["shard"], row["raft_index"], row["sequence"]): row for row in sound}
        place = f"segment {segment}, byte {at}"
        assert all(known[row["shard"], row["raft_index"], row["sequence"]] == row for row in rows), place
        assert damage, place
        lost = {row["raft_index"] for row in sound if row["shard"] == 0} - {
            row["raft_index"] for row in rows if row["shard"] == 0
        }
        assert {row["raft_index"] for row in damage} <= lost, place
        assert len(lost) <= 2, place
        assert theirs <= {(row["raft_index"], row["term"]) for row in rows if row["shard"] == 0}, place


# Files that are missing or are not what they should be


def refusal(log: Path, **options: str) -> str:
    with pytest.raises(InputError) as refused:
        rows_of(log, **options)
    return str(refused.value)


def test_fail_names_file_byte_and_a_way_on(log: Path) -> None:
    path = segments(log)[1]
    flip(path, 12_000)
    said = refusal(log)
    assert f"{path}: byte " in said
    assert "no complete frame where entry" in said
    assert "mode=permissive" in said
    assert "\n" not in said


def test_a_half_copied_segment_is_one_range_of_damage(log: Path) -> None:
    path, following = segments(log)[0], int(segments(log)[1].stem)
    path.write_bytes(path.read_bytes()[:12_000])
    rows, damage = read(log, shards="0")
    kept = {row["raft_index"] for row in rows}
    (lost,) = damage
    assert lost["raft_index"] == max(index for index in kept if index < following) + 1
    assert f"continues at index {following}" in lost["damage"]
    assert [name for name, value in lost.items() if value is not None] == [
        "cluster_id",
        "shard",
        "raft_index",
        "damage",
    ]
    assert "no complete frame" in refusal(log)


def test_a_segment_that_is_gone_is_damage(log: Path) -> None:
    gone, following = segments(log)[1], int(segments(log)[2].stem)
    gone.unlink()
    _, damage = read(log, shards="0")
    assert [row["raft_index"] for row in damage] == [int(gone.stem)]
    assert f"continues at index {following}" in damage[0]["damage"]


def test_a_segment_that_vanishes_between_plan_and_reading_is_looked_for_in_the_archive(log: Path) -> None:
    from quorate.spark.source.options import parse_options
    from quorate.spark.source.plan import plan
    from quorate.spark.source.reading import read_task

    before = len(rows_of(log))
    tasks = plan(parse_options({"path": str(log)}))
    first, second = segments(log)[:2]
    first.rename(first.parent / "archive" / first.name)
    index = first.with_suffix(".index")
    index.rename(index.parent / "archive" / index.name)
    assert sum(batch.num_rows for task in tasks for batch in read_task(task)) == before
    second.unlink()
    with pytest.raises(InputError, match="is missing, also from the archive"):
        [batch for task in tasks for batch in read_task(task)]


def test_another_clusters_segment_is_refused(log: Path) -> None:
    path = segments(log)[1]
    identity = LogIdentity(cluster_id="other", shard=0, num_shards=1)
    body = path.read_bytes()[len(encode_header(LogIdentity(cluster_id="bench", shard=0, num_shards=1), 1)) :]
    path.write_bytes(encode_header(identity, int(path.stem)) + body)
    assert "two clusters" in refusal(log)
    assert "two clusters" in refusal(log, mode="permissive")


def test_another_shards_segment_is_damage(log: Path) -> None:
    path = segments(log)[1]
    identity = LogIdentity(cluster_id="bench", shard=5, num_shards=1)
    path.write_bytes(encode_header(identity, int(path.stem)))
    assert "belongs to cluster bench, shard 5" in refusal(log)
    rows, damage = read(log, shards="0")
    assert len(damage) == 1
    assert {row["raft_index"] for row in rows}.isdisjoint(range(int(path.stem), int(segments(log)[2].stem)))


def test_a_newer_format_is_refused_in_both_modes(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = segments(log)[1]
    with monkeypatch.context() as patch:
        patch.setattr("raftlog.storage.segments.FORMAT", 2)
        header = encode_header(LogIdentity(cluster_id="bench", shard=0, num_shards=1), int(path.stem))
    path.write_bytes(header + path.read_bytes()[len(header) :])
    for mode in ("fail", "permissive"):
        said = refusal(log, mode=mode)
        assert "format 2 is unknown" in said
        assert "newer" in said


def test_no_log_is_refused_with_what_is_expected(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        assert "expected the data directory of one node" in refusal(path)


def test_two_clusters_nodes_in_one_folder_are_refused(tmp_path: Path) -> None:
    make_log(tmp_path / "node-1", [], cluster_id="one")
    make_log(tmp_path / "node-2", [], cluster_id="two")
    assert "different cluster" in refusal(tmp_path)


def test_a_torn_end_is_no_damage_and_not_read(log: Path) -> None:
    path = segments(log)[2]
    before = rows_of(log)
    path.write_bytes(path.read_bytes()[:-5])
    rows, damage = read(log)
    assert not damage
    last = before[-1]["raft_index"]
    assert [row["raft_index"] for row in rows] == [
        row["raft_index"] for row in before if row["raft_index"] != last
    ]


def test_a_sealed_index_that_lies_is_not_believed(log: Path) -> None:
    before = rows_of(log)
    for path in sorted((log / "shard-0").glob("*.index")):
        flip(path, 200)
    assert rows_of(log) == before
    # A sound index of another file: the segment has been rewritten since.
    first, second = sorted((log / "shard-0").glob("*.index"))
    first.write_bytes(second.read_bytes())
    assert rows_of(log) == before


# Entries with sound frames and unusual bodies


def make_log(path: Path, bodies: list[tuple[bytes, int]], *, cluster_id: str = "made") -> Path:
    """Write a node's directory with one shard of these bodies, each with the record count of its frame."""
    from raftlog.env.files import OsFiles
    from raftlog.storage.directory import NodeIdentity, format_node

    identity = NodeIdentity(cluster_id=cluster_id, node_id=1, incarnation="made", num_shards=1)
    format_node(OsFiles(), str(path), identity)
    frames = (
        encode_frame(at, 1, at - 1, 1_000 + at, count, body) for at, (body, count) in enumerate(bodies, 1)
    )
    data = encode_header(identity.log(0), 1) + b"".join(frames)
    (path / "shard-0" / log_name(1)).write_bytes(data)
    return path


CAUSE = Cause(trigger=Trigger.HEARTBEAT)
EPOCH = encode_record(Record(ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=7)))


def entry(*raws: RawRecord) -> tuple[bytes, int]:
    return encode_entry(CAUSE, list(raws)), len(raws)


ODD: dict[str, tuple[RawRecord, dict[str, Any]]] = {
    "fields left out": (EPOCH._replace(value=b"\x91\x07"), {"epoch": 7}),
    "a number packed wide": (EPOCH._replace(value=b"\x93\xce\x00\x00\x00\x07\x00\xff"), {"epoch": 7}),
    "a key packed wide": (EPOCH._replace(key=b"\xdc\x00\x01\xa1g"), {"epoch": 7, "group_id": "g"}),
    "a long text's tag": (EPOCH._replace(key=b"\x91\xd9\x01g"), {"epoch": 7, "group_id": "g"}),
    "a newer version": (EPOCH._replace(version=9), {"epoch": None, "version": 9, "group_id": "g"}),
    "an unknown type": (
        RawRecord(77, 3, b"\x01", b"\x02"),
        {
            "type": 77,
            "type_name": "type 77 (unknown to this release)",
            "group_id": None,
            "is_tombstone": False,
        },
    ),
    "a type below 0": (RawRecord(-5, 0, b"", None), {"type": -5, "is_tombstone": True}),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_not_as_usual_is_read_all_the_same(name: str, tmp_path: Path) -> None:
    raw, expected = ODD[name]
    log = make_log(tmp_path / "log", [entry(EPOCH), entry(EPOCH, raw), entry(EPOCH)])
    rows = rows_of(log, raw="true")
    assert [(row["raft_index"], row["sequence"]) for row in rows] == [(1, 0), (2, 0), (2, 1), (3, 0)]
    assert rows[2] | expected == rows[2]
    assert (rows[2]["key_bytes"], rows[2]["value_bytes"]) == (raw.key, raw.value)


SPOILED: dict[str, tuple[bytes, int]] = {
    "a count that is not so": (entry(EPOCH)[0], 2),
    "a count beyond all bounds": (entry(EPOCH)[0], (1 << 32) - 1),
    "no body": (b"", 0),
    "no records though announced": (encode_entry(CAUSE, []), 1),
    "a cause beyond the end": (b"\x00\x00\xff\xff\x90", 0),
    "a record beyond the end": (entry(EPOCH)[0][:-1], 1),
    "bytes behind the last record": (entry(EPOCH)[0] + b"\x00", 1),
    "a value length below -1": (entry(EPOCH)[0].replace(b"\x00\x00\x00\x04\x91", b"\xff\xff\xff\xf0\x91"), 1),
    "a key that is no array": entry(EPOCH._replace(key=b"\xa1g")),
    "a key that is too long": entry(EPOCH._replace(key=b"\x91\xa1gg")),
    "a key that ends early": entry(EPOCH._replace(key=b"\x91\xa5g")),
    "a key that is not UTF-8": entry(EPOCH._replace(key=b"\x91\xa1\xff")),
    "a value of another kind": entry(EPOCH._replace(value=b"\x93\xa1x\x00\xff")),
    "a value out of its range": entry(EPOCH._replace(value=b"\x93\xce\xff\xff\xff\xff\x00\xff")),
    "a value beyond 64 bits": entry(
        EPOCH._replace(value=b"\x93\x07\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xff")
    ),
    "a value with too many fields": entry(EPOCH._replace(value=b"\x94\x07\x00\xff\x00")),
    "an empty value": entry(EPOCH._replace(value=b"")),
    "a cause that is none": (join_body(b"\x90", [EPOCH]), 1),
    "a cause of a newer release": (join_body(b"\x92\x05\x06", [EPOCH]), 1),
}


@pytest.mark.parametrize("name", SPOILED)
def test_an_entry_that_cannot_be_read_is_damage_as_a_whole(name: str, tmp_path: Path) -> None:
    log = make_log(tmp_path / "log", [entry(EPOCH), SPOILED[name], entry(EPOCH)])
    rows, damage = read(log)
    assert [row["raft_index"] for row in rows] == [1, 3]
    assert [row["raft_index"] for row in damage] == [2]
    assert "entry 2 cannot be decoded" in damage[0]["damage"]
    assert "continues at index 3" in damage[0]["damage"]
    assert "entry 2 cannot be decoded" in refusal(log)


def test_neighbours_do_not_lend_each_other_bytes(tmp_path: Path) -> None:
    """Two values are well formed only together, so neither is."""
    first, second = EPOCH._replace(value=b"\x93\x07\xa2"), EPOCH._replace(value=b"\x00\xff\x93\x01\x00\xff")
    log = make_log(tmp_path / "log", [entry(first), entry(second), entry(EPOCH)])
    rows, damage = read(log)
    assert [row["raft_index"] for row in rows] == [3]
    assert [row["raft_index"] for row in damage] == [1, 2]


def test_an_empty_shard_has_no_rows(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log", [])
    assert rows_of(log) == []
    found = open_input(str(log))
    assert (found.shards[0].decided_index, found.shards[0].last_ms) == (0, -1)


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/dev/zero"), lambda path: os.mkfifo(path)])
def test_what_is_no_file_is_damage_before_a_byte_of_it_is_read(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    path = tmp_path / "00000000000000000001.log"
    make(path)
    with pooled_buffer() as memory, pytest.raises(Damaged, match="not a regular file"):
        memory.read(str(path))
