"""J.2 Bugs that others had, one test each, named after the number: heartbeats, reconciliation, epochs.

Those of records and replay are in `test_j2_replay.py`, those of the runtime in `test_j2_runtime.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cluster.runtime.slices import finished
from coordinator.assignors import (
    AssignmentMemberSpec,
    AssignmentSpec,
    GroupAssignment,
    RangeAssignor,
    UniformAssignor,
)
from coordinator.limits import GroupSettings
from coordinator.state.machines import ClassicState, GroupState
from coordinator.state.reconcile import AWAY_EPOCH
from coordinator.targets.target import assignment_spec
from records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    MemberState,
    ReasonKind,
    Record,
    Trigger,
    encode_record,
)
from tests.support.group_client import Client, settle
from tests.support.world import FIRST_TOPIC, World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from wire.messages.delete_groups import DeleteGroupsRequest

STATES = ("STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS", "UNKNOWN")


def given(answer: ConsumerGroupHeartbeatResponse) -> set[int]:
    assert answer.assignment is not None
    return {partition for part in answer.assignment.topic_partitions for partition in part.partitions}


def full(client: Client) -> dict[str, object]:
    """The fields of a full heartbeat of a client as it is."""
    return {
        "subscribed_topic_names": list(client.topics),
        "rebalance_timeout_ms": client.rebalance_timeout_ms,
        "owned": client.owned,
        "instance_id": client.instance_id,
    }


def in_state(world: World, state: str) -> tuple[Client, Client, Client]:
    """(the member in that state, a, b): a joined first, b second, at group epoch 2."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    who = b if state == "UNRELEASED_PARTITIONS" else a
    if state == "UNREVOKED_PARTITIONS":
        a.beat()
    if state == "UNKNOWN":
        value = world.group().members["a"].current_value
        assert value is not None
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a")
        world.shard.apply(encode_record(Record(key, replace(value, state=42))), world.next_index)
    assert world.group().members[who.member_id].current.state.name == state
    return who, a, b


@pytest.mark.parametrize("state", STATES)
def test_kafka_19233_epoch_0_is_accepted_in_each_state(world: World, state: str) -> None:
    """A known member that sends epoch 0 was fenced until its session ended, 45 s in which it had nothing."""
    who, a, b = in_state(world, state)
    epoch, assigned = world.group().epoch, world.group().members[who.member_id].current.assigned
    who.epoch = 0
    answer = who.beat()
    assert answer.error_code == 0
    target = set(world.group().target[who.member_id].topic_partitions[0].partitions)
    assert given(answer) == set(assigned.get(FIRST_TOPIC, {})) & target, (
        "what it had, minus what it must give"
    )
    entries = len(world.log)
    who.epoch = 0
    assert given(who.beat()) == given(answer), "said twice, the same answer"
    assert len(world.log) == entries
    settle([a, b])
    assert (world.group().epoch, world.group().state.value) == (epoch, "Stable")


@pytest.mark.parametrize("state", STATES[:3])
def test_kafka_19233_a_duplicate_full_heartbeat_changes_nothing(world: World, state: str) -> None:
    """The same full heartbeat twice, from a client that does not know whether the first one arrived."""
    who, a, b = in_state(world, state)
    fields, epoch = full(who), who.epoch
    first = world.heartbeat(who.member_id, epoch, **fields)
    entries = len(world.log)
    again = world.heartbeat(who.member_id, epoch, **fields)
    assert (again.error_code, again.member_epoch) == (0, first.member_epoch)
    assert given(again) == given(first), "answered in full both times"
    assert len(world.log) == entries
    who.forget()
    settle([a, b])
    assert world.group().state.value == "Stable"


@pytest.mark.parametrize("state", STATES[:3])
def test_kafka_19233_a_lost_full_heartbeat_is_sent_again(world: World, state: str) -> None:
    """The reply of a full heartbeat is lost, any number of times, in each state: nobody is fenced."""
    who, a, b = in_state(world, state)
    for _ in range(3):
        assert who.beat(lose_reply=True).error_code == 0
    settle([a, b])
    assert (a.last_error, b.last_error, world.group().epoch) == (0, 0, 2)
    assert world.group().state.value == "Stable"
    assert a.partitions(FIRST_TOPIC) + b.partitions(FIRST_TOPIC) == list(range(12))


