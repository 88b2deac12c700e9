"""H.1 Client-side assignors: Prepare and Install, the member that computes, and those that do not deliver."""

from __future__ import annotations

import pytest

from coordinator.leader_state.clientrounds import Choice
from coordinator.limits import GroupSettings, Limits
from coordinator.state.reconcile import AssignorMetadata
from coordinator.targets.clientside import chosen_assignor
from records import MemberState, Trigger
from tests.kip848.computing_members import T, chosen, computing_world, joins_and_waits, settled
from tests.support.computing_client import (
    ComputingClient,
    ask_to_install,
    ask_to_prepare,
    dealt_round,
    offer,
    part,
    settle_computing,
)
from tests.support.world import World
from wire.errors import ErrorCode


@pytest.fixture
def world() -> World:
    return computing_world()


# One member


def test_the_first_member_gets_an_epoch_and_is_asked(world: World) -> None:
    """A group without a computed target has an empty one, and its member an epoch for its requests."""
    a = ComputingClient(world, "a")
    a.beat()
    answer = a.full_answer
    assert answer is not None
    assert (answer.member_epoch, answer.should_compute_assignment) == (1, True)
    assert answer.assignment is not None
    assert answer.assignment.assigned_topic_partitions == []
    assert world.log[0].types == [5, 4, 3, 6, 3, 8]
    group = world.group()
    assert (group.epoch, group.assignment_epoch, group.state.value) == (2, 1, "Assigning")


def test_prepare_shows_the_group(world: World) -> None:
    """Group epoch, members with epochs, instance, rack, subscription, reason, metadata, current partitions;
    topics with partition counts."""
    a, b = settled(world, "a", "b")
    topic = world.create_topic("events", 2)
    b.offers = [offer("warm", 0, 3, reason=7, version=0, metadata=b"b says")]
    b.topics = ("events", "orders")
    b.forget()
    b.beat()
    a.beat()
    assert (a.must_compute, b.must_compute) == (True, False)
    shown = a.prepare()
    group = world.group()
    assert (shown.error_code, shown.group_epoch) == (0, group.epoch)
    assert (shown.assignor_name, shown.assignor_version) == ("warm", 0)
    assert [(one.topic_id, one.topic_name, one.num_partitions) for one in shown.topics] == sorted(
        [(T, "orders", 6), (topic, "events", 2)]
    )
    one, two = shown.members
    assert (one.member_id, one.member_epoch, one.subscribed_topic_ids) == ("a", a.epoch, [T])
    assert (one.reason, one.metadata_version, one.metadata_bytes) == (0, 0, b"")
    assert [(p.topic_id, p.partitions) for p in one.topic_partitions] == [(T, sorted(a.owned[T]))]
    assert (two.member_id, two.subscribed_topic_ids) == ("b", sorted([T, topic]))
    assert (two.reason, two.metadata_version, two.metadata_bytes) == (7, 0, b"b says")


def test_prepare_shows_rack_and_instance(world: World) -> None:
    a = ComputingClient(world, "a", instance_id="i")
    a.beat()
    a.forget()
    a.rack_id = "r"
    a.beat()
    shown = a.prepare()
    assert (shown.members[0].instance_id, shown.members[0].rack_id) == ("i", "r")


def test_install_is_one_entry_with_its_cause(world: World) -> None:
    a = ComputingClient(world, "a")
    a.beat()
    assert a.compute() == 0
    entry = world.log[-1]
    assert entry.types == [7, 6]
    assert entry.cause.trigger == Trigger.ASSIGNMENT_INSTALLED
    assert (entry.cause.member_id, entry.cause.member_epoch) == ("a", 1)
    a.beat()
    assert (a.epoch, a.partitions(T), a.must_compute) == (2, [0, 1, 2, 3, 4, 5], False)
    assert world.group().state.value == "Stable"


def test_the_cause_refers_to_the_bump(world: World) -> None:
    a, _b = settled(world, "a", "b")
    joins_and_waits(world)
    bumped_at = world.log[-1].index
    a.beat()
    assert a.compute() == 0
    assert [(ref.shard, ref.index) for ref in world.log[-1].cause.refs] == [(0, bumped_at)]


