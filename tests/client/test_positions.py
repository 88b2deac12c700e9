"""The table of the states of a partition's position."""

from __future__ import annotations

import pytest

from client.core.positions import TRANSITIONS, FetchState, PartitionPosition, PositionEvent
from client.core.types import TopicPartition

A = TopicPartition("orders", 0)


def test_every_state_is_reached_and_only_a_seek_ends_the_wait_for_one() -> None:
    reached = {PartitionPosition(A, 1, offset).state for offset in (None, -1, 5)} | set(TRANSITIONS.values())
    assert reached == set(FetchState)
    assert {event for _, event in TRANSITIONS} == set(PositionEvent)
    assert FetchState.AWAIT_SEEK not in {state for state, _ in TRANSITIONS}


def test_an_event_that_the_table_lacks_is_a_bug_that_shows() -> None:
    with pytest.raises(KeyError):
        PartitionPosition(A, 1, None).go(PositionEvent.FETCHED)
