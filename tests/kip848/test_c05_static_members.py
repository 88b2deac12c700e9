"""C.5 Static members: a place that outlives the process which has it."""

from __future__ import annotations

import pytest

from coordinator.limits import GroupSettings
from records import MemberState, ReasonKind, Trigger
from tests.support.group_client import Client, settle
from tests.support.world import FIRST_TOPIC, World
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

AWAY = -2


def static(world: World, name: str, instance_id: str = "i", **fields: object) -> Client:
    return Client(world, name, instance_id=instance_id, **fields)  # type: ignore[arg-type]


def pair(world: World) -> tuple[Client, Client]:
    """Static a (instance i) and static b (instance j), settled with 6 partitions each at epoch 2."""
    a, b = static(world, "a"), static(world, "b", "j")
    a.beat()
    b.beat()
    settle([a, b])
    assert (a.epoch, b.epoch, world.group().state.value) == (2, 2, "Stable")
    return a, b


def given(answer: ConsumerGroupHeartbeatResponse) -> list[int]:
    assert answer.assignment is not None
    return [partition for part in answer.assignment.topic_partitions for partition in part.partitions]


def refused(world: World, answer: ConsumerGroupHeartbeatResponse, code: ErrorCode, entries: int) -> str:
    """Check that a request was refused with a code and wrote nothing; return the message."""
    assert answer.error_code == code, answer.error_message
    assert len(world.log) == entries
    return answer.error_message or ""


def test_an_unknown_instance_joins_as_a_dynamic_member_does(world: World) -> None:
    """Join, instance unknown: as dynamic."""
    assert static(world, "a").beat().member_epoch == 1
    assert world.log[0].types == [5, 4, 3, 7, 6, 8]
    assert world.group().static_members == {"i": "a"}
    metadata = world.group().members["a"].metadata
    assert metadata is not None
    assert metadata.instance_id == "i"


def test_away_is_one_record_and_no_bump(world: World) -> None:
    """−2: write `8` with −2; partitions stay owned. Group state shows Reconciling meanwhile."""
    a, _b = pair(world)
    answer = a.leave(for_good=False)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", AWAY)
    assert (answer.heartbeat_interval_ms, answer.assignment) == (0, None)
    assert world.log[-1].types == [8]
    assert world.log[-1].cause.trigger == Trigger.MEMBER_AWAY
    group = world.group()
    current = group.members["a"].current
    assert (current.epoch, current.state) == (AWAY, MemberState.STABLE)
    assert set(group.owners[FIRST_TOPIC].values()) == {"a", "b"}
    assert (group.epoch, group.state.value) == (2, "Reconciling")


def test_assignment_epochs_are_reset_at_minus_2(world: World) -> None:
    """≥4.3: assignment epochs reset to 0 (KIP-1251)."""
    a, _b = pair(world)
    before = world.group().members["a"].current.assigned[FIRST_TOPIC]
    assert set(before.values()) == {1}
    a.leave(for_good=False)
    after = world.group().members["a"].current.assigned[FIRST_TOPIC]
    assert after == dict.fromkeys(before, 0)


def test_away_twice_is_as_good_as_once(world: World) -> None:
    """The reply of −2 was lost: the same answer, no second record."""
    a, _b = pair(world)
    first = a.leave(for_good=False)
    entries = len(world.log)
    assert a.leave(for_good=False) == first
    assert len(world.log) == entries


def test_the_pending_revocation_is_released_at_minus_2(world: World) -> None:
    """−2: pending revocation is released: who waits for it has it with the next heartbeat."""
    a, b = static(world, "a", rebalance_timeout_ms=5_000), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    assert world.group().members["a"].current.state is MemberState.UNREVOKED_PARTITIONS
    assert b.beat().assignment is None
    a.leave(for_good=False)
    current = world.group().members["a"].current
    assert (current.state, current.pending) == (MemberState.UNREVOKED_PARTITIONS, {}), "any | −2 | kept state"
    assert len(given(b.beat())) == 6
    world.sleep(6_000)
    assert "a" in world.group().members
    world.failover()
    world.sleep(6_000)
    assert "a" in world.group().members, "it has nothing to give up, so no rebalance timeout runs"


def test_the_return_under_a_new_id_keeps_partitions_and_epoch(world: World) -> None:
    """Leave −2 at epoch e, rejoin → epoch e and the same partitions; the group epoch is not bumped."""
    a, b = pair(world)
    had = a.partitions(FIRST_TOPIC)
    before = world.group().target["a"]
    answer = a.restart("a2")
    assert (answer.error_code, answer.member_epoch, given(answer)) == (0, 2, had)
    group = world.group()
    assert (group.epoch, group.assignment_epoch, group.state.value) == (2, 2, "Stable")
    assert set(group.members) == {"a2", "b"}
    assert (group.target["a2"], group.static_members) == (before, {"i": "a2", "j": "b"})
    assert b.beat().assignment is None, "nobody else notices"