# The member that computes


def test_exactly_one_member_is_told(world: World) -> None:
    """ShouldComputeAssignment to one chosen member."""
    members = settled(world, "a", "b", "c")
    world.grow_topic("orders", 9)
    world.work()
    for member in members:
        member.beat()
    assert [member.must_compute for member in members] == [True, False, False]
    members[0].beat()
    assert members[0].must_compute, "until it has, every heartbeat says so: one may be lost"


def test_stable_members_come_first(world: World) -> None:
    """Prefer STABLE ones, deterministic."""
    a, _b, c = settled(world, "a", "b", "c")
    world.grow_topic("orders", 7)
    world.work()
    a.beat()
    shown = a.prepare()
    assert (
        a.install(shown.group_epoch, [part("b", {T: list(range(7))}), part("a"), part("c")]).error_code == 0
    )
    a.beat()  # has partitions to give up, and does not yet
    c.beat(acknowledge=False)
    assert world.group().members["a"].current.state is MemberState.UNREVOKED_PARTITIONS
    world.grow_topic("orders", 8)
    world.work()
    assert chosen(world) == "b"
    assert world.group().members["b"].current.state is MemberState.STABLE


def test_who_can_read_all_metadata_comes_first(world: World) -> None:
    """b writes version 2, which a does not understand; the common version is 1."""
    a = ComputingClient(world, "a", offers=[offer("warm", 0, 1)])
    b = ComputingClient(world, "b", offers=[offer("warm", 0, 2)])
    settle_computing([a, b], rounds=5)
    assert chosen_assignor(world.group()) == Choice("warm", 0, 1)
    world.grow_topic("orders", 7)
    world.work()
    assert chosen(world) == "b"


@pytest.mark.parametrize(
    "code", ["GROUP_ID_NOT_FOUND", "UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH", "not chosen"]
)
def test_the_checks_and_their_order(world: World, code: str) -> None:
    """Group missing → GROUP_ID_NOT_FOUND; member missing → UNKNOWN_MEMBER_ID; epoch ≠ current →
    STALE_MEMBER_EPOCH; not the chosen member → UNKNOWN_MEMBER_ID."""
    a, b = settled(world, "a", "b")
    world.grow_topic("orders", 7)
    world.work()
    a.beat()
    b.beat()
    asked = {
        "GROUP_ID_NOT_FOUND": ("nobody", 99, "nowhere"),
        "UNKNOWN_MEMBER_ID": ("nobody", 99, "g"),
        "STALE_MEMBER_EPOCH": ("b", 99, "g"),  # not chosen either
        "not chosen": ("b", b.epoch, "g"),
    }[code]
    expected = ErrorCode["UNKNOWN_MEMBER_ID" if code == "not chosen" else code]
    entries = len(world.log)
    member_id, epoch, group_id = asked
    shown = ask_to_prepare(world, member_id, epoch, group_id)
    installed = ask_to_install(world, member_id, epoch, 99, [part("x", {T: [99]})], group_id)
    for answer in (shown, installed):
        assert answer.error_code == expected, answer.error_message
        assert answer.error_message
    if code == "not chosen":
        assert "must not compute" in (shown.error_message or "")
    assert shown.members == []
    assert len(world.log) == entries
    assert a.compute() == 0, "the chosen one was not disturbed"


def test_no_member_is_chosen_while_nothing_is_due(world: World) -> None:
    (a,) = settled(world, "a")
    a.beat()
    assert not a.must_compute
    assert a.prepare().error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("field", ["group_id", "member_id"])
def test_empty_ids_are_invalid(world: World, field: str) -> None:
    ids = {"group_id": "g", "member_id": "m"} | {field: " "}
    for answer in (
        ask_to_prepare(world, ids["member_id"], 1, ids["group_id"]),
        ask_to_install(world, ids["member_id"], 1, 1, [], ids["group_id"]),
    ):
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        name = "GroupId" if field == "group_id" else "MemberId"
        assert (answer.error_message or "").startswith(f"{name} can't be empty. It was ' '")


