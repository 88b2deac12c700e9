"""Refused requests leave a group as it was, and carry Kafka's codes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.classic_member import SESSION_MS, ClassicConsumer, rebalanced
from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

Make = Callable[..., list[ClassicConsumer]]


def test_a_refused_join_does_not_change_the_protocol_type(world: World, stable: Make) -> None:
    (a,) = stable("a")
    a.leave()
    stranger = ClassicConsumer(world, "b")
    stranger.member_id = "unknown"
    assert stranger.send_join(protocol_type="connect").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    described = world.handle(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=["g"])).groups[0]
    assert described.protocol_type == "consumer"


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_new_clients_have_to_name_the_protocol_when_they_sync(
    world: World, stable: Make, missing: str
) -> None:
    """Mandatory since version 5 (KIP-559); checked before the group and the member."""
    (a,) = stable("a")
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.sync(**{missing: None}).error_code == code
    a.group_id = ""
    assert a.sync(**{missing: None}).error_code == code


def test_an_unused_member_id_does_not_disturb_a_stable_group(world: World, stable: Make) -> None:
    (a,) = stable("a")
    b = ClassicConsumer(world, "b")
    assert b.send_join().error_code == ErrorCode.MEMBER_ID_REQUIRED
    for _ in range(3):
        world.sleep(SESSION_MS / 2)
        assert a.heartbeat() == 0
    assert b.send_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_unused_member_id_is_waited_for_in_the_join_phase(world: World, stable: Make) -> None:
    (a,) = stable("a")
    b = ClassicConsumer(world, "b")
    b.send_join()
    assert a.join() is None
    assert a.joined() is None
    world.sleep(SESSION_MS + 1)
    rebalanced(a)


def test_a_leave_without_an_id_removes_no_member(world: World) -> None:
    a = ClassicConsumer(world, "a", instance_id="i")
    a.join(group_instance_id="")
    world.work()
    a.joined()
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="", group_instance_id=None)])
    answer = world.handle(ApiKey.LEAVE_GROUP, 5, request)
    assert answer.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
