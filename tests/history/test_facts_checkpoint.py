"""A walk that is stopped anywhere, saved and resumed gives the same rows as one that is not."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from history.facts import checkpoint
from history.facts.checkpoint import StateError, dump_builder, load_builder
from history.facts.group import FactsBuilder
from history.facts.rows import GroupRows
from history.reading.catalog import CatalogHistory
from records import LEASES_SINCE, Entry, RawRecord, TermStartValue, TermWhy
from records.packing import pack, unpack_nested
from tests.support.random_worlds import membership_records, random_world
from tests.support.schedules import GROUPS
from tests.support.world import Entry as Written
from tests.support.world import World
from wire.apis import ApiKey
from wire.messages.extended_consumer_group_heartbeat import ExtendedConsumerGroupHeartbeatRequest

WRITTEN_AS_OF_VERSION = {9: 1_784_501_478}
"""CRC of the checkpoint's format, by version. A format with another CRC is another version."""

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30)
seeds = st.integers(0, 3)
groups = st.sampled_from(GROUPS)
places = st.sets(st.integers(0, 1_500), max_size=12)


@cache
def log_of(seed: int) -> list[Written]:
    return random_world(seed, in_parts=bool(seed % 2)).log


def walked(
    log: Iterable[Written],
    group_id: str,
    cuts: set[int],
    gaps: set[int],
    drains: set[int],
) -> list[GroupRows]:
    """Return the rows of a walk in parts. At a gap a term starts, thirty entries are missing, and the state
    that follows is a snapshot's."""
    names = CatalogHistory()
    builder, parts, missing = FactsBuilder(group_id, names, 0), [], 0
    state: dict[tuple[int, bytes], RawRecord] = {}
    for number, entry in enumerate(log):
        if number in cuts:
            builder = load_builder(dump_builder(builder), names)
        if number in drains:
            parts.append(builder.drain())
        raws = membership_records(entry, group_id)
        for raw in raws:
            state.pop((raw.type, raw.key), None)
            if raw.value is not None:
                state[raw.type, raw.key] = raw
        if number in gaps:
            term = TermStartValue(
                term=number, node_id=1, why=TermWhy.START, previous_leader=2, incarnation="", boot_id=""
            )
            builder.term(entry.index, entry.timestamp_ms, term)
            missing = 30
        elif missing:
            missing -= 1
            if not missing:
                builder.go_on_from(entry.index, entry.timestamp_ms, state.values())
        elif raws:
            builder.entry(entry.index, entry.timestamp_ms, Entry(cause=entry.cause, records=raws))
        else:
            builder.passed(entry.timestamp_ms, entry.index)
    return [*parts, builder.finish()]


@given(seeds, groups, places, places, places)
@UNTIMED
def test_cut_anywhere_it_tells_the_same(
    seed: int, group_id: str, cuts: set[int], gaps: set[int], drains: set[int]
) -> None:
    log = log_of(seed)
    assert walked(log, group_id, cuts, gaps, drains) == walked(log, group_id, set(), gaps, drains)


@pytest.mark.parametrize("group_id", GROUPS)
def test_cut_behind_every_entry_it_tells_the_same(group_id: str) -> None:
    log = log_of(0)
    everywhere = set(range(len(log)))
    assert walked(log, group_id, everywhere, set(), set()) == walked(log, group_id, set(), set(), set())


def test_fencing_tokens_are_kept() -> None:
    world = World()
    world.catalog.view.format_level = LEASES_SINCE
    world.create_topic("orders", 2)
    request = ExtendedConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="ann",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
        fencing_tokens=True,
    )
    world.beat(ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, 1, request)
    builder = FactsBuilder("g", CatalogHistory(), 0)
    for entry in world.log:
        raws = membership_records(entry, "g")
        builder.entry(entry.index, entry.timestamp_ms, Entry(cause=entry.cause, records=raws))
    assert builder.group.members["ann"].tokens
    again = load_builder(dump_builder(builder), CatalogHistory())
    assert again.group.members["ann"].tokens == builder.group.members["ann"].tokens


def test_what_is_repeated_is_there_once() -> None:
    spans = load_builder(state(), CatalogHistory())._ownership._ended
    partitions = [span.partition for span in spans]
    assert len(partitions) > 2 * len(set(partitions))
    assert len({id(one) for one in partitions}) == len(set(partitions))


plain = st.none() | st.booleans() | st.integers(-3, 300) | st.text(max_size=3) | st.binary(max_size=17)
arrays = st.recursive(plain, lambda inner: st.lists(inner, max_size=14), max_leaves=40)


@given(arrays | st.binary())
@UNTIMED
def test_bytes_that_are_no_checkpoint_are_refused(found: Any) -> None:
    data = found if isinstance(found, bytes) else pack([found])
    with pytest.raises(StateError):
        load_builder(data, CatalogHistory())


@cache
def state() -> bytes:
    builder = FactsBuilder(GROUPS[0], CatalogHistory(), 0)
    for entry in log_of(0)[:300]:
        if raws := membership_records(entry, GROUPS[0]):
            builder.entry(entry.index, entry.timestamp_ms, Entry(cause=entry.cause, records=raws))
    return dump_builder(builder)


@given(st.data(), arrays)
@UNTIMED
def test_another_value_in_one_place_is_refused_or_possible_there(data: Any, other: Any) -> None:
    """Any position of any array in a saved state may hold any value."""
    root = unpack_nested(state())
    at = root
    while isinstance(at, list) and at:
        place = data.draw(st.integers(0, len(at) - 1))
        if not isinstance(at[place], list) or data.draw(st.integers(0, 5)) == 0:
            at[place] = other
            break
        at = at[place]
    try:
        builder = load_builder(pack(root), CatalogHistory())
    except StateError:
        return
    assert type(builder) is FactsBuilder


@given(st.integers(0, 10**6), st.integers(0, 255))
@UNTIMED
def test_a_byte_that_differs_is_refused_or_is_what_may_be_there(place: int, byte: int) -> None:
    data = bytearray(state())
    data[place % len(data)] = byte
    try:
        builder = load_builder(bytes(data), CatalogHistory())
    except StateError:
        return
    assert type(builder) is FactsBuilder


def test_a_state_is_refused_that_is_of_another_version_or_form() -> None:
    version, tables, root = unpack_nested(state())
    for items, said in (
        ([version + 1, tables, root], "version 10, but this release uses 9"),
        ([True, tables, root], "version True"),
        ([version, tables[1:], root], "expected an array of 11"),
        ([version, tables], "not a stored state"),
    ):
        with pytest.raises(StateError, match=said):
            load_builder(pack(items), CatalogHistory())


def test_a_change_of_the_format_raises_the_version() -> None:
    """If this fails, raise `checkpoint.VERSION` and put the new version and CRC here."""
    assert {
        checkpoint.VERSION: zlib.crc32("\n".join(checkpoint.described()).encode())
    } == WRITTEN_AS_OF_VERSION
