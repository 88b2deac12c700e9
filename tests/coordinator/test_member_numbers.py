"""Members' numbers: by arrival in the group's life, never given twice, the same live and in the log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.runtime.slices import finished
from coordinator import views
from coordinator.limits import Limits
from coordinator.members import numbering
from coordinator.members.numbering import number_records
from history.facts.group import FactsBuilder
from history.facts.naming import member_names
from history.facts.rows import GroupRows, MemberSession
from history.pages.captions import Captions
from history.reading.catalog import CatalogHistory
from history.render import UTC_STYLE
from history.telling.member_labels import MemberLabels
from history.telling.story import Teller
from records import (
    NUMBERS_SINCE,
    Entry,
    PushConsumer,
    PushGroupKey,
    PushGroupValue,
    PushState,
    RawRecord,
    Record,
    RecordType,
    compact,
    encode_record,
)
from tests.support.embedded_member import EmbeddedConsumer, settled
from tests.support.group_client import Client, settle
from tests.support.world import World
from wire.apis import ApiKey
from wire.messages.delete_groups import DeleteGroupsRequest

NUMBER = RecordType.MEMBER_NUMBER


@pytest.fixture
def world() -> World:
    world = World(limits=Limits(serves_classic=True))
    world.catalog.view.format_level = NUMBERS_SINCE
    world.create_topic("orders", 4)
    return world


def numbers(world: World) -> dict[str, int]:
    return world.shard.projection.numbers.of_group("g").present


def live_names(world: World) -> dict[str, str]:
    view: Any = finished(views.group_view(world.shard, "g", world.now_ms, world.settings))
    return {member["member_id"]: f"m{member['number']}" for member in view["members"]}


def facts(world: World) -> GroupRows:
    builder = FactsBuilder("g", CatalogHistory(), 0)
    for entry in world.log:
        builder.entry(entry.index, entry.timestamp_ms, Entry(entry.cause, entry.records))
    return builder.finish()


def names_in_the_log(world: World) -> dict[str, str]:
    told = facts(world)
    names = member_names(told)
    return {one.member_id: names.name(one.member_id) for one in told.sessions}


def snapshot(world: World) -> list[RawRecord]:
    return [one.record for one in compact(world.stamped(), now_ms=2**62, delete_retention_ms=0)]


def compacted(world: World) -> dict[str, int]:
    """The numbers after a snapshot that replaced the log, on another node."""
    shard = World().shard
    shard.apply_all(snapshot(world), world.log[-1].index)
    assert shard.state_hash == world.shard.state_hash
    return shard.projection.numbers.of_group("g").present


def test_members_are_numbered_by_arrival_and_no_number_is_given_twice(world: World) -> None:
    c, a, b = (Client(world, one) for one in "cab")
    settle([c, a, b])
    assert numbers(world) == {"c": 1, "a": 2, "b": 3}
    b.leave()
    a.leave()
    settle([c, Client(world, "d")])
    assert numbers(world) == live_number(world) == compacted(world) == {"c": 1, "d": 4}
    world.failover()
    settle([c, Client(world, "e")])
    assert numbers(world) == {"c": 1, "d": 4, "e": 5}
    assert names_in_the_log(world) == {"c": "m1", "a": "m2", "b": "m3", "d": "m4", "e": "m5"}
    assert live_names(world) == {"c": "m1", "d": "m4", "e": "m5"}


def test_a_history_that_begins_with_a_snapshot_has_the_same_names(world: World) -> None:
    a, b = Client(world, "a"), Client(world, "b")
    settle([a, b])
    a.leave()
    builder = FactsBuilder("g", CatalogHistory(), 0)
    builder.go_on_from(world.log[-1].index, world.log[-1].timestamp_ms, snapshot(world))
    before = len(world.log)
    settle([b, Client(world, "c")])
    for entry in world.log[before:]:
        builder.entry(entry.index, entry.timestamp_ms, Entry(entry.cause, entry.records))
    names = member_names(builder.finish())
    assert {one: names.name(one) for one in "bc"} == live_names(world) == {"b": "m2", "c": "m3"}


def test_members_are_in_the_order_of_their_numbers_and_others_by_name(world: World) -> None:
    def session(member_id: str, number: int | None, index: int) -> MemberSession:
        began = replace(told.sessions[0], member_id=member_id, number=number, from_index=index)
        return replace(began, to_index=None, to_ms=None)

    settle([Client(world, "a"), Client(world, "b")])
    told = facts(world)
    long = "member-of-a-long-name-"
    came = (session(long + "a", 1, 2), session(long + "b", 10, 3), session(long + "c", 2, 3))
    names = member_names(replace(told, sessions=came))
    assert list(names.legend()) == ["m1", "m2", "m10"]
    assert names.in_order([long + "b", long + "x", long + "c"]) == [long + one for one in "cbx"]
    unnumbered = tuple(session(one, None, 2 + at) for at, one in enumerate(["zoe", "ann-10", "ann-9"]))
    assert member_names(replace(told, sessions=unnumbered)).in_order(["zoe", "ann-10", "ann-9"]) == [
        "ann-9", "ann-10", "zoe"
    ]  # fmt: skip
    # What is told follows: the legend, the owners, and the lanes of the timeline.
    number_of = {"a": 2, "b": 1}
    other = tuple(replace(one, number=number_of[one.member_id]) for one in told.sessions)
    swapped = replace(told, sessions=other)
    labels = MemberLabels(swapped, CatalogHistory(), UTC_STYLE)
    assert list(labels.legend()) == ["m1", "m2"]
    (*_, last) = Teller(swapped, labels).epochs()
    assert list(last.owners) == ["m1", "m2"]
    assert Captions(swapped, UTC_STYLE).members == ("b", "a")


def live_number(world: World) -> dict[str, int]:
    return {member_id: int(name[1:]) for member_id, name in live_names(world).items()}


def test_a_number_is_written_in_the_entry_that_admits_the_member_and_goes_with_it(world: World) -> None:
    a, b = Client(world, "a"), Client(world, "b")
    settle([a, b])
    joins = [entry for entry in world.log if NUMBER in entry.types]
    assert [entry.cause.member_id for entry in joins] == ["a", "b"]
    assert all(entry.types[-2:] == [NUMBER, NUMBER] for entry in joins)
    b.leave()
    assert world.log[-1].types[-1] == NUMBER
    assert numbers(world) == {"a": 1}


def test_a_member_that_comes_back_has_its_number_again_unless_many_left_since(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbering, "LEFT_KEPT", 2)
    a, b = Client(world, "a"), Client(world, "b")
    settle([a, b])
    world.sleep(50_000)
    settle([Client(world, "c"), b, a])
    assert numbers(world) == compacted(world) == {"c": 3, "b": 2, "a": 1}
    for one in (a, b, Client(world, "d")):
        settle([one])
        one.leave()
    assert set(world.shard.projection.numbers.of_group("g").left) == {"b", "d"}
    settle([Client(world, "a")])
    assert numbers(world)["a"] == 5


def test_a_static_member_that_returns_under_another_id_is_another_member(world: World) -> None:
    a, b = Client(world, "a", instance_id="i"), Client(world, "b")
    settle([a, b])
    a.leave(for_good=False)
    assert numbers(world) == {"a": 1, "b": 2}
    a.restart("a2")
    settle([a, b])
    assert numbers(world) == {"a2": 3, "b": 2}
    assert names_in_the_log(world) == {"a": "m1", "b": "m2", "a2": "m3"}


def test_a_group_keeps_the_numbers_when_it_changes_its_protocol(world: World) -> None:
    a, b = EmbeddedConsumer(world, "a"), EmbeddedConsumer(world, "b")
    settled(world, a, b)
    assert numbers(world) == {a.member_id: 1, b.member_id: 2}
    assert live_names(world) == names_in_the_log(world) == {a.member_id: "m1", b.member_id: "m2"}
    c = Client(world, "c")
    settled(world, a, b, c)
    assert numbers(world) == {a.member_id: 1, b.member_id: 2, "c": 3}
    c.leave()
    settled(world, a, b)
    assert world.group().classic is not None
    settled(world, a, b, d := EmbeddedConsumer(world, "d"))
    assert live_names(world) == {a.member_id: "m1", b.member_id: "m2", d.member_id: "m4"}
    assert names_in_the_log(world) == live_names(world) | {"c": "m3"}


def test_a_new_life_of_the_group_begins_with_m1(world: World) -> None:
    settle([Client(world, "a"), b := Client(world, "b")])
    b.leave()
    Client(world, "a").leave()
    world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    assert not world.shard.projection.numbers.of_group("g").member_ids()
    settle([Client(world, "c")])
    assert numbers(world) == compacted(world) == {"c": 1}
    assert names_in_the_log(world) == {"a": "life1.m1", "b": "life1.m2", "c": "m1"}


def test_members_of_an_older_release_get_numbers_with_the_next_arrival(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.catalog.view.format_level = NUMBERS_SINCE - 1
    a, b, c = (Client(world, one) for one in "abc")
    settle([c, b, a])
    b.leave()
    settle([a, c])
    assert numbers(world) == {}
    assert names_in_the_log(world) == {"a": "a", "b": "b", "c": "c"}
    world.catalog.view.format_level = NUMBERS_SINCE
    settle([a, c])
    assert numbers(world) == {}
    monkeypatch.setattr(numbering, "NUMBERED_AT_ONCE", 2)
    settle([a, c, Client(world, "d")])
    assert numbers(world) == {"a": 1, "c": 2}
    settle([Client(world, "e")])
    assert numbers(world) == {"a": 1, "c": 2, "d": 3, "e": 4}


def test_consumers_of_older_protocols_are_numbered_too(world: World) -> None:
    def write(*ids: str) -> None:
        consumers = tuple(
            PushConsumer(
                consumer_id=one,
                state=PushState.STARTED,
                auto_commit=0,
                max_ping_retries=1,
                ping_interval_ms=1_000,
                auto_offset_reset="",
            )
            for one in ids
        )
        value = PushGroupValue(consumers=consumers) if consumers else None
        raws = [encode_record(Record(PushGroupKey(group_id="g"), value))]
        projection = world.shard.projection
        projection.apply_all(raws, 1)
        projection.apply_all(number_records(projection, raws, world.ctx()), 1)

    write("a", "b")
    write("b", "c")
    assert numbers(world) == {"b": 2, "c": 3}
    write()
    assert not world.shard.projection.numbers.of_group("g").member_ids()
