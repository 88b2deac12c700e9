"""Client-side assignors of the client's core, with the real coordinator and with one that a test plays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from client.core.assignors import AssignorData, AssignorOffer, GroupToAssign, MemberPart, OfferedMetadata
from client.core.requests import RequestFailure, UnsentRequest
from client.core.types import TopicPartition
from tests.client.heartbeat_script import HeartbeatScript
from tests.client.member_host import MemberHost
from tests.client.member_world import WorldLink
from wire.apis import ApiKey

BY_WEIGHT = "by-weight"


def offer(weight: int) -> AssignorOffer:
    return AssignorOffer(BY_WEIGHT, 0, 2, OfferedMetadata(1, bytes([weight])))


def by_weight(group: GroupToAssign) -> Mapping[str, MemberPart]:
    """Give each member its weight in partitions, and tell it the group's version."""
    partitions = [
        TopicPartition(name, number) for name, count in group.topics.items() for number in range(count)
    ]
    parts = {}
    for member_id, member in sorted(group.members.items()):
        mine, partitions = partitions[: member.metadata.data[0]], partitions[member.metadata.data[0] :]
        parts[member_id] = MemberPart(frozenset(mine), AssignorData(0, group.version, b"ok"))
    return parts


def group_of(link: WorldLink, **weights: int) -> list[MemberHost]:
    link.create_topic("orders", sum(weights.values()))
    for name, weight in weights.items():
        host = link.member(name)
        host.application.assign = by_weight
        host.subscribe("orders", assignors=(offer(weight),))
        host.poll_every(1_000)
    return link.members


def test_a_member_computes_for_the_group_and_all_learn_the_result() -> None:
    link = WorldLink()
    first, second = group_of(link, a=5, b=1)
    link.run(20_000)
    assert link.is_settled()
    assert (len(first.application.has), len(second.application.has)) == (5, 1)
    assert first.application.computed or second.application.computed
    for host in link.members:
        told = host.application.assignments[-1]
        assert (told.assignor, told.error, told.version, told.data) == (BY_WEIGHT, 0, 2, b"ok")
        assert told.partitions == host.application.has


def test_the_assignor_sees_names_subscriptions_metadata_and_what_members_have() -> None:
    link = WorldLink()
    group_of(link, a=2, b=1)
    link.run(20_000)
    link.members[1].subscribe("orders", assignors=(offer(3),))
    link.world.grow_topic("orders", 5)
    link.run(20_000)
    seen = max((host.application.computed for host in link.members), key=len)[-1]
    assert seen.topics == {"orders": 5}
    assert seen.members["b"].topics == {"orders"}
    assert seen.members["b"].metadata == OfferedMetadata(1, b"\3", 0)
    assert seen.members["a"].partitions == {("orders", 0), ("orders", 1)}
    assert len(link.members[1].application.has) == 3


def test_an_assignor_that_raises_is_passed_over_with_its_reason() -> None:
    link = WorldLink()
    first, second = group_of(link, a=2, b=2)

    def fails(group: GroupToAssign) -> Mapping[str, MemberPart]:
        raise ValueError("no weights today")

    first.application.assign = fails
    second.application.assign = fails
    link.run(30_000)
    assert link.is_settled(), "the coordinator's own assignor has computed"
    errors = [str(error) for host in link.members for error in host.application.errors]
    assert errors
    assert all("by-weight failed: ValueError('no weights today')" in error for error in errors)


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        {"a": None},
        {5: MemberPart()},
        {"a": MemberPart(frozenset([TopicPartition("orders", 2**40)]))},
        {"a": MemberPart(frozenset([TopicPartition("orders", "1")]))},  # type: ignore[arg-type]
        {"a": MemberPart(frozenset(), AssignorData(0, 2**20, b""))},
        {"a": MemberPart(frozenset(), AssignorData(0, 0, "text"))},  # type: ignore[arg-type]
        {"\udc80": MemberPart()},
    ],
    ids=str,
)
def test_a_result_that_is_no_assignment_is_refused_as_an_assignor_that_raises(result: Any) -> None:
    link = WorldLink()
    (first,) = group_of(link, a=2)
    first.application.assign = lambda group: result
    link.run(20_000)
    assert first.state == "STABLE"
    assert any("the assignor by-weight failed" in line for line in link.log)
    assert first.application.has == {("orders", 0), ("orders", 1)}, "the coordinator's own assignor steps in"


def test_a_lost_answer_begins_the_computation_again() -> None:
    link = WorldLink()
    group_of(link, a=2, b=2)
    dropped: list[ApiKey] = []
    send = link.send

    def lose_the_first_of_each(host: MemberHost, request: UnsentRequest) -> None:
        if request.api in (ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, *dropped):
            send(host, request)
        else:
            dropped.append(request.api)
            link.agenda.after(10, lambda: host.answer(request, None, RequestFailure.DISCONNECTED))

    for host in link.members:
        host.send = lose_the_first_of_each
    link.run(30_000)
    assert len(dropped) == 2
    assert link.is_settled()
    assert [len(host.application.has) for host in link.members] == [2, 2]


def test_of_several_assignors_the_first_that_understands_the_version_is_told() -> None:
    link = WorldLink()
    link.create_topic("orders", 2)
    host = link.member("a")
    host.application.assign = by_weight
    metadata = OfferedMetadata(1, bytes([2]))
    offers = (
        AssignorOffer("new", 7, 9, metadata._replace(version=8)),
        AssignorOffer(BY_WEIGHT, 0, 2, metadata),
    )
    host.subscribe("orders", assignors=offers)
    link.run(10_000)
    assert len(host.application.has) == 2
    assert host.application.assignments[-1].assignor == "new", "the group uses the first, in its version 9"
    host.subscribe("orders", assignors=offers[1:])
    link.run(10_000)
    host.subscribe("orders", assignors=(offers[1], offers[0]))
    link.world.grow_topic("orders", 3)
    link.run(10_000)
    assert host.application.assignments[-1].assignor == BY_WEIGHT


def test_a_coordinator_without_the_extension_gets_the_ordinary_heartbeat() -> None:
    script = HeartbeatScript()
    script.member.subscribe("orders", assignors=(offer(1),))
    assert script.asked[0].api is ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT
    script.fail(RequestFailure.UNSUPPORTED_VERSION)
    assert script.asked[0].api is ApiKey.CONSUMER_GROUP_HEARTBEAT
    assert script.next().subscribed_topic_names == ["orders"]
    script.answer(1, {})
    assert script.member.state == "STABLE"
