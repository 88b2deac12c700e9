"""Facts by group in one run or in many: the rows of `quorate log export`, wherever the runs are cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")

from history.reading.node import NodeLog
from lineage.push.decisions import Failover
from pipeline.errors import OutputError
from pipeline.facts import group as group_facts
from pipeline.facts.group import NOTES, PART, SETTLED, STATE, TOO_MANY_ROWS
from records import (
    Cause,
    RawRecord,
    Trigger,
    encode_record,
)
from tests.pipeline.world_logs import frame, node_of, world_log
from tests.support.incidents.scenarios import INCIDENTS
from tests.support.incidents.world import GROUP
from tests.support.lineage_logs import SHARD, PushTape, Tape, node, rewrite_life
from tests.support.memory_log import MemoryReader, group_epoch
from tests.support.push_world import play

from .factruns import Rows, Runs, ShardLog, exported

SEEDS = range(3)
LIVES: dict[str, Callable[[], Tape]] = {
    "push": lambda: play(1, Failover.WAIT, PushTape),
    "rewrite": lambda: rewrite_life("design", 1),
}


@pytest.fixture(autouse=True)
def _parts_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limit so that short logs have parts."""
    monkeypatch.setattr(group_facts, "DRAIN_ROWS", 20)


def rows_cut(log: NodeLog, cuts: Sequence[int], batch_rows: int = 1_000) -> Rows:
    runs = Runs(log, batch_rows=batch_rows)
    for cut in sorted(cuts):
        runs.run({0: cut}, with_notes_to=runs.shards[0].ms(cut))
    runs.run()
    return runs.rows()


def some_cuts(rng: random.Random, end: int, count: int) -> list[int]:
    return [rng.randint(1, end) for _ in range(count)]


@pytest.mark.parametrize("seed", SEEDS)
def test_one_run_has_the_rows_of_an_export(seed: int) -> None:
    log = node_of(world_log(seed))
    found = rows_cut(log, (), batch_rows=7)
    assert found == exported(log)
    assert all(found[table] for table in ("group_epochs", "moves", "ownership", "member_sessions"))


@pytest.mark.parametrize("tape", LIVES)
def test_groups_of_older_protocols_have_the_rows_of_an_export(tape: str) -> None:
    """Cut anywhere too, and from a snapshot on."""
    made = LIVES[tape]()
    third = len(made.told) // 3
    for cut in (None, third):
        log = node(made, cut=cut)
        runs = Runs(log, batch_rows=7)
        for end in (*range(third, len(made.told), 5), len(made.told)):
            runs.run({SHARD: end})
        found = runs.rows()
        assert found == exported(log)
        assert all(found[table] for table in ("group_epochs", "moves", "ownership", "member_sessions"))


@pytest.mark.parametrize(("seed", "count"), list(product(SEEDS, (2, 30))))
def test_runs_that_are_cut_anywhere_have_the_same_rows(seed: int, count: int) -> None:
    frames = world_log(seed)
    log = node_of(frames)
    assert rows_cut(log, some_cuts(random.Random(seed), len(frames), count)) == exported(log)


