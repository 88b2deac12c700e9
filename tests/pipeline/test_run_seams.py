"""Seams between runs: entries given up and restored, odd names, and what an earlier run left behind."""

from __future__ import annotations

import random
from pathlib import Path

import msgpack
import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from history.diagnoses.shards import shard_findings
from history.facts.rows import GroupFinding, TermRow
from quorate.spark.runs.facts import leaders_findings
from quorate.spark.runs.losses import DAMAGED, PART, Range
from quorate.spark.runs.remembering import REMEMBERED
from quorate.spark.runs.run import RunResult, run
from quorate.spark.tables.progress import ShardProgress
from quorate.spark.tables.reading import read_progress
from raftlog.env.files import OsFiles
from raftlog.storage.directory import NodeIdentity, format_node
from raftlog.storage.frames import encode_frame
from raftlog.storage.segments import encode_header, log_name
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
from tests.pipeline.no_spark import no_session
from tests.support.table_rows import OF_FACTS, exported, held

IDENTITY = NodeIdentity(cluster_id="made", node_id=1, incarnation="made", num_shards=1)
Body = tuple[bytes, int]
UNDECODABLE: Body = (b"\xff", 1)


def epoch(number: int, group_id: str = "g") -> Body:
    key, value = ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(epoch=number)
    return entry(encode_record(Record(key, value)))


def entry(*raws: RawRecord) -> Body:
    return encode_entry(Cause(trigger=Trigger.HEARTBEAT), list(raws)), len(raws)


def segment(first: int, bodies: list[Body], *, at_ms: int = 1_000) -> bytes:
    frames = (
        encode_frame(at, 1, at - 1, at_ms + at, count, body) for at, (body, count) in enumerate(bodies, first)
    )
    return encode_header(IDENTITY.log(0), first) + b"".join(frames)


def made_log(path: Path, *bodies: Body, each: int = 1_000, at_ms: int = 1_000) -> Path:
    """Write a node's directory with one shard of these entries, ``each`` of them in a segment."""
    format_node(OsFiles(), str(path), IDENTITY)
    for begin in range(0, len(bodies), each):
        data = segment(begin + 1, list(bodies[begin : begin + each]), at_ms=at_ms)
        file_of(path, begin + 1).write_bytes(data)
    return path


def file_of(log: Path, first: int) -> Path:
    return log / "shard-0" / log_name(first)


def permissive(log: Path, output: Path) -> RunResult:
    return run(no_session, str(log), str(output), mode="permissive")


def indexes(output: Path) -> list[int]:
    return sorted(row["raft_index"] for row in held(output, "records")["records"])


def losses(output: Path) -> list[tuple[int, int, str]]:
    rows = held(output, "findings", part=PART)["findings"]
    return sorted((row["from_index"], row["to_index"], row["kind"]) for row in rows)


def test_an_entry_that_cannot_be_decoded_is_given_up_once(tmp_path: Path) -> None:
    """Its file is whole, so that no later run reads it again, or begins the facts anew for it."""
    log, output = made_log(tmp_path / "log", epoch(1), UNDECODABLE, epoch(2)), tmp_path / "tables"
    done = permissive(log, output)
    assert len(done.lost) == 1
    assert indexes(output) == [1, 3]
    for _ in range(2):
        assert permissive(log, output).is_empty
    assert run(no_session, str(log), str(output)).is_empty
    assert losses(output) == [(2, 2, DAMAGED)]
    assert read_progress(output).run == 1


def test_a_loss_is_restored_in_parts_when_its_beginning_is_no_longer_kept(tmp_path: Path) -> None:
    bodies = [epoch(at) for at in range(1, 9)]
    log, output = made_log(tmp_path / "log", *bodies, each=2), tmp_path / "tables"
    whole = file_of(log, 5).read_bytes()
    for first in (3, 5):
        file_of(log, first).write_bytes(b"")
    permissive(log, output)
    assert losses(output) == [(3, 6, DAMAGED)]
    assert indexes(output) == [1, 2, 7, 8]
    for first in (1, 3):
        file_of(log, first).unlink()
    file_of(log, 5).write_bytes(whole)
    for run_in in (permissive, lambda *at: run(no_session, *map(str, at))):
        run_in(log, output)
        assert indexes(output) == [1, 2, 5, 6, 7, 8]
        assert losses(output) == [(3, 4, DAMAGED)]
    assert permissive(log, output).is_empty