# While it computes


def test_x_is_installed_though_the_group_is_at_x_plus_1(world: World) -> None:
    """While a client computes for epoch X the group may reach X+1: install X anyway, then trigger a new
    computation at once. So AssignmentEpoch = the epoch it was computed for, not the latest."""
    a, b = settled(world, "a", "b")
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    shown = a.prepare()
    c = ComputingClient(world, "c")
    c.beat()
    group = world.group()
    assert group.epoch == shown.group_epoch + 1
    assert a.install(shown.group_epoch, dealt_round(shown)).error_code == 0
    assert (group.assignment_epoch, group.epoch) == (shown.group_epoch, shown.group_epoch + 1)
    assert group.target["a"].assignment_epoch == shown.group_epoch
    assert chosen(world) == "a", "the next computation is asked for at once"
    a.beat()
    assert a.must_compute
    settle_computing([a, b, c], rounds=5)
    assert group.state.value == "Stable"
    assert sorted(len(one.owned[T]) for one in (a, b, c)) == [2, 3, 3]


def test_parts_of_members_that_left_are_dropped(world: World) -> None:
    a, b, c = settled(world, "a", "b", "c")
    world.grow_topic("orders", 9)
    world.work()
    a.beat()
    shown = a.prepare()
    b.leave()
    assert a.install(shown.group_epoch, dealt_round(shown)).error_code == 0
    assert "b" not in world.group().target
    settle_computing([a, c], rounds=4)
    assert world.group().state.value == "Stable"
    assert sorted([*a.owned[T], *c.owned[T]]) == list(range(9))


def test_a_topic_that_went_meanwhile_is_not_assigned(world: World) -> None:
    events = world.create_topic("events", 2)
    a, b = settled(world, "a", "b", topics=("events", "orders"))
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    shown = a.prepare()
    world.delete_topic("events")
    world.work()
    assert a.install(shown.group_epoch, dealt_round(shown)).error_code == 0
    settle_computing([a, b], rounds=5)
    assert events not in a.owned
    assert events not in b.owned
    assert world.group().state.value == "Stable"


def test_a_static_member_that_was_replaced_passes_its_part_on(world: World) -> None:
    a = ComputingClient(world, "a")
    b = ComputingClient(world, "b", instance_id="i")
    settle_computing([a, b], rounds=5)
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    shown = a.prepare()
    b.restart("b2")
    assert a.install(shown.group_epoch, dealt_round(shown)).error_code == 0
    assert [t.partitions for t in world.group().target["b2"].topic_partitions] == [(1, 3, 5, 7)]


# Members that do not deliver


