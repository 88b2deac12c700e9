"""Installing a target that was computed for the group as it was, into the group of now."""

from __future__ import annotations

import pytest

from coordinator.assignors import (
    AssignmentMemberSpec,
    AssignmentSpec,
    AssignmentTopicMetadata,
    MemberAssignment,
    PartitionAssignorError,
    UniformAssignor,
)
from coordinator.limits import Limits
from coordinator.targets.target import assignment_spec, install_records
from coordinator.targets.targeting import cost_us
from records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    RawRecord,
    Record,
    decode_record,
    encode_record,
)
from tests.support.world import FIRST_TOPIC, World

Parts = dict[str, tuple[int, ...]]


@pytest.fixture
def paused() -> World:
    """Members a and b on `orders` with eight partitions; the target of b's join has to wait for its turn."""
    world = World()
    world.create_topic("orders", 8)
    world.turn = 1
    world.join("a")
    world.join("b")
    assert (world.group().epoch, world.group().assignment_epoch) == (2, 1)
    return world


def install(world: World, spec: AssignmentSpec, parts: Parts, epoch: int = 2) -> list[RawRecord]:
    answer = {member_id: MemberAssignment({FIRST_TOPIC: numbers}) for member_id, numbers in parts.items()}
    return install_records(world.group(), spec, answer, epoch, world.ctx(), world.limits, "late")


def written(raws: list[RawRecord]) -> dict[str, tuple[int, ...]]:
    """Return records 7 by member; the last record must be a 6."""
    assert [raw.type for raw in raws] == [7] * (len(raws) - 1) + [6]
    return {
        record.key.member_id: record.value.topic_partitions[0].partitions
        if record.value.topic_partitions
        else ()
        for record in map(decode_record, raws[:-1])
    }


def test_who_left_meanwhile_gets_nothing(paused: World) -> None:
    """Parts of members that left since are dropped; record 6 has the epoch that the spec was of."""
    spec = assignment_spec(paused.group())
    paused.heartbeat("b", -1)
    assert paused.group().epoch == 3
    raws = install(paused, spec, {"a": (0, 1, 2, 3), "b": (4, 5, 6, 7)})
    assert written(raws) == {"a": (0, 1, 2, 3)}
    assert decode_record(raws[-1]).value.assignment_epoch == 2


def test_who_joined_meanwhile_waits(paused: World) -> None:
    spec = assignment_spec(paused.group())
    paused.join("c")
    assert written(install(paused, spec, {"a": (0,), "b": (1, 2)})) == {"a": (0,), "b": (1, 2)}


def test_a_replaced_static_member_passes_its_part_on(paused: World) -> None:
    """KAFKA-20292: leavers are dropped, replaced static members are renamed."""
    member = ConsumerGroupMemberMetadataValue(
        client_id="", client_host="", instance_id="i", subscribed_topic_names=("orders",)
    )

    def put(member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        key = ConsumerGroupMemberMetadataKey(group_id="g", member_id=member_id)
        paused.shard.apply(encode_record(Record(key, value)), paused.next_index)

    put("old", member)
    spec = assignment_spec(paused.group())
    put("old", None)
    put("new", member)
    assert written(install(paused, spec, {"a": (0,), "old": (5,)})) == {"a": (0,), "new": (5,)}


def test_a_member_that_the_spec_does_not_know_keeps_no_part_of_others(paused: World) -> None:
    """Otherwise a partition could be in two members' targets."""
    spec = assignment_spec(paused.group())
    spec = AssignmentSpec({"b": spec.members["b"]}, spec.topics)
    assert written(install(paused, spec, {"b": (0, 1)})) == {"a": (), "b": (0, 1)}


def test_an_answer_for_an_epoch_that_has_a_target_changes_nothing(paused: World) -> None:
    spec = assignment_spec(paused.group())
    assert install(paused, spec, {"b": (0,)}, epoch=1) == []


def test_the_answer_is_judged_by_the_spec_that_it_answers(paused: World) -> None:
    """The topic grew meanwhile: the answer may not use partition 8, which the spec did not have."""
    spec = assignment_spec(paused.group())
    paused.grow_topic("orders", 9)
    paused.turn = 0
    paused.work()
    with pytest.raises(PartitionAssignorError, match="late gave a partition that orders does not have"):
        install(paused, spec, {"a": (8,)}, epoch=99)


def test_what_a_client_side_assignor_says_beside_the_partitions_is_kept(paused: World) -> None:
    """Record 7 holds error, metadata version and bytes; a part that differs in them alone is another one."""
    spec = assignment_spec(paused.group())
    answer = dict(UniformAssignor().assign(spec).members)
    answer["a"] = answer["a"]._replace(error=3, metadata_version=2, metadata_bytes=b"hello")
    for epoch, changed in ((2, {"a", "b"}), (3, set())):
        raws = install_records(paused.group(), spec, answer, epoch, paused.ctx(), paused.limits, "client")
        values = {record.key.member_id: record.value for record in map(decode_record, raws[:-1])}
        assert values.keys() == changed
        if "a" in values:
            value = values["a"]
            assert (value.error, value.metadata_version, value.metadata_bytes) == (3, 2, b"hello")
        paused.shard.apply_all(raws, paused.next_index)
    assert written(install_records(paused.group(), spec, {}, 4, paused.ctx(), paused.limits, "client")) == {
        "a": (),
        "b": (),
    }


@pytest.mark.parametrize(
    ("members", "topics", "partitions", "is_inline"),
    [
        (1, 1, 37_000, True),
        (1, 1, 40_000, False),
        (1_000, 10, 1_000, True),
        (1_600, 1, 1, False),
        (1, 5_000, 1, False),
    ],
)
def test_what_holds_the_loop_for_too_long_is_a_childs_work(
    members: int, topics: int, partitions: int, is_inline: bool
) -> None:
    """Members, topics and partitions of each topic count: docs/assignors.md says how much."""
    ids = [number.to_bytes(16, "big") for number in range(topics)]
    spec = AssignmentSpec(
        {f"m{number}": AssignmentMemberSpec(frozenset(ids)) for number in range(members)},
        {topic_id: AssignmentTopicMetadata(topic_id.hex(), partitions) for topic_id in ids},
    )
    assert (cost_us(spec) <= Limits().assign_inline_cost_max) is is_inline