@pytest.mark.parametrize(("seed", "count"), list(product(SEEDS, (0, 4))))
def test_a_snapshot_stands_in_for_entries_that_are_lost(seed: int, count: int) -> None:
    frames, rng = world_log(seed), random.Random(seed)
    first = rng.randint(1, len(frames) // 2)
    log = node_of(frames, lost=range(first, first + 20), snapshot=first + rng.randint(20, 100))
    assert rows_cut(log, some_cuts(rng, len(frames), count)) == exported(log)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_may_begin_with_a_snapshot(seed: int) -> None:
    frames, rng = world_log(seed), random.Random(seed)
    log = node_of(frames, lost=range(1, 100), snapshot=120)
    assert rows_cut(log, some_cuts(rng, len(frames), 3)) == exported(log)


@pytest.mark.parametrize("seed", SEEDS)
def test_facts_end_where_nothing_stands_in_for_what_is_lost(seed: int) -> None:
    frames = world_log(seed)
    log = node_of(frames, lost=range(300, 301))
    assert rows_cut(log, (100, 200, 400)) == exported(log)


@pytest.mark.parametrize("name", INCIDENTS)
def test_findings_are_the_same_however_often_it_is_run(name: str) -> None:
    known = INCIDENTS[name].run(1)
    log = known.world.node()
    expected = exported(log)
    assert expected["findings"] or all(truth.is_reason for truth in known.truths)
    end = ShardLog.of(log, 0).end
    assert rows_cut(log, some_cuts(random.Random(name), end, 5)) == expected


def stuck_log() -> NodeLog:
    """Return a log with a member that never revokes; later only another group has records."""
    log = INCIDENTS["stuck reconciliation: a member that does not give up"].run(1).world.node()
    reader = log.reader(0)
    assert isinstance(reader, MemoryReader)
    last = reader.written[-1]
    for minutes in (60, 120):
        raw = encode_record(group_epoch(minutes, group="other"))
        at_ms = last.timestamp_ms + minutes * 60_000
        reader.written.append(
            frame(len(reader.written) + 1, at_ms, Cause(trigger=Trigger.MEMBER_JOINED), [raw])
        )
    return log


def test_time_alone_makes_findings_of_a_group_that_is_not_settled() -> None:
    log = stuck_log()
    runs = Runs(log)
    for cut in (runs.shards[0].end - 2, runs.shards[0].end - 1, runs.shards[0].end):
        runs.run({0: cut})
        assert runs.kinds.count(STATE) == 1 + (cut > runs.shards[0].end - 2)
    assert runs.rows() == exported(log)


def test_a_group_that_nothing_happened_to_is_left_alone() -> None:
    log = INCIDENTS["killed member"].run(1).world.node()
    runs = Runs(log)
    runs.run()
    assert [sequence for (sequence, _) in runs.stored[0, GROUP][STATE]] == [SETTLED]
    runs.run()
    assert runs.kinds == []
    reader = log.reader(0)
    assert isinstance(reader, MemoryReader)
    reader.notes.append({**reader.notes[-1], "at_ms": reader.notes[-1]["at_ms"] + 1})
    runs.run()
    assert set(runs.kinds) >= {STATE, NOTES, "findings"}
    runs.run()
    assert runs.kinds == []
    assert runs.rows() == exported(log)


def test_an_entry_that_cannot_be_decoded_is_passed_over() -> None:
    frames = list(world_log(0))
    for at in (50, 120):
        bad = RawRecord(3, 0, encode_record(group_epoch(1, group="g")).key, b"\xc1")
        frames[at] = frame(at + 1, frames[at].timestamp_ms, Cause(trigger=Trigger.MEMBER_JOINED), [bad])
    log = node_of(frames)
    assert rows_cut(log, (60, 200)) == exported(log)


def test_a_group_with_too_many_rows_says_that_it_has_no_diagnoses(monkeypatch: pytest.MonkeyPatch) -> None:
    log = node_of(world_log(0))
    whole = exported(log)
    monkeypatch.setattr(group_facts, "FINDING_ROWS_MAX", 100)
    for cuts in ((), (40, 90, 150, 200)):
        found = rows_cut(log, cuts)
        assert {(row[1], row[3]) for row in found.pop("findings")} == {
            (TOO_MANY_ROWS, "g"),
            (TOO_MANY_ROWS, "h"),
        }
        assert found == {table: rows for table, rows in whole.items() if table != "findings"}


@pytest.mark.parametrize("kind", [STATE, PART, NOTES])
def test_what_is_stored_and_cannot_be_read_is_refused(kind: str) -> None:
    runs = Runs(node_of(world_log(0)))
    runs.run({0: 100})
    sequence, blob = (runs.stored[0, "g"][kind] or [(0, b"[]:")])[-1]
    runs.stored[0, "g"][kind] = [(sequence, blob[:-9] or b"[")]
    with pytest.raises(OutputError, match=r"state of group 'g' cannot be read: .*; write to a new output"):
        runs.run()
