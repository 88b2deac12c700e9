"""Every group in one pass: the same rows as one group at a time, in bounded memory."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from history.facts import shard as shard_facts
from history.facts.checkpoint import dump_builder
from history.facts.group import FactsBuilder, facts_of
from history.facts.rows import GroupRows
from history.facts.shard import facts_of_all, rows_of
from history.reading.catalog import CatalogHistory
from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.reading.source import Walk
from records import Cause, Entry, MemberState, Trigger, encode_record
from tests.support.disk_node import DiskNode
from tests.support.memory_log import (
    GROUP,
    NOON_MS,
    Writer,
    current,
    gone,
    group_epoch,
    group_topics,
    member,
    target,
    target_epoch,
)
from tests.support.payments_log import joined

GROUPS = ("billing", "payments", "search")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> NodeLog:
    home = str(Path(tmp_path_factory.mktemp("logs"), "node-1"))
    node = DiskNode(home, num_shards=1)
    node.create_topic("orders", 6)
    alive = {group: [node.member(group, "app-0", "orders").join()] for group in GROUPS}
    for turn in range(60):
        for place, group in enumerate(GROUPS):
            members = alive[group]
            if (turn + place) % 5 == 0:
                members.append(node.member(group, f"app-{turn}", "orders").join())
            elif (turn + place) % 7 == 0 and len(members) > 1:
                members.pop(0).leave()
            members[0].commit({turn % 6: turn})
        node.pass_ms(500, *(member for members in alive.values() for member in members))
        if turn == 30:
            node.crash()
            node.start()
    node.stop()
    return open_node(home)


def test_the_same_rows_as_one_at_a_time(log: NodeLog) -> None:
    found = {facts.group_id: facts for facts in facts_of_all(log, 0)}
    assert sorted(found) == sorted(GROUPS)
    for group in GROUPS:
        assert found[group] == facts_of(log, group)
    assert [facts.group_id for facts in facts_of_all(log, 0, {"search"})] == ["search"]


def test_with_few_rows_at_once_the_log_is_walked_more_often(
    log: NodeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_facts, "COUNT_ENTRIES", 5)
    held: list[int] = []
    put_off = shard_facts.ShardFacts.put_off

    def watched(facts: shard_facts.ShardFacts, rows_max: int) -> None:
        put_off(facts, rows_max)
        if len(facts.builders) > 1:
            held.append(sum(builder.num_rows for builder in facts.builders.values()))

    monkeypatch.setattr(shard_facts.ShardFacts, "put_off", watched)
    found = {facts.group_id: facts for facts in facts_of_all(log, 0, rows_max=40)}
    assert sorted(found) == sorted(GROUPS)
    for group in GROUPS:
        assert found[group] == facts_of(log, group)
    assert max(held) <= 40


def test_in_parts_they_are_the_same_rows(log: NodeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_facts, "DRAIN_ENTRIES", 10)
    parts: defaultdict[str, list[GroupRows]] = defaultdict(list)
    for part in rows_of(0, log.catalog(), Walk(0, log.reader(0))):
        parts[part.group_id].append(part)
    assert any(len(of_group) > 3 for of_group in parts.values())
    for group in GROUPS:
        whole = facts_of(log, group)
        for name in ("epochs", "terms", "gone"):
            assert sum((getattr(part, name) for part in parts[group]), ()) == getattr(whole, name)
        for name in ("spans", "sessions"):
            rows = [row for part in parts[group] for row in getattr(part, name)]
            assert len(rows) == len(getattr(whole, name))
            assert set(rows) == set(getattr(whole, name))


def test_what_is_handed_over_is_forgotten(log: NodeLog) -> None:
    facts = shard_facts.ShardFacts(0, log.catalog())
    kept: list[int] = []
    for item in Walk(0, log.reader(0)):
        facts.take(item)
        list(facts.drain())
        kept.append(
            sum(
                len(builder.finish().spans) + len(builder.finish().epochs)
                for builder in facts.builders.values()
            )
        )
    assert max(kept) <= 3 * (6 + 16 + 1)


def stuck_group(epochs: int) -> Writer:
    """Ann keeps partition 0, which the target gives to Bob, while the group goes from epoch to epoch."""
    log = Writer()
    log.append(
        joined("ann"), member("ann", "app"), group_topics(2, 1), group_epoch(1),
        target("ann", 0, 1), target_epoch(1), current("ann", 1, (0, 1)),
    )  # fmt: skip
    log.after(1_000).append(
        joined("bob"), member("bob", "app"), group_epoch(2), target("ann", 1), target("bob", 0),
        target_epoch(2), current("bob", 2, (), state=MemberState.UNRELEASED_PARTITIONS),
    )  # fmt: skip
    for epoch in range(3, epochs + 1):
        log.after(1_000).append(joined("bob"), group_epoch(epoch), target_epoch(epoch))
    return log


def test_a_stuck_group_is_handed_over_but_for_the_epoch_that_waits() -> None:
    log, facts = stuck_group(400), shard_facts.ShardFacts(0, CatalogHistory())
    sizes: list[int] = []
    handed: list[int] = []
    for frame in log.log.frames():
        facts.take(frame)
        for part in facts.drain():
            handed += (row.epoch for row in part.epochs)
        sizes.append(len(dump_builder(facts.builders[GROUP])))
    (rest,) = facts.finish()
    assert handed == [1, *range(3, 400)]
    assert [row.epoch for row in rest.epochs] == [2, 400]
    assert rest.epochs[0].waits[0].to_index is None
    assert max(sizes) < 1.1 * max(sizes[:40])


def test_what_began_together_is_in_one_order_however_it_is_handed_over() -> None:
    """Members that a snapshot names begin with it; the one that left first was mentioned first."""
    joined = [encode_record(one) for name in "ba" for one in (member(name, "app"), current(name, 1, ()))]
    whole, parted = (FactsBuilder(GROUP, CatalogHistory(), 0) for _ in range(2))
    parts: list[GroupRows] = []
    for builder in (whole, parted):
        builder.go_on_from(5, NOON_MS, [encode_record(group_epoch(1)), *joined])
        for index, name in ((6, "b"), (7, "a")):
            left = Entry(
                cause=Cause(trigger=Trigger.MEMBER_LEFT, member_id=name),
                records=tuple(encode_record(one) for one in (*gone(name), group_epoch(index))),
            )
            builder.entry(index, NOON_MS + index, left)
            if builder is parted:
                parts.append(builder.drain())
    sessions = [session.member_id for session in whole.finish().sessions]
    assert sessions == ["a", "b"]
    joined_again = [one for part in (*parts, parted.finish()) for one in part.sessions]
    joined_again.sort(key=lambda one: (one.from_index, one.member_id))
    assert [session.member_id for session in joined_again] == sessions
