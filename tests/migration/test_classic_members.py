"""Members of the classic protocol in a consumer group: join, sync, heartbeat, leave, commits."""

from __future__ import annotations

import pytest

from coordinator.limits import GroupSettings, Limits, MigrationPolicy
from records import MemberState, ReasonKind, Trigger
from tests.support.computing_client import ComputingClient
from tests.support.embedded_member import EmbeddedConsumer, settled, shared
from tests.support.group_client import Client
from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.list_groups import ListGroupsRequest


@pytest.fixture
def consumer(world: World) -> Client:
    """The first member of the group, of the consumer protocol."""
    consumer = Client(world, "c")
    consumer.beat()
    return consumer


def ready(world: World, client_id: str = "a", **changes: object) -> EmbeddedConsumer:
    one = EmbeddedConsumer(world, client_id, **changes)  # type: ignore[arg-type]
    one.protocols = dict.fromkeys(one.assignors, one.subscription())
    return one


def joined(world: World, client_id: str = "a", **changes: object) -> EmbeddedConsumer:
    one = ready(world, client_id, **changes)
    assert one.join().error_code == 0
    return one


# JoinGroup.


def test_a_classic_member_joins_a_consumer_group(world: World, consumer: Client) -> None:
    a = ready(world)
    answer = a.send_join()
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("a-")
    answer = a.send_join()
    assert answer.error_code == 0
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert (answer.leader, answer.members, answer.skip_assignment) == ("", [], False)
    group = world.group()
    assert answer.generation_id == group.epoch == group.members[a.member_id].current.epoch
    assert world.log[-1].types == [5, 3, 7, 7, 6, 8]
    assert world.log[-1].cause.trigger == Trigger.MEMBER_JOINED
    settled(world, consumer, a)
    shared(world, consumer, a)


def test_the_cause_has_the_reason_that_the_client_gives(world: World, consumer: Client) -> None:
    ready(world).join(reason="r" * 300)
    [reason] = world.log[-1].cause.reasons
    assert (reason.kind, reason.detail) == (ReasonKind.MEMBER_JOINED, "r" * 255)


@pytest.mark.parametrize("named", ["c" * 32_767, "é" * 249])
@pytest.mark.parametrize("is_static", [False, True])
def test_a_member_with_a_long_name_joins_again_under_its_id(
    world: World, consumer: Client, named: str, is_static: bool
) -> None:
    """The id that a member is given is one that it may use."""
    a = joined(world, "a", instance_id=named.encode()[:256].decode()) if is_static else joined(world, named)
    assert len(a.member_id.encode()) <= world.shard.groups.limits.member_id_bytes_max
    settled(world, consumer, a)
    shared(world, consumer, a)


def test_the_description_tells_both_kinds(world: World, consumer: Client) -> None:
    a = joined(world)
    metadata = world.group().members[a.member_id].metadata
    assert metadata is not None
    assert metadata.client_id == "a"
    assert metadata.rebalance_timeout_ms == 60_000
    classic = metadata.classic_member_metadata
    assert classic is not None
    assert classic.session_timeout_ms == 10_000
    assert [one.name for one in classic.supported_protocols] == ["range"]
    assert world.group().num_classic == 1


