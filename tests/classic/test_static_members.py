"""D.5: a static member that restarts takes its own place; a stable group does not notice."""

from __future__ import annotations

import pytest

from records import ReasonKind, Trigger
from tests.support.classic_member import REBALANCE_MS, SESSION_MS, ClassicConsumer, rebalanced
from tests.support.world import World
from wire.apis import ApiKey
from wire.embedded import ConsumerProtocolSubscription, TopicPartitionsByName, encode
from wire.errors import ErrorCode
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity


def pair(world: World) -> tuple[ClassicConsumer, ClassicConsumer]:
    """A stable group of two static members; the first one leads."""
    a, b = (ClassicConsumer(world, name, instance_id=f"i-{name}") for name in "ab")
    assert a.join() is None
    assert b.join() is None
    world.work()
    rebalanced(a, b)
    return a, b


def restarted(old: ClassicConsumer, **changes: object) -> ClassicConsumer:
    return ClassicConsumer(old.world, old.client_id, instance_id=old.instance_id, **changes)  # type: ignore[arg-type]


def test_a_static_member_joins_without_a_second_request(world: World) -> None:
    a = ClassicConsumer(world, "a", instance_id="i-a")
    assert a.send_join() is None
    world.work()
    a.joined()
    assert a.member_id.startswith("i-a-")


@pytest.mark.parametrize("version", [8, 9])
def test_a_follower_that_restarts_gets_the_present_generation(world: World, version: int) -> None:
    a, b = pair(world)
    before = len(world.log)
    new = restarted(b, version=version)
    answer = new.join()
    assert (answer.error_code, answer.generation_id, answer.members) == (0, 1, [])
    assert not answer.skip_assignment
    assert new.member_id != b.member_id
    assert new.sync().assignment == b"for b"
    assert a.heartbeat() == 0
    assert b.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    (entry,) = world.log[before:]
    assert (entry.types, entry.cause.trigger) == ([2], Trigger.MEMBER_REPLACED)
    world.failover()
    assert new.heartbeat() == 0


def test_a_leader_that_restarts_need_not_assign(world: World) -> None:
    a, b = pair(world)
    new = restarted(a)
    answer = new.join()
    assert answer.skip_assignment
    assert {member.member_id for member in answer.members} == {new.member_id, b.member_id}
    assert new.sync().assignment == b"for a"


def test_older_clients_are_told_their_former_id_as_leader(world: World) -> None:
    a, _ = pair(world)
    new = restarted(a, version=8)
    answer = new.join()
    assert (answer.leader, answer.members) == (a.member_id, [])
    assert not new.is_leader


def test_other_protocols_of_a_restarted_member_begin_a_generation(world: World) -> None:
    a, b = (
        ClassicConsumer(world, name, instance_id=f"i-{name}", protocols={"range": b"r", "sticky": b"s"})
        for name in "ab"
    )
    a.join(), b.join()
    world.work()
    rebalanced(a, b)
    new = restarted(b, protocols={"sticky": b"s"})
    assert new.join() is None
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    rebalanced(a, new)
    assert world.log[-1].cause.reasons[0].kind == ReasonKind.SUBSCRIPTION_CHANGED


def test_a_restart_before_the_assignments_begins_a_generation(world: World) -> None:
    """The leader would assign to the former member id."""
    a, b = (ClassicConsumer(world, name, instance_id=f"i-{name}") for name in "ab")
    a.join(), b.join()
    world.work()
    a.joined(), b.joined()
    b.sync()
    new = restarted(b)
    assert new.join() is None
    assert b.synced().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert a.sync({}).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    rebalanced(a, new)


def test_a_static_member_is_waited_for_until_its_session_ends(world: World) -> None:
    a, b = pair(world)
    c = ClassicConsumer(world, "c")
    c.join()
    a.join()
    world.sleep(SESSION_MS - 1)
    assert a.joined() is None
    world.sleep(2)
    rebalanced(a, c)
    assert b.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_operator_removes_an_instance_by_its_id_alone(world: World) -> None:
    a, b = pair(world)
    request = LeaveGroupRequest(
        group_id="g",
        members=[
            MemberIdentity(member_id="", group_instance_id="i-b", reason="retired"),
            MemberIdentity(member_id="", group_instance_id="i-none"),
            MemberIdentity(member_id=b.member_id, group_instance_id="i-a"),
        ],
    )
    answer = world.handle(ApiKey.LEAVE_GROUP, 5, request)
    assert [member.error_code for member in answer.members] == [
        0,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    rebalanced(a)
    (reason,) = world.log[-1].cause.reasons
    assert (reason.kind, reason.detail) == (ReasonKind.MEMBER_REMOVED, "retired")


def test_static_members_alone_that_do_not_come_back_keep_the_group_waiting(world: World) -> None:
    a, b = pair(world)
    b.protocols = {"range": b"changed"}
    b.join()
    assert b.leave() == 0
    world.sleep(SESSION_MS / 2)
    a.heartbeat()
    world.sleep(REBALANCE_MS)
    assert world.shard.groups.classic.get("g").members == {}  # type: ignore[union-attr]


def subscription(*topics: str, owned: tuple[int, ...] = ()) -> dict[str, bytes]:
    body = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[TopicPartitionsByName(topic=topics[0], partitions=list(owned))] if owned else [],
    )
    return {"range": encode(body, 1)}


@pytest.mark.parametrize("type_of_group", ["consumer", "connect"])
def test_a_member_that_comes_back_with_other_topics_gets_a_new_assignment(
    world: World, type_of_group: str
) -> None:
    """KAFKA-12759: Kafka gives it its former assignment, of topics that it no longer wants."""
    a, b = (
        ClassicConsumer(world, name, instance_id=f"i-{name}", protocols=subscription("orders", owned=(1,)))
        for name in "ab"
    )
    for one in (a, b):
        assert one.join(protocol_type=type_of_group) is None
    world.work()
    rebalanced(a, b)
    same = restarted(b, protocols=subscription("orders"))
    assert same.join(protocol_type=type_of_group).generation_id == 1, "what it owned does not matter"
    other = restarted(b, protocols=subscription("orders", "payments"))
    answer = other.join(protocol_type=type_of_group)
    if type_of_group == "connect":
        assert answer.generation_id == 1, "only consumers are known to send a subscription"
        return
    assert answer is None
    a.join()
    rebalanced(a, other)
    assert a.generation == 2