def test_the_records_of_a_replacement(world: World) -> None:
    """~8(o) ~7(o) ~5(o), then 5(n), 7(n), 8(n) with member epoch 0 and previous epoch 0; then its own 8."""
    a, _b = pair(world)
    a.restart("a2")
    entry = world.log[-1]
    assert entry.types == [-8, -7, -5, 5, 7, 8, 8]
    assert entry.cause.trigger == Trigger.MEMBER_REPLACED
    assert (entry.cause.member_id, entry.cause.detail, entry.cause.reasons) == ("a2", "a", ())
    current = world.group().members["a2"].current
    assert (current.epoch, current.previous_epoch) == (2, 0)


def test_other_details_are_updated_without_a_bump(world: World) -> None:
    """[`5(m)` if any member field differs]: rack, timeout, client; none of them bumps."""
    a, _b = pair(world)
    a.leave(for_good=False)
    world.join("a2", instance_id="i", rebalance_timeout_ms=5, rack_id="r")
    assert world.log[-1].types == [-8, -7, -5, 5, 7, 8, 5, 8]
    metadata = world.group().members["a2"].metadata
    assert metadata is not None
    assert (metadata.rebalance_timeout_ms, metadata.rack_id, metadata.instance_id) == (5, "r", "i")
    assert world.group().epoch == 2


def test_a_replacement_with_another_subscription_bumps(world: World) -> None:
    """Group epoch not bumped unless names/regex differ."""
    more = world.create_topic("more", 2)
    a, b = pair(world)
    a.topics = ("orders", "more")
    answer = a.restart("a2")
    entry = world.log[-1]
    assert list(dict.fromkeys(entry.types[7:])) == [4, 3, 7, 6, 8]
    assert entry.types[:7] == [-8, -7, -5, 5, 7, 8, 5]
    assert entry.cause.trigger == Trigger.MEMBER_REPLACED
    assert [reason.kind for reason in entry.cause.reasons] == [ReasonKind.SUBSCRIPTION_CHANGED]
    assert (answer.member_epoch, world.group().epoch) == (3, 3)
    settle([a, b])
    assert a.partitions(more) == [0, 1]
    assert world.group().state.value == "Stable"


def test_the_return_finds_a_target_that_moved_on(world: World) -> None:
    """It then reconciles to the current target epoch: what went to others meanwhile is given up at once."""
    a, b = pair(world)
    a.leave(for_good=False)
    c = Client(world, "c")
    c.beat()
    settle([b, c])
    assert world.group().state.value == "Reconciling"
    a.member_id = "a2"
    answer = a.beat()
    assert (answer.member_epoch, len(given(answer))) == (3, 4)
    settle([a, b, c])
    assert world.group().state.value == "Stable"
    assert [len(one.partitions(FIRST_TOPIC)) for one in (a, b, c)] == [4, 4, 4]


@pytest.mark.parametrize("state", ["STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS"])
def test_leave_and_return_in_every_state(world: World, state: str) -> None:
    """C.8: any | −2 | kept state | −2; the return settles whatever the state was."""
    a, b = static(world, "a"), static(world, "b", "j")
    a.beat()
    b.beat()
    if state == "UNREVOKED_PARTITIONS":
        a.beat()
    who = b if state == "UNRELEASED_PARTITIONS" else a
    if state != "STABLE":
        assert world.group().members[who.member_id].current.state.name == state
    epoch = world.group().epoch
    answer = who.restart("again")
    assert answer.error_code == 0
    settle([a, b])
    assert (world.group().epoch, world.group().state.value) == (epoch, "Stable")
    assert [len(one.partitions(FIRST_TOPIC)) for one in (a, b)] == [6, 6]


def test_the_return_under_the_same_id(world: World) -> None:
    """A process that kept its member id comes back in place: no tombstones, the same partitions."""
    a, _b = pair(world)
    had = a.partitions(FIRST_TOPIC)
    answer = a.restart("a")
    assert (answer.member_epoch, given(answer)) == (2, had)
    assert world.log[-1].types == [8, 8]
    assert world.log[-1].cause.trigger == Trigger.MEMBER_REJOINED
    current = world.group().members["a"].current
    assert (current.epoch, current.previous_epoch, current.state) == (2, 0, MemberState.STABLE)


