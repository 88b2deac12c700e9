"""Splitting by shard and merging in the order of the request, for every API that names several groups."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.runtime.fanout import FANS, Gathering
from records import shard_of
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    list_groups,
    offset_fetch,
)
from wire.refusals import refuse

SHARDS = 4


def to_shard(group_id: str) -> int:
    return shard_of(group_id, SHARDS)


def answer(api_key: int, part: Any) -> Any:
    """Return a shard's answer: its groups, in the order asked, marked with the shard's work."""
    if api_key == ApiKey.DESCRIBE_GROUPS:
        groups = [
            describe_groups.DescribedGroup(group_id=group, group_state="Stable") for group in part.groups
        ]
        return describe_groups.DescribeGroupsResponse(groups=groups)
    if api_key == ApiKey.DELETE_GROUPS:
        results = [delete_groups.DeletableGroupResult(group_id=group) for group in part.groups_names]
        return delete_groups.DeleteGroupsResponse(results=results)
    if api_key == ApiKey.CONSUMER_GROUP_DESCRIBE:
        described = [consumer_group_describe.DescribedGroup(group_id=group) for group in part.group_ids]
        return consumer_group_describe.ConsumerGroupDescribeResponse(groups=described)
    fetched = [offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id) for group in part.groups]
    return offset_fetch.OffsetFetchResponse(groups=fetched)


REQUESTS: dict[int, Any] = {
    ApiKey.DESCRIBE_GROUPS: lambda ids: describe_groups.DescribeGroupsRequest(groups=ids),
    ApiKey.DELETE_GROUPS: lambda ids: delete_groups.DeleteGroupsRequest(groups_names=ids),
    ApiKey.CONSUMER_GROUP_DESCRIBE: lambda ids: consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=ids
    ),
    ApiKey.OFFSET_FETCH: lambda ids: offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None) for group in ids]
    ),
}
ANSWERED = {
    ApiKey.DESCRIBE_GROUPS: "groups",
    ApiKey.DELETE_GROUPS: "results",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "groups",
    ApiKey.OFFSET_FETCH: "groups",
}


@pytest.mark.parametrize("api_key", list(REQUESTS))
@given(
    group_ids=st.lists(st.text(alphabet="abcdef", max_size=3), unique=True, max_size=12), order=st.randoms()
)
def test_each_group_is_asked_of_its_shard_and_answered_in_its_place(
    api_key: int, group_ids: list[str], order: Any
) -> None:
    request, fan = REQUESTS[api_key](group_ids), FANS[api_key]
    parts = fan.split(request, to_shard, SHARDS)
    replies: list[Any] = []
    gathering = Gathering(fan, request, parts, replies.append)
    shards = list(parts)
    order.shuffle(shards)
    for shard in shards:
        asked = answer(api_key, parts[shard])
        if len(parts) > 1:
            assert {to_shard(item.group_id) for item in getattr(asked, ANSWERED[api_key])} == {shard}
        assert replies == []
        gathering.receive(shard, asked)
    assert [item.group_id for item in getattr(replies[0], ANSWERED[api_key])] == group_ids
    assert len(replies) == 1


def test_a_group_asked_twice_is_answered_twice() -> None:
    request = REQUESTS[ApiKey.DESCRIBE_GROUPS](["b", "a", "b"])
    fan = FANS[ApiKey.DESCRIBE_GROUPS]
    parts = fan.split(request, to_shard, SHARDS)
    merged = fan.merge(
        request, {shard: answer(ApiKey.DESCRIBE_GROUPS, part) for shard, part in parts.items()}
    )
    assert sorted(group.group_id for group in merged.groups) == ["a", "b", "b"]


def test_offset_fetch_of_one_group_in_the_old_form_goes_to_its_shard() -> None:
    request = offset_fetch.OffsetFetchRequest(group_id="billing", topics=None)
    assert FANS[ApiKey.OFFSET_FETCH].split(request, to_shard, SHARDS) == {to_shard("billing"): request}


def test_one_shards_error_concerns_its_groups_alone() -> None:
    group_ids = ["a", "b", "c", "d", "e"]
    request, fan = REQUESTS[ApiKey.CONSUMER_GROUP_DESCRIBE](group_ids), FANS[ApiKey.CONSUMER_GROUP_DESCRIBE]
    parts = fan.split(request, to_shard, SHARDS)
    loading = next(iter(parts))
    answers = {shard: answer(ApiKey.CONSUMER_GROUP_DESCRIBE, part) for shard, part in parts.items()}
    answers[loading] = refuse(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 1, parts[loading], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    merged = fan.merge(request, answers)
    failed = {group.group_id for group in merged.groups if group.error_code}
    assert failed == {group for group in group_ids if to_shard(group) == loading}
    assert [group.group_id for group in merged.groups] == group_ids


def listed(*group_ids: str, error: ErrorCode = ErrorCode.NONE) -> list_groups.ListGroupsResponse:
    groups = [list_groups.ListedGroup(group_id=group_id) for group_id in group_ids]
    return list_groups.ListGroupsResponse(error_code=error, groups=groups)


def test_list_groups_is_whole_or_an_error_that_clients_ask_again_for() -> None:
    """The node asks only shards that it leads; a shard without a leader makes the whole answer an error."""
    fan, request = FANS[ApiKey.LIST_GROUPS], list_groups.ListGroupsRequest()
    assert list(fan.split(request, to_shard, SHARDS)) == [0, 1, 2, 3]
    merged = fan.merge(request, {0: listed("a"), 2: listed(), 3: listed("b", "c")})
    assert [group.group_id for group in merged.groups] == ["a", "b", "c"]
    loading = listed(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    merged = fan.merge(request, {0: listed("a"), 2: loading, 3: listed()})
    assert (merged.error_code, merged.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    nobodys = listed(error=ErrorCode.NOT_COORDINATOR)
    merged = fan.merge(request, {0: listed("a"), 1: nobodys})
    assert (merged.error_code, merged.groups) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    assert fan.merge(request, {}) == list_groups.ListGroupsResponse()