def test_operators_see_a_consumer_group_with_members_of_both_kinds(world: World, consumer: Client) -> None:
    a = joined(world)
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    (described,) = world.handle(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups
    assert {one.member_id: one.member_type for one in described.members} == {"c": 1, a.member_id: 0}
    (listed,) = world.handle(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups
    assert (listed.group_type, listed.protocol_type) == ("consumer", "consumer")
    (dead,) = world.handle(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g"])).groups
    assert (dead.group_state, dead.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)


def test_old_versions_join_without_an_id(world: World, consumer: Client) -> None:
    a = ready(world, version=3)
    assert a.send_join().error_code == 0
    assert a.member_id


def test_all_classic_members_have_a_protocol_in_common(world: World, consumer: Client) -> None:
    joined(world, "a", assignors=("range", "roundrobin"))
    other = ready(world, "b", assignors=("sticky",))
    assert other.send_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ready(world, "b").send_join(protocol_type="connect").error_code == 23
    joined(world, "b", assignors=("roundrobin", "sticky"))


def test_a_full_group_has_no_room() -> None:
    world = World(GroupSettings(max_size=1), Limits(serves_classic=True))
    world.create_topic("orders", 6)
    Client(world, "c", instance_id="i").beat()
    assert ready(world).send_join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    joined(world, "a", instance_id="i")


def test_the_policy_may_keep_classic_members_out() -> None:
    world = World(limits=Limits(serves_classic=True, migration_policy=MigrationPolicy.DISABLED))
    world.create_topic("orders", 6)
    Client(world, "c").beat()
    assert ready(world).send_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "x" * 257}, ErrorCode.INVALID_REQUEST),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "x", "group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_invalid_joins(world: World, consumer: Client, changes: dict[str, object], code: ErrorCode) -> None:
    before = len(world.log)
    assert ready(world).send_join(**changes).error_code == code
    assert len(world.log) == before


def test_a_member_that_expired_gives_its_partitions_up(world: World, consumer: Client) -> None:
    a = EmbeddedConsumer(world, "a", cooperative=True)
    settled(world, consumer, a)
    assert a.owned
    for _ in range(12):
        world.sleep(1_000)
        consumer.beat()
    assert a.member_id not in world.group().members
    shared(world, consumer)
    a.phase = "unjoined"
    a.poll()
    assert a.lost
    settled(world, consumer, a)
    shared(world, consumer, a)


def test_metadata_that_is_no_subscription(world: World, consumer: Client) -> None:
    a = ready(world, version=3)
    a.protocols = {"range": b"?"}
    before = len(world.log)
    assert a.send_join().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    a.protocols = {"range": a.subscription() + bytes(1 << 20)}
    assert a.send_join().error_code == ErrorCode.INVALID_REQUEST
    assert len(world.log) == before


def test_static_members_are_replaced_and_fenced(world: World, consumer: Client) -> None:
    a = joined(world, "a", instance_id="i")
    settled(world, consumer, a)
    epoch = world.group().epoch
    b = joined(world, "b", instance_id="i")
    assert b.member_id.startswith("i-")
    assert world.group().epoch == epoch, "nothing else changed"
    assert world.log[-1].cause.trigger == Trigger.MEMBER_REPLACED
    assert a.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert a.send_join().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert a.sync().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert b.sync().error_code == 0
    settled(world, consumer, b)
    shared(world, consumer, b)


# Heartbeat and SyncGroup.


def test_a_member_is_told_to_join_when_there_is_a_target(world: World, consumer: Client) -> None:
    """KAFKA-20272: the epoch of the target counts, not the group's, which may be ahead of it."""
    a = joined(world)
    settled(world, consumer, a)
    world.configure(assignment_interval_ms=5_000)
    d = Client(world, "d")
    d.beat()
    group = world.group()
    assert group.epoch > group.assignment_epoch
    assert a.heartbeat() == 0
    assert a.sync().error_code == 0
    world.sleep(5_000)
    assert group.epoch == group.assignment_epoch
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert a.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_cooperative_member_gives_up_in_two_joins(world: World, consumer: Client) -> None:
    a = EmbeddedConsumer(world, "a", cooperative=True)
    settled(world, consumer, a)
    d = Client(world, "d")
    d.beat()
    a.phase = "unjoined"
    a._join_group()
    current = world.group().members[a.member_id].current
    assert current.state is MemberState.UNREVOKED_PARTITIONS
    assert a.generation == current.epoch < world.group().epoch
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    a._sync_group()
    assert a.phase == "unjoined", "it gave partitions up, and joins again"
    a._join_group()
    assert world.log[-1].cause.trigger == Trigger.MEMBER_ACKED
    assert a.generation == world.group().epoch
    settled(world, consumer, a, d)
    shared(world, consumer, a, d)


def test_a_member_that_waits_is_told_when_all_is_free(world: World, consumer: Client) -> None:
    a = joined(world)
    assert world.group().members[a.member_id].current.state is MemberState.UNRELEASED_PARTITIONS
    assert a.sync().error_code == 0
    assert a.heartbeat() == 0, "the consumer still owns everything"
    consumer.beat()
    consumer.beat()
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    settled(world, consumer, a)
    shared(world, consumer, a)


def test_errors_of_sync_and_heartbeat(world: World, consumer: Client) -> None:
    a = joined(world)
    assert a.sync(generation_id=99).error_code == ErrorCode.ILLEGAL_GENERATION
    assert a.sync(protocol_name="sticky").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.sync(protocol_type="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.sync(protocol_name=None).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.sync(member_id="?").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.sync(member_id="c", generation_id=consumer.epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.sync(group_instance_id="i").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.heartbeat(generation_id=99) == ErrorCode.ILLEGAL_GENERATION
    assert a.heartbeat(member_id="?") == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.heartbeat(member_id="c", generation_id=consumer.epoch) == ErrorCode.UNKNOWN_MEMBER_ID


# Timers.


def removed_for(kind: ReasonKind, world: World, consumer: Client, a: EmbeddedConsumer) -> None:
    """Check that a member that only sends heartbeats is removed in time for this reason."""
    for _ in range(14):
        world.sleep(5_000)
        consumer.beat()
        a.heartbeat()
    assert a.member_id not in world.group().members
    reasons = [reason for entry in world.log for reason in entry.cause.reasons]
    assert (kind, a.member_id) in [(one.kind, one.member_id) for one in reasons]


def test_a_member_that_does_not_sync_is_removed(world: World, consumer: Client) -> None:
    a = joined(world)
    removed_for(ReasonKind.SYNC_TIMED_OUT, world, consumer, a)


def test_a_member_that_does_not_join_again_is_removed(world: World, consumer: Client) -> None:
    a = joined(world)
    settled(world, consumer, a)
    Client(world, "d").beat()
    removed_for(ReasonKind.JOIN_TIMED_OUT, world, consumer, a)


def test_joining_and_syncing_end_the_timers(world: World, consumer: Client) -> None:
    a = EmbeddedConsumer(world, "a")
    settled(world, consumer, a)
    d = Client(world, "d")
    for _ in range(30):
        settled(world, consumer, a, d, rounds=1)
        world.sleep(5_000)
    assert a.member_id in world.group().members
    assert not a.lost


# LeaveGroup and commits.


def test_members_leave_one_by_one(world: World, consumer: Client) -> None:
    a, b = joined(world, "a"), joined(world, "b")
    members = [
        MemberIdentity(member_id=a.member_id, reason="the consumer is being closed"),
        MemberIdentity(member_id="?"),
        MemberIdentity(member_id=b.member_id),
    ]
    answer = world.handle(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(group_id="g", members=members))
    assert [one.error_code for one in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    cause = world.log[-1].cause
    assert cause.trigger == Trigger.MEMBER_LEFT
    assert cause.principal == ""
    assert [(one.kind, one.member_id, one.detail) for one in cause.reasons] == [
        (ReasonKind.MEMBER_LEFT, a.member_id, "the consumer is being closed"),
        (ReasonKind.MEMBER_LEFT, b.member_id, ""),
    ]
    assert world.group().members.keys() == {"c"}


def test_commits_are_fenced_by_the_epoch(world: World, consumer: Client) -> None:
    a = joined(world)
    assert a.commit({("orders", 0): 1}) == {("orders", 0): 0}
    a.generation -= 1
    assert a.commit({("orders", 0): 2}) == {("orders", 0): ErrorCode.ILLEGAL_GENERATION}
    a.generation += 2
    assert a.commit({("orders", 0): 3}) == {("orders", 0): ErrorCode.ILLEGAL_GENERATION}


# Client-side assignors.


def test_a_round_of_a_client_side_assignor_is_dropped(world: World) -> None:
    one = ComputingClient(world, "m1")
    one.beat()
    world.work()
    one.beat()
    assert world.shard.groups.client_side.rounds
    a = joined(world)
    assert not world.shard.groups.client_side.rounds
    assert one.prepare().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    settled(world, a, rounds=2)


# Failovers.


def test_a_new_leader_goes_on_in_the_middle(world: World, consumer: Client) -> None:
    a = joined(world)
    world.failover()
    assert a.sync().error_code == 0
    settled(world, consumer, a)
    shared(world, consumer, a)
    world.failover()
    world.sleep(9_999)
    assert a.member_id in world.group().members
    world.sleep(2)
    assert a.member_id not in world.group().members, "its session is the one that it named"


def test_an_older_catalog_hides_no_partition(world: World, consumer: Client) -> None:
    """A node that does not know the group's topics yet tells a member nothing of what it may use."""
    a = joined(world)
    settled(world, consumer, a)
    world.catalog.view.version -= 1
    assert a.sync().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert a.send_join().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for _ in range(16):
        world.sleep(3_000)
        assert a.heartbeat() == 0
    assert "c" not in world.group().members
    assert world.group().is_consumer, "record 2 would lack what it owns"
    world.catalog.view.version += 1
    world.sleep(5_000)
    settled(world, a)
    shared(world, a)
