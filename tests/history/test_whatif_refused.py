"""`whatif`: assignors of others, settings that no group can have, groups that are left out."""

from __future__ import annotations

import pytest

from coordinator.assignors import (
    AssignmentSpec,
    GroupAssignment,
    MemberAssignment,
    PartitionAssignorError,
)
from history.whatif.answer import whatif
from history.whatif.extract import CLASSIC, OFFSETS_ONLY, Extractor
from history.whatif.settings import WhatIf, WhatIfError, assignor_named
from records import (
    Cause,
    Entry,
    GroupMetadataKey,
    GroupMetadataValue,
    Record,
    Trigger,
    encode_record,
)

from .whatif_story import unequal


class Raises:
    name = "raises"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        raise ZeroDivisionError("oh dear")


class Ends:
    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        raise SystemExit(3)


class Nothing:
    def assign(self, spec: AssignmentSpec) -> None:
        return None


class Stranger:
    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return GroupAssignment({"who": MemberAssignment({})})


class Twice:
    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return GroupAssignment(
            {
                m: MemberAssignment(dict.fromkeys(one.subscribed_topics, (0,)))
                for m, one in spec.members.items()
            }
        )


class Beyond:
    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return GroupAssignment(
            {
                m: MemberAssignment(dict.fromkeys(one.subscribed_topics, (99,)))
                for m, one in spec.members.items()
            }
        )


class Everything:
    """Assigns everything to the member with the lowest id."""

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        first = min(spec.members)
        topics = spec.members[first].subscribed_topics
        whole = {topic: tuple(range(spec.topics[topic].num_partitions)) for topic in topics}
        return GroupAssignment({first: MemberAssignment(whole)})


class Demanding:
    def __init__(self, what: str) -> None:
        raise PartitionAssignorError(what)


class NoAssignor:
    pass


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Raises", "oh dear"),
        ("Ends", "wanted to end the process"),
        ("Nothing", "returned NoneType instead of a GroupAssignment"),
        ("Stranger", "assigned partitions to who, which is not a member"),
        ("Twice", "to two members"),
        ("Beyond", "does not have"),
    ],
)
def test_an_assignor_that_fails_is_one_clear_error(name: str, says: str) -> None:
    assignor = assignor_named(f"{__name__}:{name}")
    with pytest.raises(WhatIfError, match=says):
        whatif(unequal().recorded(), WhatIf(assignor=assignor))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("best", "'best' is not an assignor: give uniform or range, or module:Class"),
        ("nowhere.at.all:X", "module nowhere.at.all cannot be imported: ModuleNotFoundError"),
        (f"{__name__}:Missing", "has no Missing"),
        (f"{__name__}:Demanding", "cannot be created without arguments"),
        (f"{__name__}:NoAssignor", "has no method assign"),
        (":X", "is not an assignor"),
    ],
)
def test_what_is_no_assignor_is_said(text: str, says: str) -> None:
    with pytest.raises(WhatIfError, match=says):
        assignor_named(text)


def test_an_assignor_of_ones_own() -> None:
    result = whatif(unequal().recorded(), WhatIf(assignor=assignor_named(f"{__name__}:Everything")))
    assert result.whatif is not None
    assert (result.whatif.moved, result.whatif.spread) == (0, 3)
    assert result.asked == (f"assignor {__name__}:Everything",)


# Bad settings, and groups that are left out.


@pytest.mark.parametrize(
    "asked",
    [
        {"session_timeout_ms": 999},
        {"session_timeout_ms": 1_800_001},
        {"rebalance_timeout_ms": 0},
        {"heartbeat_interval_ms": -5},
        {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 3_000},
    ],
)
def test_settings_that_no_group_can_have_are_refused(asked: dict[str, int]) -> None:
    with pytest.raises(WhatIfError, match="ms"):
        WhatIf(**asked)  # type: ignore[arg-type]


def test_groups_without_recorded_membership_are_left_out_and_it_is_said_why() -> None:
    extractor = Extractor("old")
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol=None,
        leader=None,
        current_state_timestamp_ms=1_000,
        members=(),
    )
    record = encode_record(Record(GroupMetadataKey(group_id="old"), value))
    extractor.entry(1, 1_000, Entry(Cause(trigger=Trigger.IMPORTED), (record,)))
    assert whatif(extractor.finish(), WhatIf()).left_out == CLASSIC
    assert whatif(Extractor("offsets").finish(), WhatIf()).left_out == OFFSETS_ONLY