def test_kafka_16147_a_pending_partition_given_back_keeps_its_owner(world: World) -> None:
    """A partition pending revocation that the newer target gives back to the same member lost its epoch."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    pending = set(world.group().members["a"].current.pending[FIRST_TOPIC])
    b.leave()
    assert {world.group().owners[FIRST_TOPIC][partition] for partition in pending} == {"a"}
    c = Client(world, "c")
    a.beat()
    assert a.partitions(FIRST_TOPIC) == list(range(12)), "given back without a detour"
    c.beat()
    assert set(world.group().owners[FIRST_TOPIC].values()) == {"a"}
    settle([a, c])
    assert world.group().state.value == "Stable"


def test_kafka_19431_partitions_of_unsubscribed_topics_go_at_once() -> None:
    """They stayed until the next target, which may be late: here it is not computed at all for a while."""
    world = World()
    for name in ("orders", "more"):
        world.create_topic(name, 2)
    a = Client(world, "a", topics=("orders", "more"))
    a.beat()
    world.shard.groups.pacing.failed("g", world.ctx(), "not its turn")
    a.subscribe(["more"])
    a.beat()
    group = world.group()
    assert group.state.value == "Assigning", "the target is still the old one"
    assert FIRST_TOPIC not in group.members["a"].current.assigned


def test_kafka_19449_its_own_pending_revocation_does_not_block_a_member(world: World) -> None:
    """It gave up a partition, a newer target gives it back: its own old claim counted as a foreign one."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    b.leave()
    answer = a.beat()
    assert answer.member_epoch == world.group().epoch
    assert world.group().members["a"].current.state is MemberState.STABLE
    assert len(given(answer)) == 12


def test_kafka_19974_an_acknowledgement_that_leads_to_more_keeps_the_epoch(world: World) -> None:
    """The epoch moved by one after an acknowledgement, to an epoch that no target ever had."""
    a, b, c = (Client(world, name) for name in "abc")
    a.beat()
    b.beat()
    a.beat()
    c.beat()
    before = world.group().members["a"].current
    assert (before.state, before.epoch) == (MemberState.UNREVOKED_PARTITIONS, 1)
    a.beat()
    after = world.group().members["a"].current
    assert (after.state, after.epoch) == (MemberState.UNREVOKED_PARTITIONS, 1)
    assert after.pending != before.pending


@pytest.mark.parametrize("assignor", [UniformAssignor(), RangeAssignor()], ids=lambda a: a.name)
def test_kafka_18688_equal_input_equal_answer(assignor: UniformAssignor | RangeAssignor) -> None:
    """Hash order decided who has one partition more: a second run over the same group moved partitions."""
    world = World(GroupSettings(assignors=(assignor.name,)), assignors=[assignor])
    world.create_topic("orders", 11)
    clients = [Client(world, name) for name in "dacb"]
    settle(clients, 4)
    spec = assignment_spec(world.group())
    fresh = {name: member._replace(target_partitions={}) for name, member in spec.members.items()}

    def backwards(members: Mapping[str, AssignmentMemberSpec]) -> AssignmentSpec:
        return AssignmentSpec(dict(reversed(list(members.items()))), spec.topics)

    def parts(answer: GroupAssignment) -> dict[str, dict[bytes, tuple[int, ...]]]:
        return {name: dict(part.target_partitions) for name, part in answer.members.items()}

    now = {name: dict(member.target_partitions) for name, member in spec.members.items()}
    assert parts(assignor.assign(spec)) == parts(assignor.assign(backwards(spec.members))) == now
    first = AssignmentSpec(fresh, spec.topics)
    assert parts(assignor.assign(first)) == parts(assignor.assign(backwards(fresh)))


def test_kafka_20434_another_preferred_assignor_is_a_new_epoch(world: World) -> None:
    """Describe named the new assignor while the target was still the old one's, for as long as nothing else
    happened."""
    a, b = Client(world, "a"), Client(world, "b")
    settle([a, b])
    a.assignor = "range"
    a.beat()
    assert [reason.kind for reason in world.log[-1].cause.reasons] == [ReasonKind.ASSIGNOR_CHANGED]
    settle([a, b])
    assert a.partitions(FIRST_TOPIC) == [0, 1, 2, 3, 4, 5]


def test_kafka_20434_a_minority_vote_is_not(world: World) -> None:
    """A minority vote change does not bump."""
    clients = [Client(world, name, assignor="uniform") for name in "abc"]
    settle(clients, 4)
    epoch = world.group().epoch
    clients[0].assignor = "range"
    clients[0].beat()
    assert world.group().epoch == epoch


