"""C.2 Every field of a heartbeat outside its domain, in each kind of request: join, heartbeat, −1 and −2.

A refusal has Kafka's code, says which field, what it was and what is allowed, and changes nothing: not the
log, not the projection, not a session. What is harmless is accepted, as by Kafka, and shown beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from coordinator.limits import Limits
from tests.support.world import FIRST_TOPIC, World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

I32_MAX, I32_MIN = 2**31 - 1, -(2**31)
LIMITS = Limits(topics_per_member_max=10, subscription_bytes_max=100, partitions_max=50)
INVALID, ASSIGNOR = ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_ASSIGNOR
UNKNOWN_ID = b"?" * 16

KINDS: dict[str, dict[str, Any]] = {
    "join": {
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    },
    "heartbeat": {"member_epoch": 1},
    "leave": {"member_epoch": -1},
    "away": {"member_epoch": -2},
}
ALL = tuple(KINDS)
NOT_JOIN = ("heartbeat", "leave", "away")


@dataclass(frozen=True, slots=True)
class Bad:
    """A value outside a field's domain; `says` is what the message holds beside the field's name."""

    field: str
    value: Any
    says: tuple[str, ...]
    code: ErrorCode = INVALID
    kinds: tuple[str, ...] = ALL


def owned(*topics: tuple[bytes, list[int]]) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in topics]


def names(field: str, longest: int) -> list[Bad]:
    """Return values that a name may not have: empty, blank, longer than its bound (in bytes)."""
    empty = f"{field.title().replace('_', '')} can't be empty"
    return [
        Bad(field, "", (empty, "''", f"1 to {longest} bytes")),
        Bad(field, " \t\n", (empty, r"' \t\n'", f"1 to {longest} bytes")),
        Bad(field, " " * 5_000, (empty, f"'{' ' * 40}…'")),
        Bad(field, "x" * (longest + 1), (f"longer than {longest} bytes", f"has {longest + 1}", "'xxx")),
        Bad(field, "ä" * (longest // 2 + 1), (f"longer than {longest} bytes", f"has {longest + 2}", "'äää")),
    ]


BAD = [
    *names("group_id", 1_024),
    *names("member_id", 256),
    *names("instance_id", 256),
    *names("rack_id", 256),
    Bad("instance_id", None, ("InstanceId can't be null", "-2", "group.instance.id"), kinds=("away",)),
    Bad("member_epoch", -3, ("MemberEpoch is invalid: -3", "Send 0 to join"), kinds=("heartbeat",)),
    Bad("member_epoch", I32_MIN, (f"MemberEpoch is invalid: {I32_MIN}",), kinds=("heartbeat",)),
    Bad(
        "rebalance_timeout_ms", -1, ("must be provided in first request", "-1", "0 or more"), kinds=("join",)
    ),
    Bad(
        "rebalance_timeout_ms",
        -2,
        ("RebalanceTimeoutMs can't be -2", "0 or more", "-1 to leave it unchanged"),
    ),
    Bad("rebalance_timeout_ms", I32_MIN, (f"RebalanceTimeoutMs can't be {I32_MIN}",)),
    Bad("subscribed_topic_names", None, ("must be set in first request", "null"), kinds=("join",)),
    Bad("subscribed_topic_names", ["t"] * 11, ("SubscribedTopicNames has more than 10 topics: 11",)),
    Bad("subscribed_topic_names", ["t" * 101], ("SubscribedTopicNames is larger than 100 bytes: 101",)),
    Bad("subscribed_topic_names", ["ä" * 51], ("SubscribedTopicNames is larger than 100 bytes: 102",)),
    Bad("server_assignor", "best", ("ServerAssignor 'best'", "uniform, range"), ASSIGNOR),
    Bad("server_assignor", "", ("ServerAssignor ''", "uniform, range"), ASSIGNOR),
    Bad("server_assignor", "UNIFORM", ("ServerAssignor 'UNIFORM'",), ASSIGNOR),
    Bad("server_assignor", "x" * 30_000, (f"ServerAssignor '{'x' * 40}…'",), ASSIGNOR),
    Bad("topic_partitions", None, ("must be empty when (re-)joining", "null"), kinds=("join",)),
    Bad(
        "topic_partitions",
        owned((FIRST_TOPIC, [1])),
        ("must be empty when (re-)joining", "1 topics"),
        kinds=("join",),
    ),
    Bad(
        "topic_partitions",
        owned((FIRST_TOPIC, [3, -1])),
        ("TopicPartitions can't hold partition -1", "numbered from 0"),
        kinds=NOT_JOIN,
    ),
    Bad(
        "topic_partitions",
        owned((FIRST_TOPIC, list(range(51)))),
        ("TopicPartitions contains 51 partitions of 1 topics; at most 50 are allowed",),
        kinds=NOT_JOIN,
    ),
    Bad(
        "topic_partitions",
        owned(*[(FIRST_TOPIC, [])] * 51),
        ("TopicPartitions contains 0 partitions of 51 topics; at most 50 are allowed",),
        kinds=NOT_JOIN,
    ),
]
CASES = [
    pytest.param(kind, bad, id=f"{kind}-{number}-{bad.field}")
    for number, bad in enumerate(BAD)
    for kind in bad.kinds
]


def ask(world: World, kind: str, **changes: Any) -> ConsumerGroupHeartbeatResponse:
    fields = {"group_id": "g", "member_id": "a", "instance_id": "i", **KINDS[kind], **changes}
    answer = world.handle(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, ConsumerGroupHeartbeatRequest(**fields))
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return answer


def member_world() -> World:
    """Return a world one second after static member a (instance i) joined; it owns all of `orders`."""
    world = World(limits=LIMITS)
    world.create_topic("orders", 12)
    world.work()
    assert ask(world, "join").error_code == 0
    world.now_ms += 1_000
    return world


def everything(world: World) -> tuple[object, ...]:
    timer = world.shard.groups.sessions.get(("g", "a"))
    assert timer is not None
    groups = world.shard.groups
    versions = {group_id: group.version for group_id, group in groups.projection.groups.items()}
    replies = groups.replies_of("g")
    return len(world.log), world.shard.state_hash, timer.deadline_ms, versions, replies, len(groups.sessions)


@pytest.mark.parametrize(("kind", "bad"), CASES)
def test_outside_the_domain(kind: str, bad: Bad) -> None:
    """The refusal has Kafka's code, says which field, its value and what is allowed, and changes nothing."""
    world = member_world()
    before = everything(world)
    answer = ask(world, kind, **{bad.field: bad.value})
    assert answer.error_code == bad.code
    message = answer.error_message or ""
    wire_name = bad.field.title().replace("_", "")
    assert wire_name in message
    for words in bad.says:
        assert words in message
    assert len(message) < 300, "a message does not repeat a frame"
    assert (answer.member_id, answer.member_epoch, answer.assignment) == (None, 0, None)
    assert everything(world) == before