def test_unreleased_instance_id(world: World) -> None:
    """UNRELEASED_INSTANCE_ID 111: epoch 0 with an instance id whose member has not left."""
    a, _b = pair(world)
    message = refused(
        world, world.join("x", instance_id="i"), ErrorCode.UNRELEASED_INSTANCE_ID, len(world.log)
    )
    assert "i is in use by member a" in message
    assert a.beat().error_code == 0


def test_fenced_instance_id(world: World) -> None:
    """FENCED_INSTANCE_ID 82: epoch ≠ 0, the instance id belongs to another member id. Leaves too."""
    a, _b = pair(world)
    a.restart("a2")
    entries = len(world.log)
    for epoch in (2, 1, -1, AWAY):
        answer = world.heartbeat("a", epoch, instance_id="i")
        message = refused(world, answer, ErrorCode.FENCED_INSTANCE_ID, entries)
        assert "belongs to member a2" in message


def test_unknown_instance_ids(world: World) -> None:
    """UNKNOWN_MEMBER_ID 25: InstanceId not known (heartbeat or leave), even from a known member."""
    pair(world)
    Client(world, "dynamic").beat()
    entries = len(world.log)
    for member_id in ("a", "nobody", "dynamic"):
        for epoch in (2, -1, AWAY):
            answer = world.heartbeat(member_id, epoch, instance_id="other")
            refused(world, answer, ErrorCode.UNKNOWN_MEMBER_ID, entries)