def test_kafka_20442_an_empty_group_has_equal_epochs(world: World) -> None:
    """The next joiner was delayed because the empty group seemed to wait for a target."""
    a, b = Client(world, "a"), Client(world, "b")
    settle([a, b])
    a.leave()
    b.leave()
    group = world.group()
    assert (group.state.value, group.epoch) == ("Empty", group.assignment_epoch)
    answer = a.beat()
    assert (answer.member_epoch, len(given(answer))) == (group.epoch, 12)


def test_kafka_20442_expiry_empties_a_group_in_the_same_way(world: World) -> None:
    """Expiry empties a group as leaving does, all members at once."""
    settle([Client(world, "a"), Client(world, "b")])
    world.sleep(60_000)
    group = world.group()
    assert (group.state.value, group.epoch) == ("Empty", group.assignment_epoch)


def test_kafka_20268_a_group_made_again_begins_with_equal_epochs(world: World) -> None:
    """A group that was deleted and is made anew has nothing of the old one's epochs."""
    a = Client(world, "a")
    a.beat()
    a.leave()
    a.beat()
    a.leave()
    assert world.group().epoch == 4
    world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    assert "g" not in world.shard.projection.groups
    assert world.heartbeat("a", 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    world._epochs.clear()  # another group, by the same name
    answer = a.beat()
    group = world.group()
    assert (answer.member_epoch, group.epoch, group.assignment_epoch, len(given(answer))) == (1, 1, 1, 12)


def test_kafka_20292_a_member_is_replaced_while_its_target_waits(world: World) -> None:
    """Members leave or are replaced while a target is due: the target is for the group as it is then."""
    a, b, c = Client(world, "a", instance_id="i"), Client(world, "b"), Client(world, "c")
    a.beat()
    world.turn = 1
    b.beat()
    c.beat()
    assert world.group().state.value == "Assigning"
    a.restart("a2")
    b.leave()
    world.turn = 0
    world.work()
    assert set(world.group().target) == {"a2", "c"}
    settle([a, c])
    assert a.partitions(FIRST_TOPIC) + c.partitions(FIRST_TOPIC) != []
    assert world.group().state.value == "Stable"


@pytest.mark.parametrize("was_away", [False, True])
def test_kafka_pr_23542_a_static_member_is_not_locked_out_by_itself(world: World, was_away: bool) -> None:
    """The reply of a static join is lost, first join or return; the retry was refused for ever, fatally."""
    a, b = Client(world, "a", instance_id="i"), Client(world, "b")
    settle([a, b] if was_away else [b])
    if was_away:
        a.leave(for_good=False)
        assert world.group().members["a"].current.epoch == AWAY_EPOCH
        a.member_id = "a2"
    for _ in range(3):
        assert a.beat(lose_reply=True).error_code == 0
    assert a.beat().error_code == 0
    settle([a, b])
    assert (len(a.partitions(FIRST_TOPIC)), world.group().state.value) == (6, "Stable")


class Broken:
    """An assignor that never answers."""

    name = "broken"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        raise RuntimeError("broken")


def test_kafka_pr_22739_the_failure_of_a_later_step_keeps_the_earlier_ones() -> None:
    """An assignor that throws failed the whole heartbeat, and the member never got in."""
    world = World(GroupSettings(assignors=("broken",)), assignors=[Broken()])
    world.create_topic("orders", 4)
    answer = world.join("a")
    assert (answer.error_code, world.group().num_members) == (0, 1)
    assert world.log[-1].cause.trigger == Trigger.MEMBER_JOINED


def test_kafka_16106_counts_do_not_drift(world: World) -> None:
    """Group and member counts went negative after rolled back writes; here the projection is counted."""
    members = [Client(world, name, instance_id=name if name in "bd" else None) for name in "abcd"]
    settle(members, 2)
    members[1].restart("b2")
    members[2].leave()
    world.commit({("orders", 0): 1}, group_id="simple")
    world.failover()
    world.sleep(46_000)
    counts = finished(world.shard.counting())
    assert (counts.members, counts.offsets) == (0, 1)
    assert counts.groups == {("consumer", GroupState.EMPTY): 1, ("classic", ClassicState.EMPTY): 1}
    settle(members[:1])
    assert finished(world.shard.counting()).members == world.group().num_members == 1
