"""E and H.1: every request about groups, with each field outside its domain.

Kafka's code, counted; nothing is changed. The heartbeat has its own table (`test_c02_every_field.py`), so
have configs (`test_g2_group_configs.py`) and topics (`tests/coordinator/test_catalog.py`); offsets at the
ends of their domain are in `test_e1_offset_commit.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from cluster.kafka.counters import KafkaCounters
from cluster.kafka.exchange import count_errors
from tests.support.world import FIRST_TOPIC, World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.consumer_group_install_assignment import ConsumerGroupInstallAssignmentRequest
from wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

I32_MAX = 2**31 - 1
I32_MIN = -(2**31)
LONG = "x" * 30_000
UNKNOWN_ID = b"?" * 16


def commit(**fields: Any) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(
        partition_index=fields.pop("partition", 0),
        committed_offset=7,
        committed_metadata=fields.pop("metadata", ""),
    )
    topic = OffsetCommitRequestTopic(
        name=fields.pop("topic", "orders"), topic_id=fields.pop("topic_id", FIRST_TOPIC), partitions=[part]
    )
    fields = {"group_id": "g", "member_id": "a", "generation_id_or_member_epoch": 1} | fields
    return OffsetCommitRequest(topics=[topic], **fields)


def fetch(**fields: Any) -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopics(
        name="orders", topic_id=fields.pop("topic_id", FIRST_TOPIC), partition_indexes=[0]
    )
    fields = {"group_id": "g", "member_id": "a", "member_epoch": 1} | fields
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(topics=[topic], **fields)])


def delete(group_id: str = "simple", topic: str = "orders", partition: int = 0) -> OffsetDeleteRequest:
    part = OffsetDeleteRequestPartition(partition_index=partition)
    return OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=[part])]
    )


def leave(group_id: str = "g", member_id: str = "a", instance_id: str | None = "i") -> LeaveGroupRequest:
    member = MemberIdentity(member_id=member_id, group_instance_id=instance_id)
    return LeaveGroupRequest(group_id=group_id, member_id=member_id, members=[member])


def prepare(**fields: Any) -> ConsumerGroupPrepareAssignmentRequest:
    fields = {"group_id": "g", "member_id": "a", "member_epoch": 1} | fields
    return ConsumerGroupPrepareAssignmentRequest(**fields)


def install(**fields: Any) -> ConsumerGroupInstallAssignmentRequest:
    fields = {"group_id": "g", "member_id": "a", "member_epoch": 1, "group_epoch": 1} | fields
    return ConsumerGroupInstallAssignmentRequest(**fields)


@dataclass(frozen=True, slots=True)
class Bad:
    """A request, and the one code that its answer must have."""

    api_key: ApiKey
    version: int
    request: Any
    code: int


E = ErrorCode
BAD = [
    *(
        Bad(ApiKey.OFFSET_COMMIT, version, request, code)
        for version, request, code in (
            (9, commit(group_id=LONG), E.INVALID_GROUP_ID),
            (9, commit(group_id="nobody"), E.GROUP_ID_NOT_FOUND),
            (8, commit(group_id="nobody"), E.ILLEGAL_GENERATION),
            (9, commit(member_id="b"), E.UNKNOWN_MEMBER_ID),
            (9, commit(member_id=""), E.UNKNOWN_MEMBER_ID),
            (9, commit(member_id=LONG), E.UNKNOWN_MEMBER_ID),
            (9, commit(member_id="", generation_id_or_member_epoch=-1), E.UNKNOWN_MEMBER_ID),
            (9, commit(generation_id_or_member_epoch=2), E.STALE_MEMBER_EPOCH),
            (9, commit(generation_id_or_member_epoch=I32_MAX), E.STALE_MEMBER_EPOCH),
            (9, commit(generation_id_or_member_epoch=I32_MIN), E.STALE_MEMBER_EPOCH),
            (8, commit(), E.UNSUPPORTED_VERSION),
            (9, commit(topic=""), E.UNKNOWN_TOPIC_OR_PARTITION),
            (9, commit(topic=LONG), E.UNKNOWN_TOPIC_OR_PARTITION),
            (10, commit(topic_id=UNKNOWN_ID), E.UNKNOWN_TOPIC_ID),
            (10, commit(topic_id=bytes(16)), E.UNKNOWN_TOPIC_ID),
            (9, commit(partition=-1), E.UNKNOWN_TOPIC_OR_PARTITION),
            (9, commit(partition=I32_MAX), E.UNKNOWN_TOPIC_OR_PARTITION),
            (9, commit(metadata="x" * 4_097), E.OFFSET_METADATA_TOO_LARGE),
        )
    ),
    *(
        Bad(ApiKey.OFFSET_FETCH, version, request, code)
        for version, request, code in (
            (9, fetch(member_id="b"), E.UNKNOWN_MEMBER_ID),
            (9, fetch(member_id=LONG), E.UNKNOWN_MEMBER_ID),
            (9, fetch(member_id=None, member_epoch=1), E.UNKNOWN_MEMBER_ID),
            (9, fetch(member_epoch=I32_MAX), E.STALE_MEMBER_EPOCH),
            (9, fetch(member_epoch=I32_MIN), E.STALE_MEMBER_EPOCH),
        )
    ),
    *(
        Bad(ApiKey.OFFSET_DELETE, 0, request, code)
        for request, code in (
            (delete(""), E.INVALID_GROUP_ID),
            (delete("nobody"), E.GROUP_ID_NOT_FOUND),
            (delete(LONG), E.GROUP_ID_NOT_FOUND),
            (delete("g"), E.GROUP_SUBSCRIBED_TO_TOPIC),
            (delete(topic=""), E.UNKNOWN_TOPIC_OR_PARTITION),
            (delete(topic=LONG), E.UNKNOWN_TOPIC_OR_PARTITION),
            (delete(partition=-1), E.UNKNOWN_TOPIC_OR_PARTITION),
            (delete(partition=I32_MAX), E.UNKNOWN_TOPIC_OR_PARTITION),
        )
    ),
    *(
        Bad(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[name]), code)
        for name, code in (
            ("g", E.NON_EMPTY_GROUP),
            ("nobody", E.GROUP_ID_NOT_FOUND),
            ("", E.GROUP_ID_NOT_FOUND),
            (LONG, E.GROUP_ID_NOT_FOUND),
        )
    ),
    *(
        Bad(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=[name]), code)
        for name, code in (
            ("", E.INVALID_GROUP_ID),
            ("nobody", E.GROUP_ID_NOT_FOUND),
            (LONG, E.GROUP_ID_NOT_FOUND),
            ("simple", E.GROUP_ID_NOT_FOUND),
        )
    ),
    *(
        Bad(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=[name]), E.GROUP_ID_NOT_FOUND)
        for name in ("", "g", "nobody", LONG)
    ),
    *(
        Bad(ApiKey.LEAVE_GROUP, version, request, code)
        for version, request, code in (
            (5, leave(""), E.INVALID_GROUP_ID),
            (5, leave("nobody"), E.UNKNOWN_MEMBER_ID),
            (5, leave("simple"), E.UNKNOWN_MEMBER_ID),
            (5, leave(LONG), E.UNKNOWN_MEMBER_ID),
            (5, leave(member_id="", instance_id=None), E.UNKNOWN_MEMBER_ID),
            (5, leave(member_id="b", instance_id=None), E.UNKNOWN_MEMBER_ID),
            (5, leave(member_id=LONG, instance_id=None), E.UNKNOWN_MEMBER_ID),
            (5, leave(instance_id=""), E.UNKNOWN_MEMBER_ID),
            (5, leave(instance_id=LONG), E.UNKNOWN_MEMBER_ID),
            (5, leave(member_id="b"), E.FENCED_INSTANCE_ID),
            (2, leave(member_id="b"), E.UNKNOWN_MEMBER_ID),
        )
    ),
    *(
        Bad(ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, 0, prepare(**fields), code)
        for fields, code in (
            ({"group_id": ""}, E.INVALID_REQUEST),
            ({"group_id": LONG}, E.INVALID_REQUEST),
            ({"group_id": "nobody"}, E.GROUP_ID_NOT_FOUND),
            ({"group_id": "simple"}, E.GROUP_ID_NOT_FOUND),
            ({"member_id": ""}, E.INVALID_REQUEST),
            ({"member_id": LONG}, E.INVALID_REQUEST),
            ({"member_id": "b"}, E.UNKNOWN_MEMBER_ID),
            ({"member_epoch": 0}, E.STALE_MEMBER_EPOCH),
            ({"member_epoch": I32_MAX}, E.STALE_MEMBER_EPOCH),
            ({"member_epoch": I32_MIN}, E.STALE_MEMBER_EPOCH),
            ({}, E.UNKNOWN_MEMBER_ID),
        )
    ),
    *(
        Bad(ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT, 0, install(**fields), code)
        for fields, code in (
            ({"group_id": ""}, E.INVALID_REQUEST),
            ({"group_id": LONG}, E.INVALID_REQUEST),
            ({"group_id": "nobody"}, E.GROUP_ID_NOT_FOUND),
            ({"member_id": " "}, E.INVALID_REQUEST),
            ({"member_id": "b"}, E.UNKNOWN_MEMBER_ID),
            ({"member_epoch": I32_MIN}, E.STALE_MEMBER_EPOCH),
            ({"group_epoch": I32_MIN}, E.UNKNOWN_MEMBER_ID),
            ({}, E.UNKNOWN_MEMBER_ID),
        )
    ),
]


def populated() -> World:
    """Group `g` has static member a (instance i) at epoch 1 and an offset; `simple` has an offset only."""
    world = World()
    world.create_topic("orders", 4)
    world.join("a", instance_id="i")
    assert set(world.commit({("orders", 0): 5}, member_id="a", epoch=1).values()) == {0}
    assert set(world.commit({("orders", 0): 6}, group_id="simple").values()) == {0}
    world.work()
    return world


def counted(api_key: ApiKey, answer: Any) -> dict[tuple[int, int], int]:
    counters = KafkaCounters()
    list(count_errors(counters, api_key, answer))
    return dict(counters.errors)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad.api_key.name}-{ErrorCode(bad.code).name}")
def test_outside_the_domain(bad: Bad) -> None:
    """Kafka's code, counted under the API; nothing is changed."""
    world = populated()
    before = (len(world.log), world.shard.state_hash, len(world.shard.groups.sessions))
    answer = world.handle(bad.api_key, bad.version, bad.request)
    assert counted(bad.api_key, answer) == {(bad.api_key, bad.code): 1}
    assert (len(world.log), world.shard.state_hash, len(world.shard.groups.sessions)) == before
    message = getattr(answer, "error_message", None)
    assert message is None or 0 < len(message) < 300, "a message does not repeat a frame"