@pytest.mark.parametrize(
    "data",
    [
        msgpack.packb({"ends": {"x": 5}, "looked": {"0:1-2": 7}}),
        msgpack.packb({"ends": {b"x": [1] * 8}, "looked": []}),
        msgpack.packb([1, 2]),
        b"\xc1",
        b"",
    ],
)
def test_a_spoiled_memory_costs_a_fresh_look(data: bytes, tmp_path: Path) -> None:
    log, output = made_log(tmp_path / "log", epoch(1)), tmp_path / "tables"
    run(no_session, str(log), str(output))
    (output / REMEMBERED).write_bytes(data)
    file_of(log, 1).write_bytes(segment(1, [epoch(1), epoch(2)]))
    assert not run(no_session, str(log), str(output)).is_empty
    assert held(output) == exported(log)


@pytest.mark.parametrize("seed", range(5))
def test_findings_about_leaders_are_there_once_wherever_facts_of_groups_end(seed: int) -> None:
    """Runs are cut anywhere, also between entries of one time, and without a new term or a new entry."""
    rng = random.Random(seed)
    terms, ms = [], 0
    for number in range(1, 200):
        ms += rng.choice((0, 1_000, 60_000, 500_000, 40_000_000))
        terms.append(term(number, ms))
    known, found, still_open = ShardProgress(), list[GroupFinding](), ()
    while known.records_to < 2_000:
        to = min(known.records_to + rng.choice((3, 30, 300)), 2_000)
        there = [one for one in terms if one.index <= to]
        last_ms = max((one.timestamp_ms for one in there), default=0)
        new = Range(from_index=known.records_to + 1, to_index=to, to_ms=last_ms)
        concluded, still_open = leaders_findings(there, known, new)
        found += concluded
        # facts stay behind, at a loss
        known = ShardProgress(records_to=to, facts_to=min(to, 700), last_ms=last_ms)
        assert leaders_findings(there, known, None) == ((), still_open)
    wanted = shard_findings(terms)
    assert len(wanted) > 20
    assert sorted([*found, *still_open], key=repr) == sorted(wanted, key=repr)
    anew, rest = leaders_findings(terms, known, None, is_anew=True)
    assert sorted([*anew, *rest], key=repr) == sorted(wanted, key=repr)


def term(number: int, ms: int) -> TermRow:
    return TermRow(
        shard=0,
        term=number,
        index=number * 10,
        timestamp_ms=ms,
        node_id=number % 3,
        previous_leader=(number - 1) % 3,
        why="EXPIRY",
        is_takeover=True,
        gap_ms=300,
    )


ODD_NAMES = ("", " ", "ä", "😀", "\x00", "x" * 300, "x" * 5_000, "\uffff", "y" * 256, "a,b/c'\"%")


def test_groups_with_odd_names_have_their_rows_once(tmp_path: Path) -> None:
    """Also those whose names are too long for the statistics of a file."""
    log, output = made_log(tmp_path / "log", *(epoch(1, name) for name in ODD_NAMES)), tmp_path / "tables"
    run(no_session, str(log), str(output))
    bodies = [epoch(at, name) for at in (1, 2, 3) for name in ODD_NAMES]
    for end in range(len(ODD_NAMES) + 1, len(bodies) + 1, 3):
        file_of(log, 1).write_bytes(segment(1, bodies[:end]))
        run(no_session, str(log), str(output))
    assert held(output) == exported(log)


@pytest.mark.parametrize("at_ms", [-5_000, 253_402_300_800_000, 1 << 60])
def test_times_of_a_broken_clock_are_no_harm(at_ms: int, tmp_path: Path) -> None:
    log, output = made_log(tmp_path / "log", epoch(1), epoch(2), at_ms=at_ms), tmp_path / "tables"
    run(no_session, str(log), str(output))
    file_of(log, 1).write_bytes(segment(1, [epoch(1), epoch(2), epoch(3)], at_ms=at_ms))
    run(no_session, str(log), str(output))
    assert indexes(output) == [1, 2, 3]
    assert run(no_session, str(log), str(output)).is_empty


def test_records_of_unknown_kinds_are_rows(tmp_path: Path) -> None:
    odd = [RawRecord(77, 3, b"\x01", b"\x02"), RawRecord(-5, 0, b"", None)]
    log, output = made_log(tmp_path / "log", epoch(1), entry(*odd), epoch(2)), tmp_path / "tables"
    run(no_session, str(log), str(output))
    assert held(output, "records") == exported(log, "records")
    assert held(output, *OF_FACTS) == exported(log, *OF_FACTS)
