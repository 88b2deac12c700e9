"""The state hash: deferred parts are computed, a few entries at a time."""

from __future__ import annotations

import pytest

from coordinator.state import statehash
from coordinator.state.projection import Projection
from coordinator.state.statehash import (
    REFRESHED_AT_ONCE,
    REFRESHED_BY_ENTRY_MAX,
    STALE_IN_ENTRY_MAX,
    STALE_MAX,
)
from coordinator.state.writes import member_metadata, write
from records import ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, RawRecord


def _record(number: int, rack_id: str) -> RawRecord:
    value = ConsumerGroupMemberMetadataValue(
        client_id="app", client_host="/127.0.0.1", subscribed_topic_names=("orders",), rack_id=rack_id
    )
    return member_metadata("g", f"member-{number}", value)


def _written(projection: Projection, number: int, rack_id: str) -> None:
    projection.apply(_record(number, rack_id), number + 1)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The keys whose parts of the hash were computed."""
    found: list[bytes] = []
    mix = statehash.mix

    def counting(key: bytes, value: bytes) -> int:
        found.append(key)
        return mix(key, value)

    monkeypatch.setattr(statehash, "mix", counting)
    return found


def test_no_single_record_pays_for_all_that_wait(computed: list[bytes]) -> None:
    projection = Projection()
    at_once = 0
    for number in range(3 * STALE_MAX):
        before = len(computed)
        _written(projection, number, "a")
        at_once = max(at_once, len(computed) - before)
    assert at_once == REFRESHED_AT_ONCE
    before = len(computed)
    assert projection.state_hash
    assert 0 < len(computed) - before <= STALE_MAX
    assert len(computed) == len(set(computed)) == 3 * STALE_MAX


def test_a_large_entry_leaves_its_hash_to_those_after_it(computed: list[bytes]) -> None:
    projection = Projection()
    for number in range(4 * STALE_MAX):
        projection.apply(_record(number, "a"), 1)
    assert len(computed) == REFRESHED_AT_ONCE
    for number in range(2 * STALE_IN_ENTRY_MAX):
        projection.apply(_record(number, "b"), 2)
    assert len(projection._hashes._stale) <= STALE_IN_ENTRY_MAX
    for number in range(20):
        before = len(computed)
        _written(projection, number, "c")
        assert len(computed) - before <= REFRESHED_BY_ENTRY_MAX
    assert len(projection._hashes._stale) <= STALE_MAX


def test_an_entry_that_changes_often_is_computed_once(computed: list[bytes]) -> None:
    projection = Projection()
    for round_ in range(10 * STALE_MAX):
        _written(projection, round_ % 3, str(round_))
    assert projection.state_hash
    assert len(computed) == 3


def test_it_is_the_hash_of_what_there_is_however_it_came_to_be() -> None:
    one, other = Projection(), Projection()
    for number in range(2 * STALE_MAX):
        _written(one, number, "a")
        _written(one, number, "b")
        if number % 7 == 0:
            assert one.state_hash != other.state_hash
    for number in range(2 * STALE_MAX):
        if number % 2:
            key = ConsumerGroupMemberMetadataKey(group_id="g", member_id=f"member-{number}")
            one.apply(write(key, None), number + 1)
        else:
            _written(other, number, "b")
    assert one.state_hash == other.state_hash
