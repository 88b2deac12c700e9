"""B.2: the records that an event writes, and their order.

Every entry of every test with a `World`, and of every story, is checked against
`tests/support/write_order.py`. The tests here show that records out of order are noticed.
"""

from __future__ import annotations

import pytest

from records import RawRecord, Trigger
from tests.support.world import World
from tests.support.write_order import WRITE_ORDER, check_write_order


def left(world: World) -> tuple[RawRecord, ...]:
    """Return the records of the leave of one of two members: ~8, ~7, ~5, 4, 3, then the other's 7 and 6."""
    world.create_topic("bills", 2)
    world.join("a")
    world.join("b", ["orders", "bills"])
    world.heartbeat("b", -1)
    assert world.log[-1].types == [-8, -7, -5, 4, 3, 7, 6]
    return world.log[-1].records


def test_any_two_neighbours_exchanged_are_noticed(world: World) -> None:
    records = left(world)
    check_write_order(Trigger.MEMBER_LEFT, records)
    for at in range(len(records) - 1):
        changed = [*records[:at], records[at + 1], records[at], *records[at + 2 :]]
        with pytest.raises(AssertionError, match="of group 'g' wrote"):
            check_write_order(Trigger.MEMBER_LEFT, changed)


def test_another_event_writes_otherwise(world: World) -> None:
    records = left(world)
    for trigger in set(WRITE_ORDER) - {
        Trigger.MEMBER_LEFT,
        Trigger.MEMBER_REMOVED,
        Trigger.SESSION_EXPIRED,
        Trigger.REBALANCE_EXPIRED,
    }:
        with pytest.raises(AssertionError):
            check_write_order(trigger, records)
