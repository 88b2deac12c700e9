"""Offset resets: the plan, and plan files that are read back as written."""

from __future__ import annotations

import pytest

from quorate.errors import CommandError, ExitCode
from quorate.offsetplan import OffsetChange, from_csv, plan, to_csv


def test_a_plan_never_leaves_the_ends_and_says_so() -> None:
    committed = {"orders": {0: 5, 1: 90, 2: 50}}
    ends = {("orders", 0): (4, 100), ("orders", 1): (4, 100)}
    partitions = [("orders", number) for number in (2, 1, 0, 3)]
    found = plan(partitions, committed, lambda at, now: None if now is None else now - 60, ends)
    assert found == [
        OffsetChange("orders", 0, 5, 4, "-55 is before the beginning"),
        OffsetChange("orders", 1, 90, 30),
        OffsetChange("orders", 2, 50, 0, "-10 is before the beginning"),
        OffsetChange("orders", 3, None, None, "has no committed offset"),
    ]
    (over,) = plan([("orders", 0)], committed, lambda at, now: 101, ends)
    assert (over.new, over.note) == (100, "101 is after the end")


def test_what_stays_is_no_change() -> None:
    assert not OffsetChange("orders", 0, 5, 5).is_change
    assert not OffsetChange("orders", 0, 5, None).is_change
    assert OffsetChange("orders", 0, None, 5).is_change


def test_a_file_comes_back_as_it_was_written() -> None:
    steps = [
        OffsetChange('odd,"topic"', 0, 1, 2),
        OffsetChange("orders", 1, 7, None),
        OffsetChange("orders", 2, None, None),
    ]
    assert from_csv(to_csv(steps), "f") == {('odd,"topic"', 0): 2, ("orders", 1): 7}
    assert from_csv("topic,partition,offset\norders,0,1\n\n", "f") == {("orders", 0): 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("orders,0\n", "line 1 of f is not topic"),
        ("orders,0,1\norders,0,2\n", "line 2 of f contains orders-0 twice"),
        ("orders,0,-1\n", "has the offset '-1'"),
        ("orders,x,1\n", "has the partition 'x'"),
        (f"orders,0,{2**63}\n", "has the offset"),
        ("orders,²,1\n", "has the partition"),
        ("", "f contains no partition"),
        ("orders,0,1\x00\n", "line 1 of f"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_its_line(text: str, says: str) -> None:
    with pytest.raises(CommandError) as error:
        from_csv(text, "f")
    assert says in str(error.value)
    assert error.value.code == ExitCode.USAGE
