"""Each rule is broken once by hand: the checker must name it, and stay silent on the sound story."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.state.model import JOINING, Group
from coordinator.state.projection import Projection
from history.checking.invariants import MEMBERSHIP_RULES, InvariantChecker
from history.checking.old_groups import NEVER_BACK, ONE_OWNER
from history.checking.secondopinion import disagreements
from records import MemberState, Record, decode_entry, encode_record
from tests.support.memory_log import (
    Writer,
    current,
    gone,
    group_epoch,
    group_topics,
    member,
    target,
    target_epoch,
)
from tests.support.payments_log import group_log


def check(*entries: tuple[Record, ...]) -> list[tuple[int, str]]:
    checker = InvariantChecker()
    for index, records in enumerate(entries, start=1):
        checker.entry(index, [encode_record(record) for record in records])
    return [(found.index, found.rule) for found in checker.violations]


OPENING = (group_epoch(2), member("a", "x"), member("b", "y"), target_epoch(2), group_topics(4, 1))

BROKEN = {
    ONE_OWNER: (
        (*OPENING, target("a", 0, 1), current("a", 2, (0, 1))),
        (target("b", 1), current("b", 2, (1,))),
    ),
    NEVER_BACK: (OPENING, (group_epoch(1), target_epoch(1))),
    "a member's epoch is at most the group's": (OPENING, (current("a", 3, ()),)),
    "a member's previous epoch is at most its epoch": (OPENING, (current("a", 1, (), previous=2),)),
    "a STABLE member at the assignment epoch has exactly its target": (
        OPENING,
        (target("a", 0, 1), current("a", 2, (0,))),
    ),
    "an UNREVOKED_PARTITIONS member has partitions to revoke": (
        OPENING,
        (current("a", 1, (0,), state=MemberState.UNREVOKED_PARTITIONS),),
    ),
    "the assignment epoch is at most the group's": (OPENING, (target_epoch(3),)),
}


def test_every_rule_is_tried() -> None:
    assert set(BROKEN) == set(MEMBERSHIP_RULES)


@pytest.mark.parametrize("rule", sorted(BROKEN))
def test_a_broken_rule_is_named_at_its_entry(rule: str) -> None:
    found = check(*BROKEN[rule])
    assert (2, rule) in found
    assert {index for index, _ in found} == {2}


def test_pending_partitions_are_owned_too() -> None:
    giving_up = current("a", 1, (0,), (1,), MemberState.UNREVOKED_PARTITIONS)
    assert (2, ONE_OWNER) in check((*OPENING, giving_up), (target("b", 1), current("b", 2, (1,))))


def test_a_partition_may_change_hands_within_one_entry() -> None:
    before = (*OPENING, target("a", 0), current("a", 2, (0,)))
    after = (
        group_epoch(3),
        target("b", 0),
        target("a"),
        target_epoch(3),
        current("b", 3, (0,)),
        current("a", 3, ()),
    )
    assert check(before, after) == []


def test_a_member_that_left_owns_nothing() -> None:
    before = (*OPENING, target("a", 0), current("a", 2, (0,)))
    assert (
        check(before, (*gone("a"), group_epoch(3)), (target("b", 0), target_epoch(3), current("b", 3, (0,))))
        == []
    )


def test_a_group_that_was_deleted_may_begin_again() -> None:
    log = Writer()
    ended = [Record(record.key, None) for record in (group_epoch(1), target_epoch(1), group_topics(1, 1))]
    assert log.now_ms
    assert check((group_epoch(5), target_epoch(5)), tuple(ended), (group_epoch(1), target_epoch(1))) == []


def test_the_sound_story_breaks_nothing() -> None:
    checker = InvariantChecker()
    for frame in group_log().log.written:
        checker.entry(frame.index, decode_entry(frame.body).records)
    assert checker.violations == []


def test_a_target_that_is_half_written_is_no_target_yet() -> None:
    """A large one takes several decisions; record 6 closes it, and from then on members are held to it."""
    settled = (*OPENING, target("a", 0, 1), current("a", 2, (0, 1)))
    half = (group_epoch(3), target("a", 0, epoch=3))
    assert check(settled, half, (member("a", "x"),)) == []
    assert check(settled, half, (target_epoch(3),), (current("a", 3, (0, 1)),)) == [
        (4, "a STABLE member at the assignment epoch has exactly its target")
    ]


DEFECTS: dict[str, Callable[[Group], object]] = {
    "a lost member": lambda group: group.members.pop("a"),
    "an old value": lambda group: setattr(group, "metadata", None),
    "a target that no record has": lambda group: group.target.update(c=group.target["a"]),
    "an owner that is none": lambda group: group.owners.clear(),
    "a member too many": lambda group: setattr(group, "num_members", 3),
    "an epoch that no record 8 has": lambda group: setattr(group.members["a"], "current", JOINING),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_projection_that_differs_from_its_records_is_found(defect: str) -> None:
    raws = [encode_record(one) for one in (*OPENING, target("a", 0, 1), current("a", 2, (0, 1)))]
    projection = Projection()
    projection.apply_all(raws, 1)
    assert disagreements(projection, raws) == []
    (group,) = projection.groups.values()
    DEFECTS[defect](group)
    assert disagreements(projection, raws)