GOOD = [
    (ApiKey.OFFSET_COMMIT, 9, commit()),
    (ApiKey.OFFSET_COMMIT, 10, commit()),
    (ApiKey.OFFSET_FETCH, 9, fetch()),
    (ApiKey.OFFSET_DELETE, 0, delete()),
    (ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["simple"])),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=["g"])),
    (ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["simple"])),
    (ApiKey.LEAVE_GROUP, 5, leave()),
    (ApiKey.LEAVE_GROUP, 2, leave()),
]


@pytest.mark.parametrize(
    ("api_key", "version", "request_"), GOOD, ids=lambda value: getattr(value, "name", "")
)
def test_the_requests_that_the_cases_spoil_are_good(api_key: ApiKey, version: int, request_: Any) -> None:
    """Otherwise the cases would prove nothing."""
    assert counted(api_key, populated().handle(api_key, version, request_)) == {}


@pytest.mark.parametrize(
    "filters",
    [
        {"states_filter": [""]},
        {"states_filter": ["no such state", LONG]},
        {"types_filter": ["share"]},
        {"types_filter": [LONG]},
        {"states_filter": ["stable"] * 1_000, "types_filter": ["classic"]},
    ],
)
def test_filters_that_match_nothing(filters: dict[str, list[str]]) -> None:
    """Unknown names simply match nothing: no error, no group."""
    answer = populated().handle(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(**filters))
    assert (answer.error_code, answer.groups) == (0, [])
