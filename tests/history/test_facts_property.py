"""The facts agree with the replayed state at every index, whatever schedules do to groups.

The schedules are those of the protocol's own tests (joins, losses, leaves, expiries, statics, expressions,
topic changes, failovers, deletions, targets installed a record at a time). Replay is `GroupView`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest

from history.facts.change import Partition
from history.facts.group import FactsBuilder
from history.facts.rows import GroupRows, SessionEnd, SpanKind, WaitEnd
from history.reading.catalog import CatalogHistory
from records import Entry, MemberState
from records.ids import topic_id_text
from tests.support.group_view import GroupView, differences
from tests.support.random_worlds import membership_records, random_world
from tests.support.schedules import GROUPS
from tests.support.world import Entry as Written


@dataclass
class Seen:
    """The replayed state after one entry of the group."""

    index: int
    owners: dict[Partition, tuple[SpanKind, str]]
    unowned: set[Partition]
    members: set[str]
    away: set[str]
    epoch: int
    state: str
    blocked: set[tuple[str, Partition, str]] = field(default_factory=set)
    """(UNRELEASED member, a partition of its target that it lacks, that partition's owner)."""


def replayed(log: Iterable[Written], group_id: str) -> Iterator[Seen]:
    view = GroupView(group_id)
    for written in log:
        if not (raws := membership_records(written, group_id)):
            continue
        for raw in raws:
            view.apply(raw)
        owners = {p: (SpanKind.OWNED, m.member_id) for m in view.members.values() for p in m.assigned}
        owners |= {p: (SpanKind.REVOKING, m.member_id) for m in view.members.values() for p in m.pending}
        wanted = {(id_, n) for id_, count in view.topics.values() for n in range(count)}
        yield Seen(
            index=written.index,
            owners=owners,
            unowned=wanted - owners.keys() if view.members else set(),
            members=set(view.members),
            away={m.member_id for m in view.members.values() if m.is_away},
            epoch=view.epoch,
            state=view.state,
            blocked=set(blocked(view, owners)),
        )


def blocked(
    view: GroupView, owners: dict[Partition, tuple[SpanKind, str]]
) -> Iterator[tuple[str, Partition, str]]:
    for member_id, member in view.members.items():
        is_closed = view.target_epochs.get(member_id, 0) <= view.assignment_epoch
        if member.state != MemberState.UNRELEASED_PARTITIONS or not is_closed:
            continue
        for partition in view.target.get(member_id, frozenset()) - member.owned:
            if partition in owners:
                yield member_id, partition, owners[partition][1]


def built(log: Iterable[Written], group_id: str) -> GroupRows:
    builder, view = FactsBuilder(group_id, CatalogHistory(), 0), GroupView(group_id)
    for written in log:
        raws = membership_records(written, group_id)
        if raws:
            builder.entry(written.index, written.timestamp_ms, Entry(cause=written.cause, records=raws))
            for raw in raws:
                view.apply(raw)
            assert builder._follower.now.state == view.state
            assert differences(builder.group, view) == []
        else:
            builder.passed(written.timestamp_ms, written.index)
    return builder.finish()


def is_at(index: int, start: int, end: int | None) -> bool:
    return start <= index and (end is None or index < end)


def check(facts: GroupRows, seen: list[Seen], names: dict[str, str]) -> None:
    """Check every row against every state."""
    for now in seen:
        spans = [s for s in facts.spans if is_at(now.index, s.from_index, s.to_index)]
        keys = [(s.topic_id, s.partition.partition) for s in spans]
        assert len(keys) == len(set(keys)), "a partition is in two spans at once"
        held = {
            (s.topic_id, s.partition.partition): (s.kind, s.member_id)
            for s in spans
            if s.kind is not SpanKind.UNOWNED
        }
        assert held == {(topic_id_text(t), n): owner for (t, n), owner in now.owners.items()}
        unowned = {(s.topic_id, s.partition.partition) for s in spans if s.kind is SpanKind.UNOWNED}
        assert unowned == {(topic_id_text(t), n) for t, n in now.unowned}
        sessions = [s for s in facts.sessions if is_at(now.index, s.from_index, s.to_index)]
        assert sorted(s.member_id for s in sessions) == sorted(now.members)
        away = {s.member_id for s in sessions for a in s.aways if is_at(now.index, a.from_index, a.to_index)}
        assert away == now.away
        rows = [row for row in facts.epochs if is_at(now.index, row.index, row.end_index)]
        assert [row.epoch for row in rows] == ([now.epoch] if now.epoch >= 0 else [])
        waits = [w for row in facts.epochs for w in row.waits if is_at(now.index, w.from_index, w.to_index)]
        assert len({(w.partition, w.waiter) for w in waits}) == len(waits)
        explained = {(w.waiter, str(w.partition)) for w in waits}
        for waiter, (topic_id, number), _ in now.blocked:
            assert (waiter, f"{names[topic_id_text(topic_id)]}-{number}") in explained
        for wait in waits:
            assert wait.holder in {member_id for _, member_id in now.owners.values()}


def check_epochs(facts: GroupRows, seen: list[Seen]) -> None:
    state = {now.index: now for now in seen}
    for row in facts.epochs:
        inside = [now for now in seen if is_at(now.index, row.index, row.end_index)]
        assert row.state == inside[-1].state
        assert row.members == tuple(sorted(state[row.index].members))
        settled = [now.index for now in inside if now.state in ("Stable", "Empty")]
        assert row.settled_index == (settled[0] if settled else None)
        after = [now for now in inside if settled and now.index > settled[0]]
        lapsed = [any(is_at(now.index, r.from_index, r.to_index) for r in row.relapses) for now in after]
        assert lapsed == [now.state not in ("Stable", "Empty") for now in after]
        assert row.cause.reasons or row.epoch_before == 0, "an epoch without a reason"
        for step in row.progress:
            assert step.released or step.told or step.took or step.reached
        for wait in row.waits:
            assert row.index <= wait.from_index
            assert wait.told_index is None or wait.to_index is None or wait.told_index <= wait.to_index
            assert (wait.end is WaitEnd.OPEN) == (wait.to_index is None)
            assert wait.end is not WaitEnd.UNKNOWN
    target: dict[str, str] = {}
    if all(
        r.target_index is None or r.end_index is None or r.target_index < r.end_index for r in facts.epochs
    ):
        for row in facts.epochs:
            for moved in row.moves:
                key = str(moved.partition)
                assert target.get(key) == moved.source
                target = {**target, key: moved.target} if moved.target else _without(target, key)


def _without(target: dict[str, str], key: str) -> dict[str, str]:
    return {name: member_id for name, member_id in target.items() if name != key}


HAPPENED: Counter[str] = Counter()


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_rows_say_what_replay_says(seed: int, in_parts: bool) -> None:
    world = random_world(seed, in_parts=in_parts)
    for group_id in GROUPS:
        seen = list(replayed(world.log, group_id))
        facts = built(world.log, group_id)
        assert seen
        names = {span.topic_id: span.partition.topic for span in facts.spans}
        check(facts, seen, names)
        check_epochs(facts, seen)
        HAPPENED.update(f"wait {wait.end}" for row in facts.epochs for wait in row.waits)
        HAPPENED.update(f"session {session.end}" for session in facts.sessions)
        HAPPENED["group gone"] += len(facts.gone)
        HAPPENED["target later"] += sum(row.target_index not in (None, row.index) for row in facts.epochs)
        HAPPENED["rejoined"] += sum(session.rejoins for session in facts.sessions)
        HAPPENED["took a place"] += sum(session.replaced is not None for session in facts.sessions)


def test_the_schedules_made_every_kind_of_row() -> None:
    """The test above proves nothing of rows that no schedule brought about."""
    expected = {f"wait {end}" for end in WaitEnd if end not in (WaitEnd.UNKNOWN, WaitEnd.OPEN)}
    of_others = (SessionEnd.JOIN_EXPIRED, SessionEnd.SYNC_EXPIRED, SessionEnd.FORGOTTEN)
    expected |= {f"session {end}" for end in SessionEnd if end not in (SessionEnd.UNKNOWN, *of_others)}
    expected |= {"group gone", "target later", "rejoined", "took a place"}
    assert expected <= {what for what, count in HAPPENED.items() if count}