def test_another_is_chosen_after_the_rebalance_timeout(world: World) -> None:
    """Choose another after the rebalance timeout, or when it leaves."""
    a, b = settled(world, "a", "b", rebalance_timeout_ms=4_000)
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    shown = a.prepare()
    world.sleep(3_999)
    assert chosen(world) == "a"
    assert world.failures == []
    world.sleep(1)
    assert chosen(world) == "b"
    assert "did not install" in world.shard.groups.client_side.errors["g"]
    (told,) = world.failures
    assert (told.group_id, told.member_id, told.work) == ("g", "a", "assign")
    assert "did not install" in told.words
    b.beat()
    assert b.must_compute
    assert a.prepare().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.install(shown.group_epoch, dealt_round(shown)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert b.compute() == 0
    assert "g" not in world.shard.groups.client_side.errors


def test_time_that_the_node_did_not_run_does_not_count(world: World) -> None:
    settled(world, "a", "b", rebalance_timeout_ms=4_000)
    world.grow_topic("orders", 8)
    world.work()
    world.now_ms += 60_000
    world.shard.shift_deadlines(60_000)
    world.work()
    assert chosen(world) == "a"


@pytest.mark.parametrize("flips", [False, True])
def test_no_rebalance_timeout_keeps_a_group_without_a_target(flips: bool) -> None:
    """The coordinator bounds the time that clients ask for; asking again does not extend it."""
    world = World(limits=Limits(client_round_max_ms=10_000))
    world.create_topic("orders", 6)
    a, b = settled(world, "a", "b", rebalance_timeout_ms=2**31 - 1)
    a.offering(offer("warm", 0, 2, version=0))
    world.grow_topic("orders", 8)
    world.work()
    for number in range(9):
        world.sleep(1_000)
        a.beat()
        b.beat()
        if flips:
            b.offering(offer("warm", 0, number % 2 + 1, version=0))
            assert chosen_assignor(world.group()) == Choice("warm", 0, number % 2 + 1)
    assert world.group().assignment_epoch < world.group().epoch
    world.sleep(2_000)
    assert world.group().assignment_epoch == world.group().epoch
    assert "the server assignor computes" in world.shard.groups.client_side.errors["g"]
    settle_computing([a, b])
    assert world.group().state.value == "Stable"


def test_every_member_failed_so_the_server_assignor_computes(world: World) -> None:
    a, b = settled(world, "a", "b", rebalance_timeout_ms=4_000)
    world.grow_topic("orders", 8)
    world.work()
    for _ in range(9):
        world.sleep(1_000)
        a.beat()
        b.beat()
    group = world.group()
    assert group.assignment_epoch == group.epoch
    assert world.log[-1].cause.trigger != Trigger.ASSIGNMENT_INSTALLED
    assert "the server assignor computes" in world.shard.groups.client_side.errors["g"]
    settle_computing([a, b])
    assert (group.state.value, len(a.owned[T]), len(b.owned[T])) == ("Stable", 4, 4)
    world.grow_topic("orders", 10)
    world.work()
    assert chosen(world) == "a", "the next target is asked of members again"


@pytest.mark.parametrize("how", ["leaves", "expires", "goes away"])
def test_another_is_chosen_when_it_is_gone(how: str) -> None:
    world = World(GroupSettings(session_timeout_ms=10_000))
    world.create_topic("orders", 6)
    a = ComputingClient(world, "a", instance_id="i")
    b = ComputingClient(world, "b")
    settle_computing([a, b], rounds=5)
    world.grow_topic("orders", 8)
    world.work()
    assert chosen(world) == "a"
    if how == "expires":
        for _ in range(3):
            world.sleep(4_000)
            b.beat()
        assert "a" not in world.group().members
    else:
        a.leave(for_good=how == "leaves")
        world.work()
    assert chosen(world) == "b"
    b.beat()
    assert b.compute() == 0


def test_a_new_leader_elects_anew(world: World) -> None:
    """Volatile state is made anew at Ready; what the former leader's Prepare showed counts for nothing."""
    a, b = settled(world, "a", "b")
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    shown = a.prepare()
    world.failover()
    world.work()
    assert chosen(world) == "a"
    refused = a.install(shown.group_epoch, dealt_round(shown))
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert "prepare first" in (refused.error_message or "")
    a.beat()
    assert a.must_compute
    assert a.compute() == 0
    settle_computing([a, b])
    assert world.group().state.value == "Stable"


def test_who_was_chosen_by_the_former_leader_only_is_refused(world: World) -> None:
    """A member chosen by the old leader that then calls Prepare gets UNKNOWN_MEMBER_ID."""
    a, b = settled(world, "a", "b", rebalance_timeout_ms=4_000)
    world.grow_topic("orders", 8)
    world.work()
    world.sleep(4_000)
    b.beat()
    assert b.must_compute
    world.failover()
    world.work()
    assert b.prepare().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    a.beat()
    assert a.must_compute


def test_live_equals_replay(world: World) -> None:
    a, _b = settled(world, "a", "b")
    world.grow_topic("orders", 7)
    world.work()
    a.beat()
    shown = a.prepare()
    a.install(shown.group_epoch, [part("a", error=3), part("b", {T: [1]}, version=0, metadata=b"m")])
    a.beat()
    for count in range(len(world.log) + 1):
        world.replayed(count)
    assert world.replayed(len(world.log)).state_hash == world.shard.state_hash
    member = world.replayed(len(world.log)).projection.groups["g"].members["a"]
    assert member.current.assignor_metadata == AssignorMetadata(3)
