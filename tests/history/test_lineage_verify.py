"""Checking groups of the older protocols: rules at every index, a second reading, a node's directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from history.checking.invariants import InvariantChecker
from history.checking.old_groups import (
    NEVER_BACK,
    NEXT_GENERATION,
    OLD_GROUP_RULES,
    ONE_OWNER,
    ONE_PHASE,
    WAITS_WITH_NOTHING,
)
from history.checking.secondopinion import disagreements
from history.checking.verify import report_text, verify
from history.facts.group import facts_of
from history.facts.shard import facts_of_all
from history.reading.opening import open_node
from raftlog.env.settings import LogSettings
from records import (
    Cause,
    PushGroupKey,
    PushGroupValue,
    PushState,
    RawRecord,
    Record,
    RecordType,
    RewriteGroupValue,
    Trigger,
    decode_entry,
    encode_entry,
    encode_record,
)
from tests.support.disk_node import DiskNode
from tests.support.lineage_logs import (
    GROUP,
    SHARD,
    SHARDS,
    Tape,
    node,
    push_story,
    rewrite_story,
)
from tests.support.memory_log import commit

from .lineage_lives import every_life, life, read


def checked(tape: Tape) -> InvariantChecker:
    checker = InvariantChecker()
    newest: dict[tuple[int, bytes], RawRecord] = {}
    for index, frame in enumerate(node(tape).reader(SHARD).frames(), 1):
        raws = decode_entry(frame.body).records
        checker.entry(index, raws)
        for raw in raws:
            newest.pop((raw.type, raw.key), None)
            if raw.value is not None and raw.type in (RecordType.PUSH_GROUP, RecordType.REWRITE_GROUP):
                newest[raw.type, raw.key] = raw
    assert not disagreements(checker.projection, newest.values())
    return checker


@every_life
def test_the_invariants_hold_after_every_entry(name: str) -> None:
    assert not checked(life(name)).violations


def twice_generations_on(value: RewriteGroupValue) -> RewriteGroupValue:
    return replace(value, generation=value.generation + 2)


def in_round_one(value: PushGroupValue) -> PushGroupValue:
    return replace(value, round=1)


def twice_owned(value: PushGroupValue) -> PushGroupValue:
    (one,) = value.consumers
    return replace(value, consumers=(one, replace(one, consumer_id="z")))


def half_stopped(value: PushGroupValue) -> PushGroupValue:
    (one,) = value.consumers
    return replace(value, consumers=(one, replace(one, consumer_id="z", owned=(), state=PushState.STOPPING)))


def waiting(value: PushGroupValue) -> PushGroupValue:
    (one,) = value.consumers
    return replace(value, consumers=(replace(one, state=PushState.WAITING),))


SPOILED: dict[str, Callable[[Any], Any]] = {
    ONE_OWNER: twice_owned,
    NEVER_BACK: in_round_one,
    NEXT_GENERATION: twice_generations_on,
    ONE_PHASE: half_stopped,
    WAITS_WITH_NOTHING: waiting,
}


def test_every_rule_is_tried() -> None:
    assert set(SPOILED) == set(OLD_GROUP_RULES)


@pytest.mark.parametrize("rule", OLD_GROUP_RULES)
def test_a_record_that_breaks_a_rule_is_found(rule: str) -> None:
    tape: Tape = rewrite_story() if rule == NEXT_GENERATION else push_story()
    *_, (_, _, newest) = (one for one in read(tape) if one[2] is not None)
    checker = checked(tape)
    key = next(iter(checker.projection.old_groups))
    checker.entry(len(tape.told) + 1, [encode_record(Record(key, SPOILED[rule](newest)))])
    assert {(one.group_id, one.rule) for one in checker.violations} == {(GROUP, rule)}


def test_a_second_opinion_finds_a_group_that_the_records_do_not_have() -> None:
    checker = checked(push_story())
    checker.projection.old_groups[PushGroupKey(group_id="other")] = PushGroupValue(consumers=())
    (found,) = disagreements(
        checker.projection,
        [
            encode_record(Record(*one))
            for one in checker.projection.old_groups.items()
            if one[0].group_id == GROUP
        ],
    )
    assert "other" in found


# A directory of a node: sealed segments with their indexes, snapshots.


@pytest.mark.parametrize("name", ["push-log-2", "design-1"])
def test_a_directory_with_old_segments_and_snapshots_tells_the_same_and_is_verified(
    name: str, tmp_path: Path
) -> None:
    tape = life(name)
    disk = DiskNode(
        str(tmp_path / "node-1"),
        num_shards=SHARDS,
        log=LogSettings(segment_bytes=4_000, snapshot_tail_records=60),
    )
    machine = disk.machines[SHARD]
    assert machine.replica is not None
    commits = tuple(encode_record(commit(number, number, "other")) for number in range(3))
    filler = (Cause(trigger=Trigger.OFFSETS_COMMITTED), commits)
    for _, written, group_raws in tape.told:
        for cause, raws in (
            (written, group_raws),
            *[filler] * (260 // len(tape.told)),
        ):  # segments end where strides do
            if cause is None:
                continue
            for raw in raws:
                machine.shard.apply(raw, machine.replica.next_index)
            machine.replica.propose(encode_entry(cause, raws), len(raws), disk.host.wall_ms())
            disk.host.advance(50)
    disk.stop()
    log = open_node(disk.path)
    report = verify(disk.path)
    assert report.ok, "\n".join(report_text(report))
    assert len(list((tmp_path / "node-1" / f"shard-{SHARD}").rglob("*.index"))) > 0
    whole, found = facts_of(node(tape), GROUP), facts_of(log, GROUP)
    assert [(row.epoch, row.cause, row.members) for row in found.epochs] == [
        (row.epoch, row.cause, row.members) for row in whole.epochs
    ]
    assert [(one.member_id, one.kind, one.epoch) for one in found.spans] == [
        (one.member_id, one.kind, one.epoch) for one in whole.spans
    ]
    (all_of,) = facts_of_all(log, SHARD)
    assert all_of == found
