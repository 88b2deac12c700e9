"""Facts by group in one run or in many: the rows of `quorate log export`, wherever the runs are cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")

from history.diagnoses import findings_of, incremental
from history.diagnoses.table import GROUP_RULES
from history.export.schema import SCHEMAS
from history.facts.group import facts_of
from history.reading.node import NodeLog
from lineage.push.decisions import Failover
from quorate.spark.errors import OutputError
from quorate.spark.facts import group as group_facts
from quorate.spark.facts.group import SETTLED, STATE
from raftlog.storage.frames import Frame
from records import (
    Cause,
    RawRecord,
    Record,
    TermStartKey,
    TermStartValue,
    TermWhy,
    Trigger,
    encode_record,
)
from tests.pipeline.world_logs import frame, node_of, world_log
from tests.support.incidents.scenarios import INCIDENTS
from tests.support.incidents.world import GROUP
from tests.support.lineage_logs import SHARD, PushTape, Tape, node, rewrite_life
from tests.support.memory_log import MemoryReader, group_epoch
from tests.support.push_world import play

from .factruns import CLUSTER, Rows, Runs, ShardLog, exported, in_order

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


def stretched(frames: Sequence[Frame], seed: int) -> list[Frame]:
    """Return the entries over days: some close together as before, others hours apart."""
    rng, ms, before, factor = random.Random(seed), frames[0].timestamp_ms, frames[0].timestamp_ms, 1
    found = []
    for one in frames:
        if rng.random() < 0.05:
            factor = rng.choice((1, 1, 5, 60))
            ms += rng.choice((0, 0, 0, 0, 600_000, 7_200_000, 40_000_000))
        ms += (one.timestamp_ms - before) * factor
        before = one.timestamp_ms
        found.append(replace(one, timestamp_ms=ms))
    return found


@pytest.mark.parametrize(("seed", "count"), list(product(range(6), (0, 3, 40))))
def test_runs_over_days_have_the_rows_of_an_export(
    seed: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most findings are concluded in a run before the last one."""
    monkeypatch.setattr(incremental, "CHECK_ROWS", 1)
    frames = stretched(world_log(seed), seed)
    log = node_of(frames)
    runs = Runs(log)
    for cut in sorted(some_cuts(random.Random(seed), len(frames), count)):
        runs.run({0: cut})
    runs.run()
    expected = exported(log)
    assert runs.rows() == expected
    concluded = len(runs.tables["findings"])
    assert concluded > len(expected["findings"]) // 3
    groups = [findings_of(facts_of(log, name), None, GROUP_RULES) for name in ("g", "h")]
    plain = [SCHEMAS["findings"].values(one) for of_group in groups for one in of_group]
    of_groups = [row for row in expected["findings"] if row[3] is not None]
    assert of_groups == in_order({"findings": [(CLUSTER, *row) for row in plain]})["findings"]


def test_a_term_alone_is_no_news_to_a_group() -> None:
    frames = list(world_log(0))
    value = TermStartValue(
        term=9_999, node_id=1, why=TermWhy.EXPIRY, previous_leader=2, incarnation="", boot_id=""
    )
    term = encode_record(Record(TermStartKey(), value))
    for _ in range(5):
        at_ms = frames[-1].timestamp_ms + 10
        frames.append(frame(len(frames) + 1, at_ms, Cause(trigger=Trigger.TERM_OPENED), [term]))
    before = len(frames) - 5
    log = node_of(frames)
    runs = Runs(log)
    runs.run({0: before})
    settled = [group for group, kinds in runs.stored.items() if kinds[STATE][0][0] == SETTLED]
    runs.run()
    assert [kind for kind in runs.kinds if kind == STATE] == [STATE] * (len(runs.stored) - len(settled))
    assert runs.rows() == exported(log)


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
    assert set(runs.kinds) >= {STATE, "open:findings"}
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


def test_what_is_stored_and_cannot_be_read_is_refused() -> None:
    runs = Runs(node_of(world_log(0)))
    runs.run({0: 100})
    ((sequence, blob),) = runs.stored[0, "g"][STATE]
    runs.stored[0, "g"][STATE] = [(sequence, blob[:-9])]
    with pytest.raises(OutputError, match=r"state of group 'g' cannot be read: .*; write to a new output"):
        runs.run()