def test_the_old_id_without_its_instance_id_is_unknown(world: World) -> None:
    """After the replacement the old member id is nobody's."""
    a, _b = pair(world)
    a.restart("a2")
    assert world.heartbeat("a", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_away_member_cannot_heartbeat(world: World) -> None:
    """e > c → 110, where c is −2: who left has to join."""
    a, _b = pair(world)
    a.leave(for_good=False)
    entries = len(world.log)
    refused(world, world.heartbeat("a", 2, instance_id="i"), ErrorCode.FENCED_MEMBER_EPOCH, entries)
    refused(world, world.heartbeat("a", 2), ErrorCode.FENCED_MEMBER_EPOCH, entries)


def test_a_changed_instance_id_is_refused(world: World) -> None:
    """A changed instance id for a known member id → INVALID_REQUEST."""
    pair(world)
    Client(world, "dynamic").beat()
    entries = len(world.log)
    for member_id, has in (("a", "has i"), ("dynamic", "has none")):
        answer = world.join(member_id, instance_id="new")
        assert has in refused(world, answer, ErrorCode.INVALID_REQUEST, entries)
    refused(world, world.join("a", instance_id="j"), ErrorCode.INVALID_REQUEST, entries)


def test_an_instance_id_left_out_stays(world: World) -> None:
    """Null = unchanged, as every field of a member."""
    pair(world)
    assert world.join("a").error_code == 0
    assert world.group().static_members["i"] == "a"


def test_a_lost_join_reply_does_not_lock_the_member_out(world: World) -> None:
    """PR 23542: same member id + same instance id → treat in place, where Kafka answers 111 for ever."""
    a = static(world, "a")
    a.beat(lose_reply=True)
    entries = len(world.log)
    answer = a.beat()
    assert (answer.error_code, answer.member_epoch, len(given(answer))) == (0, 1, 12)
    assert len(world.log) == entries


def test_a_lost_reply_of_the_return_does_not_lock_the_member_out(world: World) -> None:
    """PR 23542, after a replacement: the retried replacement is admitted in place."""
    a, _b = pair(world)
    had = a.partitions(FIRST_TOPIC)
    a.leave(for_good=False)
    a.member_id = "a2"
    a.beat(lose_reply=True)
    a.epoch = 0
    entries = len(world.log)
    answer = a.beat()
    assert (answer.error_code, answer.member_epoch, given(answer)) == (0, 2, had)
    assert len(world.log) == entries


def test_leaving_for_good(world: World) -> None:
    """−1 with instance id: full leave, epoch bump."""
    a, b = pair(world)
    assert a.leave().error_code == 0
    assert world.log[-1].types[:3] == [-8, -7, -5]
    assert (world.group().epoch, world.group().static_members) == (3, {"j": "b"})
    b.beat()
    assert len(b.partitions(FIRST_TOPIC)) == 12


def test_leaving_for_good_while_away(world: World) -> None:
    """−1/−2 leave requests are not epoch-checked."""
    a, _b = pair(world)
    a.leave(for_good=False)
    assert a.leave().error_code == 0
    assert set(world.group().members) == {"b"}


def test_not_back_within_the_session(world: World) -> None:
    """The session timer keeps running: not back within the session timeout → fenced as usual."""
    a, b = pair(world)
    world.sleep(20_000)
    b.beat()
    a.leave(for_good=False)
    world.sleep(24_000)
    b.beat()
    assert "a" in world.group().members, "−2 does not end the session at once …"
    (entry,) = world.sleep(2_000)
    assert entry.cause.trigger == Trigger.SESSION_EXPIRED, "… nor does it start it anew"
    assert set(world.group().members) == {"b"}
    assert world.group().static_members == {"j": "b"}
    a.member_id = "a2"
    assert a.beat().member_epoch == 4


def test_the_old_members_timers_end_with_it(world: World) -> None:
    """Old member's timers fire as no-ops after a replacement, and the new one has a session of its own."""
    a, b = static(world, "a"), static(world, "b", "j")
    a.beat()
    b.beat()
    a.beat()
    assert world.shard.groups.rebalances.get(("g", "a")) is not None
    world.sleep(30_000)
    b.beat()
    a.leave(for_good=False)
    assert world.shard.groups.rebalances.get(("g", "a")) is None
    a.member_id = "a2"
    a.beat()
    assert world.shard.groups.sessions.get(("g", "a")) is None
    settle([a, b])
    world.sleep(44_000)
    assert set(world.group().members) == {"a2", "b"}
    a.beat()
    world.sleep(2_000)
    assert set(world.group().members) == {"a2"}


def test_an_expiry_that_was_due_already_does_not_hit_the_successor(world: World) -> None:
    """The session has run out unchecked when the member is replaced; the old timer expires no member."""
    a, b = pair(world)
    a.leave(for_good=False)
    world.now_ms += 45_001
    world.shard.groups.collect_expired(world.now_ms)
    a.member_id = "a2"
    assert a.beat().error_code == 0
    b.beat()
    world.work()
    assert set(world.group().members) == {"a2", "b"}


def test_a_full_group_lets_a_static_member_back_in() -> None:
    """GROUP_MAX_SIZE_REACHED 81: …and neither the member id nor its instance id is known."""
    world = World(GroupSettings(max_size=2))
    world.create_topic("orders", 12)
    a, _b = pair(world)
    entries = len(world.log)
    refused(world, world.join("c", instance_id="k"), ErrorCode.GROUP_MAX_SIZE_REACHED, entries)
    refused(world, world.join("c"), ErrorCode.GROUP_MAX_SIZE_REACHED, entries)
    refused(world, world.join("c", instance_id="i"), ErrorCode.UNRELEASED_INSTANCE_ID, entries)
    assert a.restart("a2").error_code == 0


def test_a_failover_while_away(world: World) -> None:
    """The new leader knows that the member left temporarily, and gives it a full session."""
    a, b = pair(world)
    had = a.partitions(FIRST_TOPIC)
    a.leave(for_good=False)
    world.failover()
    world.work()
    world.sleep(40_000)
    b.beat()
    a.member_id = "a2"
    answer = a.beat()
    assert (answer.member_epoch, given(answer)) == (2, had)


def test_commits_while_away_and_after(world: World) -> None:
    """The old process commits no more; its replacement commits with its epoch; the old id is unknown."""
    a, _b = pair(world)
    partition = a.partitions(FIRST_TOPIC)[0]
    offsets = {("orders", partition): 7}
    assert world.commit(offsets, member_id="a", epoch=2)["orders", partition] == 0
    a.leave(for_good=False)
    stale = world.commit(offsets, member_id="a", epoch=2)
    assert stale["orders", partition] == ErrorCode.STALE_MEMBER_EPOCH
    a.member_id = "a2"
    a.beat()
    unknown = world.commit(offsets, member_id="a", epoch=2)
    assert unknown["orders", partition] == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit(offsets, member_id="a2", epoch=2)["orders", partition] == 0


def test_the_last_member_away_leaves_the_group_reconciling(world: World) -> None:
    """A static member that is away is described with epoch −2 and the group as Reconciling (measured)."""
    a = static(world, "a")
    a.beat()
    a.leave(for_good=False)
    assert world.group().state.value == "Reconciling"
    assert a.restart("a2").member_epoch == 1
    assert world.group().state.value == "Stable"


def test_a_target_that_was_deferred_moves_with_the_place(world: World) -> None:
    """A replacement while the group waits for its target: the new member is in it."""
    a, b = static(world, "a"), Client(world, "b")
    a.beat()
    world.turn = 1
    b.beat()
    c = Client(world, "c")
    c.beat()  # the second target of one turn: deferred
    assert world.group().state.value == "Assigning"
    a.restart("a2")
    world.turn = 0
    world.work()
    settle([a, b, c])
    assert [len(one.partitions(FIRST_TOPIC)) for one in (a, b, c)] == [4, 4, 4]
