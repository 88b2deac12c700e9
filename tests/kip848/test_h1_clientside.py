"""H.1 Client-side assignors: the choice, the member that computes, Prepare and Install, and heartbeats."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.limits import GroupSettings, Limits
from coordinator.state.reconcile import AssignorMetadata
from coordinator.targets.clientside import Choice, chosen_assignor, common_assignor
from records import ClientAssignor, MemberState, ReasonKind, Trigger
from tests.support.computing_client import (
    ComputingClient,
    ask_to_install,
    ask_to_prepare,
    dealt_round,
    offer,
    part,
    settle_computing,
)
from tests.support.world import FIRST_TOPIC, Client, World
from wire.errors import ErrorCode

T = FIRST_TOPIC


@pytest.fixture
def world() -> World:
    world = World()
    world.create_topic("orders", 6)
    return world


def settled(world: World, *names: str, **fields: Any) -> list[ComputingClient]:
    """Members with the assignor "warm", stable on a target that one of them computed."""
    members = [ComputingClient(world, name, **fields) for name in names]
    settle_computing(members, rounds=5)
    group = world.group()
    assert group.state.value == "Stable"
    assert {len(member.owned.get(T, ())) for member in members} <= {6 // len(names), -(-6 // len(names))}
    return members


def joins_and_waits(world: World, name: str = "z") -> ComputingClient:
    """Let a new member join, so that a target is due; the chosen member has not been asked yet."""
    member = ComputingClient(world, name)
    member.beat()
    assert world.group().epoch > world.group().assignment_epoch
    return member


def chosen(world: World) -> str:
    round_ = world.shard.groups.client_side.rounds.get("g")
    return round_.chosen if round_ is not None else ""


# The choice


def client_assignor(name: str, low: int = 0, high: int = 0) -> ClientAssignor:
    return ClientAssignor(
        reason=0, minimum_version=low, maximum_version=high, version=high, name=name, metadata=b""
    )


A, B, C = client_assignor("a"), client_assignor("b"), client_assignor("c")


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        ([[A]], "a"),
        ([[B, A], [B, A], [A, B]], "b"),  # most votes
        ([[A, B], [B, A]], "a"),  # a tie: by places alike, then by name
        ([[C, A, B], [B, A, C], [A, B, C], [C, B, A]], "c"),  # two votes
        ([[A, B], [B, C]], "b"),  # the only one in common
        ([[A], [B]], None),
        ([[A], []], None),  # one member has none
        ([[], []], None),
        ([], None),
        ([[client_assignor("a", 0, 1)], [client_assignor("a", 2, 3)]], None),  # no version in common
        ([[client_assignor("a", 0, 1), B], [client_assignor("a", 2, 3), B]], "b"),
    ],
)
def test_the_assignor_is_common_to_all_by_votes(
    offers: list[list[ClientAssignor]], expected: str | None
) -> None:
    """One common to all members with overlapping version ranges, by priority/votes, else server assignor."""
    choice = common_assignor(offers)
    assert (choice.name if choice else None) == expected
    again = common_assignor(list(reversed(offers)))
    assert again == choice, "the order of members decides nothing"


def test_the_version_is_the_newest_that_all_understand() -> None:
    offers = [[client_assignor("a", 0, 5)], [client_assignor("a", 2, 4)], [client_assignor("a", 1, 7)]]
    assert common_assignor(offers) == Choice("a", 2, 4)


def test_votes_before_places_before_names() -> None:
    """c has the most votes; where c and b have two each, b stands higher in the other lists."""
    first = [[C, A, B], [C, A, B], [B, A, C]]
    assert common_assignor(first) == Choice("c", 0, 0)
    assert common_assignor([[C, B, A], [C, B, A], [B, A, C], [B, A, C]]) == Choice("b", 0, 0)


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
    b.must_send_all = True
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
    a.must_send_all = True
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


# Installed assignments


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([part("nobody")], "nobody is not a member"),
        ([part("a"), part("a")], "a occurs twice"),
        ([part("a"), part("b"), part("a")], "3 members exceed the 2 that exist"),
        ([part("a", {bytes([n]) * 16: [] for n in range(3)})], "3 topics exceed the"),
        ([part("a", {T: [*range(7), 0]})], "8 partitions exceed the 7 that exist"),
        ([part("a", {T: [0]}), part("b", {T: [0]})], "orders-0 is assigned to both a and b"),
        ([part("a", {T: [0, 0]})], "orders-0 is assigned to a twice"),
        ([part("a", {T: [7]})], "a is assigned orders-7; the topic has partitions 0 to 6"),
        ([part("a", {T: [-1]})], "a is assigned orders--1"),
        ([part("a", {bytes(15) + b"?": [0]})], f"a is assigned topic id {(bytes(15) + b'?').hex()}"),
        ([part("b", error=3, partitions={T: [0]})], "b has error 3, so it keeps its partitions"),
        ([part("b", error=3), part("a", {T: [1]})], "orders-1 is assigned to both b and a"),
        ([part("a", version=1)], "MetadataVersion is 1, outside 0 to 0, at a"),
        ([part("a", version=-2)], "MetadataVersion is -2"),
        ([part("a", metadata=b"x")], "MetadataVersion -1 means no metadata, but there are 1 bytes, at a"),
        ([part("a", version=0, metadata=bytes(16_385))], "MetadataBytes of a are 16385 bytes; at most 16384"),
    ],
)
def test_what_is_not_valid_is_refused_and_another_is_asked(
    world: World, members: list[Any], message: str
) -> None:
    """Validate the assignment against the information used to compute it → INVALID_ASSIGNMENT."""
    a, b = settled(world, "a", "b")
    world.grow_topic("orders", 7)
    world.work()
    a.beat()
    shown = a.prepare()
    world.grow_topic("orders", 8)  # valid or not is decided by what was shown
    world.work()
    entries = len(world.log)
    answer = a.install(shown.group_epoch, members)
    assert answer.error_code == ErrorCode.INVALID_ASSIGNMENT
    assert message in (answer.error_message or "")
    assert len(world.log) == entries
    assert chosen(world) == "b"
    assert message in world.shard.groups.client_side.errors["g"]
    settle_computing([a, b], rounds=5)
    assert world.group().state.value == "Stable"


def test_a_member_of_one_subscription_gets_no_other_topic(world: World) -> None:
    events = world.create_topic("events", 2)
    a = ComputingClient(world, "a", topics=("events",))
    b = ComputingClient(world, "b")
    settle_computing([a, b], rounds=5)
    world.grow_topic("orders", 7)
    world.work()
    a.beat()
    shown = a.prepare()
    answer = a.install(shown.group_epoch, [part("a", {events: [0, 1], T: [0]})])
    assert answer.error_code == ErrorCode.INVALID_ASSIGNMENT
    assert "to which it is not subscribed" in (answer.error_message or "")


def test_all_invalid_ends_with_the_server_assignor_at_once(world: World) -> None:
    a, b = settled(world, "a", "b")
    world.grow_topic("orders", 8)
    world.work()
    for one in (a, b):
        one.beat()
        shown = one.prepare()
        assert one.install(shown.group_epoch, [part("nobody")]).error_code == ErrorCode.INVALID_ASSIGNMENT
    world.work()
    assert world.group().assignment_epoch == world.group().epoch
    assert world.log[-1].cause.trigger == Trigger.TARGET_COMPUTED


def test_another_group_epoch_is_refused_and_the_member_stays_chosen(world: World) -> None:
    a, _b = settled(world, "a", "b")
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    shown = a.prepare()
    answer = a.install(shown.group_epoch + 1, dealt_round(shown))
    assert answer.error_code == ErrorCode.INVALID_ASSIGNMENT
    assert f"but epoch {shown.group_epoch} was prepared" in (answer.error_message or "")
    assert a.install(shown.group_epoch, dealt_round(shown)).error_code == 0


def test_install_without_prepare(world: World) -> None:
    a, _b = settled(world, "a", "b")
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    assert a.install(world.group().epoch, []).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.compute() == 0


def test_a_target_that_is_too_large_for_the_log_is_refused() -> None:
    world = World(limits=Limits(target_bytes_max=200))
    world.create_topic("orders", 200)
    a = ComputingClient(world, "a")
    a.beat()
    assert a.compute() == ErrorCode.INVALID_ASSIGNMENT


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(prepare_bytes_max=150), "bytes of description, more than 150"),
        (Limits(client_members_max=1), "has 2 members, more than 1"),
        (Limits(client_partitions_max=6), "has 8 partitions, more than 6"),
    ],
)
def test_a_group_that_is_too_large_is_the_servers(limits: Limits, said: str) -> None:
    world = World(limits=limits)
    world.create_topic("orders", 6)
    a = ComputingClient(world, "a")
    a.beat()
    assert a.must_compute
    world.create_topic("t1", 2)
    b = ComputingClient(world, "b", topics=("orders", *(f"t{number}" for number in range(20))))
    b.beat()
    assert chosen(world) == ""
    assert said in world.shard.groups.client_side.errors["g"]
    settle_computing([a, b])
    assert world.group().state.value == "Stable"


def test_the_size_of_the_answer_is_bounded_from_above(world: World) -> None:
    from coordinator.targets.clientside import size_to_show
    from wire.protocol import encode_response

    names = [f"member-{number:03}" for number in range(12)]
    members = [ComputingClient(world, name, offers=[offer("warm", metadata=bytes(100))]) for name in names]
    for number in range(20):
        world.create_topic(f"t{number}", 5)
    for member in members:
        member.topics = ("orders", *(f"t{number}" for number in range(20)))
    settle_computing(members, rounds=8)
    world.grow_topic("orders", 7)
    world.work()
    members[0].beat()
    shown = members[0].prepare()
    choice = chosen_assignor(world.group())
    assert choice is not None
    size = len(encode_response(20_101, 0, 1, shown))
    assert size <= size_to_show(world.group(), choice) <= 2 * size


def test_an_install_whose_reply_was_lost_is_accepted_again(world: World) -> None:
    """Install answered twice with the same content is accepted idempotently, by whoever leads."""
    a, _b = settled(world, "a", "b")
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    shown = a.prepare()
    parts = dealt_round(shown)
    assert a.install(shown.group_epoch, parts).error_code == 0
    entries = len(world.log)
    assert a.install(shown.group_epoch, parts).error_code == 0
    world.failover()
    assert a.install(shown.group_epoch, list(reversed(parts))).error_code == 0
    other = [part("a", {T: [0]}), part("b")]
    assert a.install(shown.group_epoch, other).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.install(shown.group_epoch, []).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(world.log) == entries


def test_prepare_twice_shows_the_group_as_it_is_then(world: World) -> None:
    a, _b = settled(world, "a", "b")
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    first = a.prepare()
    assert a.prepare() == first
    world.grow_topic("orders", 9)
    world.work()
    second = a.prepare()
    assert (second.group_epoch, second.topics[0].num_partitions) == (first.group_epoch + 1, 9)
    assert a.install(first.group_epoch, dealt_round(first)).error_code == ErrorCode.INVALID_ASSIGNMENT
    assert a.install(second.group_epoch, dealt_round(second)).error_code == 0


# Answers to members


def test_error_and_metadata_arrive_with_the_heartbeat(world: World) -> None:
    """Error byte and metadata delivered in the heartbeat of each member; also when partitions stay equal."""
    a, b = settled(world, "a", "b")
    world.grow_topic("orders", 7)
    world.work()
    a.beat()
    shown = a.prepare()
    assert (
        a.install(
            shown.group_epoch,
            [part("a", {T: [0, 2, 4, 6]}), part("b", {T: [1, 3, 5]}, version=0, metadata=b"hello b")],
        ).error_code
        == 0
    )
    b.beat()
    assert b.assignor_metadata == AssignorMetadata(0, 0, b"hello b")
    assert b.full_answer is not None
    assert b.full_answer.assignment is not None, "the partitions are the same, what it is told is not"
    a.beat()
    assert (a.assignor_metadata, a.partitions(T)) == (AssignorMetadata(), [0, 2, 4, 6])
    value = world.group().members["b"].current_value
    assert value is not None
    assert (value.error, value.metadata_version, value.metadata_bytes) == (0, 0, b"hello b")


def test_an_error_lets_the_member_keep_its_partitions(world: World) -> None:
    """Meaning of Error ≠ 0: pass on to members, keep old partitions."""
    a, b = settled(world, "a", "b")
    before = b.partitions(T)
    world.grow_topic("orders", 7)
    world.work()
    a.beat()
    shown = a.prepare()
    assert a.install(shown.group_epoch, [part("a", {T: [0, 2, 4, 6]}), part("b", error=-7)]).error_code == 0
    settle_computing([a, b])
    assert (b.partitions(T), b.assignor_metadata.error, b.epoch) == (before, -7, shown.group_epoch)
    assert world.group().state.value == "Stable"
    world.grow_topic("orders", 8)
    world.work()
    settle_computing([a, b])
    assert b.assignor_metadata == AssignorMetadata(), "the next target says no more of it"


def test_an_error_for_a_member_that_is_new(world: World) -> None:
    a = ComputingClient(world, "a")
    a.beat()
    shown = a.prepare()
    assert a.install(shown.group_epoch, [part("a", error=1)]).error_code == 0
    a.beat()
    assert (a.assignor_metadata.error, a.owned, world.group().state.value) == (1, {}, "Stable")


def test_pending_partitions_are_shown(world: World) -> None:
    """Assigned (usable now), pending (assigned, not yet released by former owners)."""
    (a,) = settled(world, "a")
    b = ComputingClient(world, "b")
    b.beat()
    a.beat()
    shown = a.prepare()
    assert (
        a.install(shown.group_epoch, [part("a", {T: [0, 1]}), part("b", {T: [2, 3, 4, 5]})]).error_code == 0
    )
    b.beat()
    assert (b.partitions(T), b.pending) == ([], {T: [2, 3, 4, 5]})
    b.beat()
    assert b.pending == {T: [2, 3, 4, 5]}
    a.beat()
    assert (a.partitions(T), a.pending) == ([0, 1], {})
    a.beat()  # has given them up
    b.beat()
    assert (b.partitions(T), b.pending) == ([2, 3, 4, 5], {})


def test_the_steady_heartbeat_is_small_and_says_nothing(world: World) -> None:
    a, _b = settled(world, "a", "b")
    a.beat()
    answer = a.full_answer
    assert answer is not None
    assert (answer.assignment, answer.should_compute_assignment) == (None, False)
    a.beat()


def test_a_lost_reply_is_told_again(world: World) -> None:
    a, b = settled(world, "a", "b")
    world.grow_topic("orders", 7)
    world.work()
    a.beat()
    shown = a.prepare()
    parts = [part("a", {T: [0, 2, 4, 6]}), part("b", {T: [1, 3, 5]}, version=0, metadata=b"x")]
    assert a.install(shown.group_epoch, parts).error_code == 0
    b.beat(lose_reply=True)
    assert b.assignor_metadata == AssignorMetadata()
    b.beat()
    assert (b.assignor_metadata.metadata_bytes, b.partitions(T)) == (b"x", [1, 3, 5])


def test_a_leave_by_the_extended_heartbeat(world: World) -> None:
    from wire.apis import ApiKey
    from wire.messages.extended_consumer_group_heartbeat import ExtendedConsumerGroupHeartbeatRequest

    settled(world, "a", "b")
    request = ExtendedConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=-1)
    answer = world.handle(ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, 0, request)
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.assignment) == (0, "a", -1, None)
    assert set(world.group().members) == {"b"}


def test_the_coordinator_names_a_member_without_an_id(world: World) -> None:
    a = ComputingClient(world, "")
    answer = a.beat()
    assert answer.member_id == "fresh-2"
    assert list(world.group().members) == ["fresh-2"]


# Changes of assignors


@pytest.mark.parametrize(
    ("offers", "bumps"),
    [
        ([offer("warm", metadata=b"new")], True),
        ([offer("warm", reason=2)], True),
        ([offer("warm", 0, 4, version=0)], False),  # a wider range, the same version chosen
        ([offer("warm"), offer("cold", metadata=b"nobody uses it")], False),
        ([offer("warm")], False),
        ([offer("cold")], True),  # none in common any more
        ([], True),
    ],
)
def test_the_epoch_moves_when_the_change_matters(world: World, offers: list[Any], bumps: bool) -> None:
    a, b = settled(world, "a", "b")
    epoch = world.group().epoch
    b.offering(*offers)
    assert world.group().epoch == epoch + bumps
    reasons = [reason.kind for reason in world.log[-1].cause.reasons]
    if bumps:
        assert reasons == [ReasonKind.CLIENT_ASSIGNORS_CHANGED]
        assert world.log[-1].cause.trigger == Trigger.MEMBER_UPDATED
    metadata = world.group().members["b"].metadata
    assert metadata is not None
    assert [one.name for one in metadata.assignors] == [one.name for one in offers]
    settle_computing([a, b])
    assert world.group().state.value == "Stable"


def test_an_offer_in_a_group_that_is_too_large_changes_no_epoch() -> None:
    """No member computes there, and to compare the offers of ten thousand takes a tenth of a second."""
    world = World(limits=Limits(client_members_max=1))
    world.create_topic("orders", 6)
    a, b = ComputingClient(world, "a"), ComputingClient(world, "b")
    settle_computing([a, b])
    epoch = world.group().epoch
    b.offering(offer("warm", metadata=b"new"))
    assert world.group().epoch == epoch
    metadata = world.group().members["b"].metadata
    assert metadata is not None
    assert metadata.assignors[0].metadata == b"new"


def test_a_version_that_is_common_no_more_matters(world: World) -> None:
    a = ComputingClient(world, "a", offers=[offer("warm", 0, 2)])
    b = ComputingClient(world, "b", offers=[offer("warm", 1, 3)])
    settle_computing([a, b], rounds=5)
    epoch = world.group().epoch
    b.offering(offer("warm", 1, 1, version=1))
    assert (world.group().epoch, chosen_assignor(world.group())) == (epoch + 1, Choice("warm", 1, 1))


def test_a_join_without_assignors_takes_them_away(world: World) -> None:
    """A client that comes back without assignors has none; a heartbeat that names none leaves them."""
    (a,) = settled(world, "a")
    world.heartbeat("a", a.epoch, subscribed_topic_names=["orders"], rebalance_timeout_ms=1_000)
    metadata = world.group().members["a"].metadata
    assert metadata is not None
    assert len(metadata.assignors) == 1
    world.join("a")
    metadata = world.group().members["a"].metadata
    assert metadata is not None
    assert metadata.assignors == ()
    assert ReasonKind.CLIENT_ASSIGNORS_CHANGED in [r.kind for r in world.log[-1].cause.reasons]


# Stock members beside them


def test_a_stock_member_makes_it_the_servers_turn(world: World) -> None:
    """Else server assignor: also when a stock member without client assignors is in the group."""
    (a,) = settled(world, "a")
    stock = Client(world, "b")
    stock.beat()
    assert world.group().assignment_epoch == world.group().epoch, "computed in the join's own decision"
    settle_computing([a, stock])
    assert (len(a.owned[T]), len(stock.owned[T]), world.group().state.value) == (3, 3, "Stable")
    assert not a.must_compute
    stock.leave()
    assert chosen(world) == "a"
    settle_computing([a])
    assert Trigger.ASSIGNMENT_INSTALLED in [entry.cause.trigger for entry in world.log[-2:]]
    assert a.partitions(T) == [0, 1, 2, 3, 4, 5]


def test_a_computation_under_way_is_dropped_when_a_stock_member_joins(world: World) -> None:
    (a,) = settled(world, "a")
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    shown = a.prepare()
    Client(world, "b").beat()
    entries = len(world.log)
    assert a.install(shown.group_epoch, dealt_round(shown)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(world.log) == entries


def test_an_extended_member_may_have_no_assignors(world: World) -> None:
    """It hears pending partitions all the same."""
    a = ComputingClient(world, "a", offers=[])
    a.beat()
    assert (a.must_compute, len(a.owned[T])) == (False, 6)
    b = ComputingClient(world, "b", offers=None)
    b.beat()
    assert sum(map(len, b.pending.values())) == 3


# Invalid fields


@pytest.mark.parametrize(
    ("offers", "message"),
    [
        ([offer(" ")], "ClientAssignors.Name can't be empty."),
        ([offer("x" * 257)], "ClientAssignors.Name is longer than 256 bytes"),
        ([offer("warm"), offer("warm")], "Name warm occurs twice"),
        ([offer("warm", -1, 3)], "warm has MinimumVersion -1 and MaximumVersion 3"),
        ([offer("warm", 3, 2)], "warm has MinimumVersion 3 and MaximumVersion 2"),
        ([offer("warm", 1, 2, version=3)], "MetadataVersion is 3, outside 1 to 2, at warm"),
        ([offer("warm", 1, 2, version=0)], "MetadataVersion is 0, outside 1 to 2, at warm"),
        (
            [offer("warm", version=-1, metadata=b"x")],
            "MetadataVersion -1 means no metadata, but there are 1 bytes",
        ),
        (
            [offer(f"a{n}", metadata=bytes(8_000)) for n in range(3)],
            "MetadataBytes have 24000 bytes in total",
        ),
        ([offer(f"a{n}") for n in range(17)], "ClientAssignors has 17 assignors; at most 16"),
    ],
)
def test_fields_out_of_their_domain(world: World, offers: list[Any], message: str) -> None:
    settled(world, "a")
    entries = len(world.log)
    refused = ComputingClient(world, "b", offers=offers).beat()
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert message in (refused.error_message or "")
    assert len(world.log) == entries


def test_the_stock_rules_hold_for_the_extended_heartbeat(world: World) -> None:
    answer = ComputingClient(world, "a", group_id=" ").beat()
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "GroupId can't be empty." in (answer.error_message or "")
    answer = ComputingClient(world, "a", assignor="nope").beat()
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    a = ComputingClient(world, "a")
    a.beat()
    a.epoch = 7
    assert a.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH


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
