"""C.2 Errors of a heartbeat that do not depend on the group."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.limits import Limits
from tests.support.world import World
from wire.errors import ErrorCode

JOIN: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "subscribed_topic_names": ["orders"], "owned": {}}
ID = bytes(15) + b"\x01"

CASES: list[tuple[str, str, int, dict[str, Any], str]] = [
    ("GroupId not empty", "a", 0, {**JOIN, "group_id": ""}, "GroupId can't be empty."),
    ("GroupId not blank", "a", 0, {**JOIN, "group_id": "  "}, "GroupId can't be empty."),
    ("InstanceId not blank", "a", 0, {**JOIN, "instance_id": " "}, "InstanceId can't be empty."),
    ("RackId not blank", "a", 0, {**JOIN, "rack_id": ""}, "RackId can't be empty."),
    ("epoch > 0: MemberId not empty", "", 1, {}, "MemberId can't be empty."),
    ("epoch -1: MemberId not empty", "", -1, {}, "MemberId can't be empty."),
    ("v1: MemberId not blank", " ", 0, JOIN, "MemberId can't be empty."),
    (
        "epoch 0: rebalance timeout",
        "a",
        0,
        {**JOIN, "rebalance_timeout_ms": -1},
        "RebalanceTimeoutMs must be",
    ),
    ("epoch 0: owned not null", "a", 0, {**JOIN, "owned": None}, "TopicPartitions must be empty"),
    ("epoch 0: owned empty", "a", 0, {**JOIN, "owned": {ID: [1]}}, "TopicPartitions must be empty"),
    ("epoch 0: names or regex", "a", 0, {**JOIN, "subscribed_topic_names": None}, "must be set in first"),
    ("epoch -2: InstanceId", "a", -2, {}, "InstanceId can't be null when MemberEpoch is -2"),
    ("epoch < -2", "a", -3, {}, "MemberEpoch is invalid"),
]


@pytest.mark.parametrize(("rule", "member_id", "epoch", "fields", "message"), CASES)
def test_invalid_requests(
    world: World, rule: str, member_id: str, epoch: int, fields: dict[str, Any], message: str
) -> None:
    """Each rule answers INVALID_REQUEST with a message that names the field, and writes nothing."""
    answer = world.heartbeat(member_id, epoch, **fields)
    assert answer.error_code == ErrorCode.INVALID_REQUEST, rule
    assert answer.error_message is not None
    assert message in answer.error_message
    assert world.log == []


def test_an_unknown_assignor_lists_the_supported_ones(world: World) -> None:
    """ServerAssignor set and unknown: UNSUPPORTED_ASSIGNOR 112, message lists the supported ones."""
    answer = world.join("a", server_assignor="sticky")
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in (answer.error_message or "")


@pytest.mark.parametrize("names", [[], None])
def test_an_empty_subscription_is_allowed(world: World, names: list[str] | None) -> None:
    """4.0+: an empty list is allowed, the empty regex string means "no regex"."""
    answer = world.heartbeat(
        "a", 0, rebalance_timeout_ms=1, subscribed_topic_names=names, subscribed_topic_regex="", owned={}
    )
    assert (answer.error_code, answer.member_epoch) == (0, 1)
    assert answer.assignment is not None
    assert answer.assignment.topic_partitions == []


@pytest.mark.parametrize(
    ("member_id", "fields", "message"),
    [
        ("a", {"group_id": "g" * 11}, "GroupId is longer"),
        ("m" * 11, {}, "MemberId is longer"),
        ("a", {"subscribed_topic_names": ["x"] * 11}, "more than 10 topics"),
        ("a", {"subscribed_topic_names": ["ä" * 10, "b"]}, "larger than 20 bytes"),
        ("a", {"rack_id": "r" * 11}, "RackId is longer"),
    ],
)
def test_limits_are_refusals(member_id: str, fields: dict[str, Any], message: str) -> None:
    """Every bound is checked before the first record."""
    limits = Limits(
        group_id_bytes_max=10, member_id_bytes_max=10, topics_per_member_max=10, subscription_bytes_max=20,
        rack_id_bytes_max=10,
    )  # fmt: skip
    world = World(limits=limits)
    answer = world.heartbeat(member_id, 0, **{**JOIN, **fields})
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert message in (answer.error_message or "")
    assert world.log == []
