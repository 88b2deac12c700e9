"""Faults on demand: which requests they match, how often they apply, and the table that keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.faults.rule import Asked, FaultError, api_named, error_named
from cluster.faults.table import FAULTS_MAX, FaultTable
from tests.support.fault_rules import fault_rule
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.fetch import FetchRequest, FetchTopic
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.metadata import MetadataRequest
from wire.messages.offset_commit import OffsetCommitRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup


def asked(body: Any = None, api: ApiKey = ApiKey.CONSUMER_GROUP_HEARTBEAT, client_id: str = "c") -> Asked:
    return Asked(api, body, client_id, "10.0.0.1:4711")


# Matching.

BEAT = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", instance_id="i", member_epoch=3)


@pytest.mark.parametrize(
    ("given", "does_match"),
    [
        ({}, True),
        ({"api": "ConsumerGroupHeartbeat"}, True),
        ({"api": "consumer_group_heartbeat"}, True),
        ({"api": "68"}, True),
        ({"api": "OffsetCommit"}, False),
        ({"api": "OffsetCommit,ConsumerGroupHeartbeat"}, True),
        ({"api": "OffsetCommit,OffsetFetch"}, False),
        ({"group": "g"}, True),
        ({"group": "h"}, False),
        ({"member": "m"}, True),
        ({"member": "i"}, True),
        ({"member": "n"}, False),
        ({"client_id": "c"}, True),
        ({"client_id": "d"}, False),
        ({"connection": "10.0.0.1:4711"}, True),
        ({"connection": "10.0.0.1"}, True),
        ({"connection": "10.0.0.1:4712"}, False),
        ({"group": "g", "member": "m", "client_id": "c"}, True),
        ({"group": "g", "member": "m", "client_id": "d"}, False),
    ],
)
def test_a_fault_matches_what_it_names(given: dict[str, str], does_match: bool) -> None:
    assert fault_rule(action="close", **given).matches(asked(BEAT)) == does_match


@pytest.mark.parametrize(
    ("body", "groups", "members"),
    [
        (OffsetCommitRequest(group_id="g", member_id="m", group_instance_id="i"), "g", "mi"),
        (OffsetFetchRequest(group_id="g"), "g", ""),
        (
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(group_id="g"),
                    OffsetFetchRequestGroup(group_id="h", member_id="m"),
                ]
            ),
            "gh",
            "m",
        ),
        (FindCoordinatorRequest(key="g"), "g", ""),
        (FindCoordinatorRequest(coordinator_keys=["g", "h"]), "gh", ""),
        (FindCoordinatorRequest(coordinator_keys=["g"], key_type=1), "", ""),
        (ConsumerGroupDescribeRequest(group_ids=["g", "h"]), "gh", ""),
        (LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]), "g", "m"),
        (MetadataRequest(topics=None), "", ""),
        (FetchRequest(topics=[FetchTopic()]), "", ""),
    ],
)
def test_groups_and_members_are_found_wherever_an_api_names_them(
    body: Any, groups: str, members: str
) -> None:
    for group in "ghx":
        assert fault_rule(action="close", group=group).matches(asked(body)) == (group in groups)
    for member in "mix":
        assert fault_rule(action="close", member=member).matches(asked(body)) == (member in members)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"action": "explode"}, "there is no fault 'explode'"),
        ({"action": "close", "api": ""}, "there is no API ''"),
        ({"action": "close", "api": "OfsetCommit"}, "did you mean OffsetCommit?"),
        ({"action": "error", "error": "STALE_MEMBER_EPOK"}, "did you mean STALE_MEMBER_EPOCH?"),
        ({"action": "error", "error": "NONE"}, "Kafka has no error 'NONE'"),
        ({"action": "error", "error": "0"}, "Kafka has no error '0'"),
        ({"action": "error"}, "the fault error needs error"),
        ({"action": "drop", "error": "NOT_COORDINATOR"}, "the fault drop has no error"),
        ({"action": "throttle"}, "the fault throttle needs throttle_ms"),
        ({"action": "close", "throttle_ms": 5}, "the fault close has no throttle_ms"),
        ({"action": "delay"}, "the fault delay needs delay_ms"),
        ({"action": "close", "rate": 0.0}, "rate must be above 0"),
        ({"action": "close", "rate": 1.5}, "rate must be above 0"),
        ({"action": "close", "group": ""}, "group must have 1 to 1024 characters"),
        ({"action": "close", "member": "m" * 1_025}, "member must have 1 to 1024 characters"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_with_advice(given: dict[str, Any], said: str) -> None:
    with pytest.raises(FaultError) as refused:
        fault_rule(**given)
    assert said in f"{refused.value}; {refused.value.hint}"
    assert refused.value.hint


def test_apis_and_errors_have_kafkas_names_and_numbers() -> None:
    assert api_named("OffsetCommit") == api_named("OFFSET_COMMIT") == api_named("8") == ApiKey.OFFSET_COMMIT
    assert error_named("stale_member_epoch") == error_named("113") == ErrorCode.STALE_MEMBER_EPOCH
    assert error_named("-1") == ErrorCode.UNKNOWN_SERVER_ERROR


# How often.


def applications(number: int, **given: Any) -> list[int]:
    """Return which of so many requests, a millisecond apart, meet a fault."""
    table = FaultTable()
    table.add(fault_rule(action="close", **given), 0)
    return [at for at in range(number) if table.match(asked(BEAT), at)]


def test_a_fault_applies_so_many_times_after_so_many_requests_and_so_long() -> None:
    assert applications(5) == [0, 1, 2, 3, 4]
    assert applications(5, times=2) == [0, 1]
    assert applications(5, times=1, after=3) == [3]
    assert applications(5, for_ms=3) == [0, 1, 2]


def test_a_rate_is_repeated_by_its_seed() -> None:
    some = applications(1_000, rate=0.2, seed=7)
    assert 150 < len(some) < 250
    assert some == applications(1_000, rate=0.2, seed=7)
    assert some != applications(1_000, rate=0.2, seed=8)
    assert applications(1_000, rate=0.2, seed=7, times=3) == some[:3]


def test_a_request_meets_the_oldest_fault_that_chooses_it() -> None:
    table = FaultTable()
    first = table.add(fault_rule(action="close", times=1), 0)
    second = table.add(fault_rule(action="drop"), 0)
    assert [table.match(asked(BEAT), 1) for _ in range(3)] == [first, second, second]
    assert (first.applied, second.applied) == (1, 2)


def test_the_table_is_bounded_and_gives_up_ended_faults_first() -> None:
    table = FaultTable()
    for _ in range(FAULTS_MAX - 1):
        table.add(fault_rule(action="close", group="other"), 0)
    brief = table.add(fault_rule(action="close", for_ms=10), 0)
    with pytest.raises(FaultError, match="100 faults are set"):
        table.add(fault_rule(action="close"), 5)
    assert [one["id"] for one in table.listed(10) if one["has_ended"]] == [brief.fault_id]
    added = table.add(fault_rule(action="close"), 10)
    assert added.fault_id == FAULTS_MAX + 1
    assert len(table.listed(10)) == FAULTS_MAX


def test_an_id_may_be_given_and_is_never_used_twice() -> None:
    table = FaultTable()
    assert table.add(fault_rule(action="close"), 0, 7).fault_id == 7
    with pytest.raises(FaultError, match="there is a fault 7 already"):
        table.add(fault_rule(action="close"), 0, 7)
    assert table.add(fault_rule(action="close"), 0).fault_id == 8
    assert (table.clear(7), table.clear(7), table.clear()) == (1, 0, 1)
    assert table.add(fault_rule(action="close"), 0).fault_id == 9


def test_nothing_is_set_once_all_faults_have_ended_or_are_cleared() -> None:
    table = FaultTable()
    assert not table.is_set
    table.add(fault_rule(action="close", times=1), 0)
    assert table.is_set
    table.match(asked(BEAT), 0)
    assert not table.is_set
    table.add(fault_rule(action="close", for_ms=5), 10)
    table.match(asked(None), 15)
    assert not table.is_set
    table.add(fault_rule(action="close"), 20)
    table.clear()
    assert not table.is_set