@pytest.mark.parametrize("kind", ALL)
def test_the_request_that_the_cases_spoil_is_good(kind: str) -> None:
    """Otherwise the cases would prove nothing."""
    assert ask(member_world(), kind).error_code == 0


@dataclass(frozen=True, slots=True)
class Odd:
    """An unusual request that is accepted, with the answer that Kafka gives."""

    name: str
    kind: str
    changes: dict[str, Any] = field(default_factory=dict)
    writes: bool = False


ODD = [
    Odd("a topic named twice in the subscription", "heartbeat", {"subscribed_topic_names": ["orders"] * 3}),
    Odd("a blank topic name", "heartbeat", {"subscribed_topic_names": ["orders", ""]}, True),
    Odd("a topic that does not exist", "heartbeat", {"subscribed_topic_names": ["orders", "?*"]}, True),
    Odd("no topic at all", "join", {"subscribed_topic_names": []}, True),
    Odd("the longest timeout", "heartbeat", {"rebalance_timeout_ms": I32_MAX}, True),
    Odd("a timeout of nothing", "heartbeat", {"rebalance_timeout_ms": 0}, True),
    Odd("a timeout unchanged", "heartbeat", {"rebalance_timeout_ms": -1}),
    Odd("owned: a topic twice", "heartbeat", {"topic_partitions": owned(*[(FIRST_TOPIC, [0])] * 2)}),
    Odd("owned: a partition twice", "heartbeat", {"topic_partitions": owned((FIRST_TOPIC, [0, 0, 0]))}),
    Odd("owned: an unknown topic id", "heartbeat", {"topic_partitions": owned((UNKNOWN_ID, [0]))}),
    Odd("owned: a partition beyond the topic", "heartbeat", {"topic_partitions": owned((FIRST_TOPIC, [49]))}),
    Odd("owned: the zero id", "heartbeat", {"topic_partitions": owned((bytes(16), [0]))}),
    Odd("the longest ids", "join", {"member_id": "m" * 256, "instance_id": "n" * 256}, True),
    Odd("ids beyond ASCII", "join", {"member_id": "ü" * 128, "instance_id": "日本"}, True),
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.name)
def test_odd_but_harmless(odd: Odd) -> None:
    """The request is accepted; fields without effect change nothing."""
    world = member_world()
    entries = len(world.log)
    answer = ask(world, odd.kind, **odd.changes)
    assert answer.error_code == 0, answer.error_message
    assert (len(world.log) > entries) == odd.writes


@pytest.mark.parametrize("epoch", [2, I32_MAX])
def test_epochs_beyond_the_members(epoch: int) -> None:
    """An epoch that no member has is fenced, and the message names the member's epoch."""
    world = member_world()
    before = everything(world)
    answer = ask(world, "heartbeat", member_epoch=epoch)
    assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert f"has epoch 1, not {epoch}" in (answer.error_message or "")
    assert everything(world) == before


def test_an_unknown_topic_id_does_not_pass_for_the_lost_reply(world: World) -> None:
    """C.4: the previous epoch needs owned ⊆ assigned, and an unknown id is in nobody's assignment."""
    world.join("a")
    world.create_topic("more", 1)
    world.heartbeat("a", 1, subscribed_topic_names=["orders", "more"], owned={})
    for topics in ({UNKNOWN_ID: [0]}, {FIRST_TOPIC: [0], UNKNOWN_ID: [0]}):
        assert world.heartbeat("a", 1, owned=topics).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.heartbeat("a", 1, owned={FIRST_TOPIC: [0], UNKNOWN_ID: []}).error_code == 0


@pytest.mark.parametrize("spaces", ["", " "])
def test_version_0_lets_the_coordinator_choose_the_member_id(world: World, spaces: str) -> None:
    """v0: empty on join → the server generates; a blank one is refused as everywhere."""
    answer = world.join(spaces, version=0, instance_id="i")
    if spaces:
        assert answer.error_code == INVALID
        return
    assert answer.member_id == "fresh-2"
    assert world.group().static_members == {"i": "fresh-2"}
