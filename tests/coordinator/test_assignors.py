"""Properties P1 to P7 of the assignors, searched for counterexamples."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.assignors import (
    AssignmentMemberSpec,
    AssignmentSpec,
    AssignmentTopicMetadata,
    PartitionAssignor,
    PartitionAssignorError,
    RangeAssignor,
    UniformAssignor,
)
from coordinator.assignors.spi import Partitions

IDS = [bytes(15) + bytes([number]) for number in range(1, 7)]
UNIFORM, RANGE = UniformAssignor(), RangeAssignor()
Targets = dict[str, Partitions]


def spec_of(
    topics: dict[bytes, int], subscriptions: dict[str, frozenset[bytes]], targets: Targets | None = None
) -> AssignmentSpec:
    targets = targets or {}
    return AssignmentSpec(
        {
            member_id: AssignmentMemberSpec(subscribed, targets.get(member_id, {}))
            for member_id, subscribed in subscriptions.items()
        },
        {topic_id: AssignmentTopicMetadata(topic_id.hex(), count) for topic_id, count in topics.items()},
    )


topics_strategy = st.dictionaries(st.sampled_from(IDS), st.integers(1, 17), min_size=1)
member_ids = st.sets(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=9)


@st.composite
def homogeneous(draw: st.DrawFn) -> AssignmentSpec:
    topics = draw(topics_strategy)
    subscribed = frozenset(topics)
    members = draw(member_ids)
    return spec_of(topics, dict.fromkeys(members, subscribed), draw(old_targets(topics, sorted(members))))


@st.composite
def heterogeneous(draw: st.DrawFn) -> AssignmentSpec:
    topics = draw(topics_strategy)
    members = sorted(draw(member_ids))
    subscriptions = {
        member_id: frozenset(draw(st.sets(st.sampled_from(sorted(topics))))) for member_id in members
    }
    return spec_of(topics, subscriptions, draw(old_targets(topics, members)))


@st.composite
def old_targets(draw: st.DrawFn, topics: dict[bytes, int], members: list[str]) -> Targets:
    """Any earlier target without double owners; it may name members and partitions that no longer exist."""
    targets: dict[str, dict[bytes, list[int]]] = {}
    for topic_id in sorted(topics):
        for partition in range(topics[topic_id] + 2):
            owner = draw(st.sampled_from([None, "gone", *members]))
            if owner is not None:
                targets.setdefault(owner, {}).setdefault(topic_id, []).append(partition)
    return {m: {t: tuple(numbers) for t, numbers in part.items()} for m, part in targets.items()}


def with_targets(spec: AssignmentSpec, targets: Targets, order: int = 0) -> AssignmentSpec:
    members = list(spec.members)
    random.Random(order).shuffle(members)
    return AssignmentSpec(
        {m: AssignmentMemberSpec(spec.members[m].subscribed_topics, targets.get(m, {})) for m in members},
        spec.topics,
    )


def assigned(assignor: PartitionAssignor, spec: AssignmentSpec) -> Targets:
    """Return the assignor's answer without the fields that only client-side assignors fill in."""
    return {member_id: part.target_partitions for member_id, part in assignor.assign(spec).members.items()}


def sizes(targets: Targets) -> dict[str, int]:
    return {member_id: sum(map(len, part.values())) for member_id, part in targets.items()}


def check_complete(spec: AssignmentSpec, targets: Targets) -> None:
    """P1: each partition of a subscribed topic has one member, a subscribed one; parts are well formed."""
    given_to: dict[tuple[bytes, int], str] = {}
    for member_id, part in targets.items():
        for topic_id, partitions in part.items():
            assert topic_id in spec.members[member_id].subscribed_topics
            assert partitions
            assert list(partitions) == sorted(set(partitions))
            for partition in partitions:
                assert (topic_id, partition) not in given_to
                given_to[topic_id, partition] = member_id
    subscribed = frozenset().union(*(member.subscribed_topics for member in spec.members.values()))
    wanted = {(t, p) for t in subscribed for p in range(spec.topics[t].num_partitions)}
    assert given_to.keys() == wanted


def grown(
    topics: Mapping[bytes, AssignmentTopicMetadata], growth: list[int]
) -> dict[bytes, AssignmentTopicMetadata]:
    """Return the topics with that many more partitions."""
    return {
        topic_id: topic._replace(num_partitions=topic.num_partitions + more)
        for (topic_id, topic), more in zip(topics.items(), growth, strict=False)  # of six at most
    }


@given(homogeneous() | heterogeneous())
def test_p1_every_partition_has_exactly_one_subscribed_owner(spec: AssignmentSpec) -> None:
    for assignor in (UNIFORM, RANGE):
        targets = assigned(assignor, spec)
        assert targets.keys() == spec.members.keys()
        check_complete(spec, targets)


@given(homogeneous())
def test_p2_equal_subscriptions_differ_by_one_at_most(spec: AssignmentSpec) -> None:
    counts = sizes(assigned(UNIFORM, spec)).values()
    assert max(counts) - min(counts) <= 1


@given(heterogeneous())
def test_p3_no_single_move_would_improve_the_balance(spec: AssignmentSpec) -> None:
    targets = assigned(UNIFORM, spec)
    counts = sizes(targets)
    for member_id, part in targets.items():
        for other_id, other in spec.members.items():
            for topic_id in part.keys() & other.subscribed_topics:
                assert counts[member_id] - counts[other_id] < 2, (member_id, other_id, topic_id)


@given(homogeneous() | heterogeneous(), st.integers(0, 1_000))
def test_p4_the_same_input_in_any_order_moves_nothing(spec: AssignmentSpec, order: int) -> None:
    """KAFKA-18688: the members with one partition more were chosen by hash order."""
    for assignor in (UNIFORM, RANGE):
        once = assigned(assignor, spec)
        assert assigned(assignor, with_targets(spec, once, order)) == once
        shuffled = with_targets(spec, {m: s.target_partitions for m, s in spec.members.items()}, order)
        assert assigned(assignor, shuffled) == once


def test_p4_unchanged_parts_are_the_same_objects() -> None:
    spec = spec_of({IDS[0]: 7}, dict.fromkeys("abc", frozenset(IDS[:1])))
    once = assigned(UNIFORM, spec)
    again = assigned(UNIFORM, with_targets(spec, once))
    assert all(again[member_id] is once[member_id] for member_id in "abc")


@given(
    homogeneous(),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from("0z"),
    st.lists(st.integers(0, 7), min_size=6, max_size=6),
)
def test_p5_no_more_partitions_move_than_must(
    spec: AssignmentSpec, leaving: int, joining: int, first: str, growth: list[int]
) -> None:
    """Members come and go, and topics grow: members that stay lose only partitions above their share."""
    targets = assigned(UNIFORM, spec)
    stay = sorted(targets)[leaving:] or sorted(targets)[:1]
    subscribed = next(iter(spec.members.values())).subscribed_topics
    after_ids = [*stay, *(f"{first}-{number}" for number in range(joining))]
    changed = AssignmentSpec(
        {m: AssignmentMemberSpec(subscribed, targets.get(m, {})) for m in after_ids},
        grown(spec.topics, growth),
    )
    after = assigned(UNIFORM, changed)
    moved = sum(
        1
        for member_id in stay
        for topic_id, partitions in targets[member_id].items()
        for partition in partitions
        if partition not in after[member_id].get(topic_id, ())
    )
    total = sum(topic.num_partitions for topic in changed.topics.values())
    quota, extras = divmod(total, len(after_ids))
    held = sorted((sum(map(len, targets[m].values())) for m in stay), reverse=True)
    limits = [quota + 1] * min(extras, len(held)) + [quota] * max(0, len(held) - extras)
    assert moved == sum(max(0, count - limit) for count, limit in zip(held, limits, strict=True))


@given(
    heterogeneous(),
    st.sets(st.sampled_from(IDS)),
    st.integers(0, 8),
    st.lists(st.sampled_from([0, 0, 0, 3]), min_size=6, max_size=6),
)
def test_p5_members_that_share_no_topic_with_a_change_keep_their_partitions(
    spec: AssignmentSpec, joins: set[bytes], leaving: int, growth: list[int]
) -> None:
    """Members subscribe differently, and a change moves partitions of linked topics only. A topic is linked
    to the change if one member subscribes to both, or through a chain of such topics."""
    targets = assigned(UNIFORM, spec)
    gone = sorted(targets)[leaving : leaving + 1]
    members = {
        member_id: member._replace(target_partitions=targets[member_id])
        for member_id, member in spec.members.items()
        if member_id not in gone
    }
    comer = frozenset(joins & spec.topics.keys())
    topics = grown(spec.topics, growth)
    after = assigned(UNIFORM, AssignmentSpec({**members, "comer": AssignmentMemberSpec(comer)}, topics))
    touched = {topic_id for topic_id in topics if topics[topic_id] != spec.topics[topic_id]} | comer
    touched = touched.union(*(spec.members[member_id].subscribed_topics for member_id in gone))
    while more := {
        topic_id
        for member in members.values()
        if member.subscribed_topics & touched
        for topic_id in member.subscribed_topics - touched
    }:
        touched |= more
    for member_id, member in members.items():
        if not member.subscribed_topics & touched:
            assert after[member_id] == targets[member_id]


@given(st.integers(1, 20), st.integers(1, 8), st.integers(1, 3))
def test_p6_range_is_contiguous_and_co_partitioned(partitions: int, members: int, topics: int) -> None:
    ids = IDS[:topics]
    spec = spec_of(dict.fromkeys(ids, partitions), {f"m{n}": frozenset(ids) for n in range(members)})
    for part in assigned(RANGE, spec).values():
        assert len(set(part.values())) <= 1, "equal counts must give equal ranges"
        for numbers in part.values():
            assert list(numbers) == list(range(numbers[0], numbers[-1] + 1))


def test_p6_range_puts_static_members_first_by_instance_id() -> None:
    subscribed = frozenset(IDS[:1])
    spec = AssignmentSpec(
        {
            "a": AssignmentMemberSpec(subscribed, {}),
            "y": AssignmentMemberSpec(subscribed, {}, instance_id="2"),
            "z": AssignmentMemberSpec(subscribed, {}, instance_id="1"),
        },
        {IDS[0]: AssignmentTopicMetadata("t", 3)},
    )
    assert assigned(RANGE, spec) == {"z": {IDS[0]: (0,)}, "y": {IDS[0]: (1,)}, "a": {IDS[0]: (2,)}}


def test_p6_a_member_without_topics_gets_an_empty_part() -> None:
    spec = spec_of({IDS[0]: 3}, {"a": frozenset(IDS[:1]), "b": frozenset()})
    assert assigned(RANGE, spec)["b"] == {}


@pytest.mark.parametrize("assignor", [UNIFORM, RANGE], ids=lambda assignor: assignor.name)
def test_p7_an_unknown_topic_is_an_error(assignor: UniformAssignor | RangeAssignor) -> None:
    with pytest.raises(PartitionAssignorError, match="does not exist"):
        assignor.assign(spec_of({IDS[0]: 3}, {"a": frozenset(IDS[:2])}))


def test_no_members_no_assignment() -> None:
    assert UNIFORM.assign(spec_of({IDS[0]: 3}, {})).members == {}


@settings(max_examples=20, deadline=None)
@given(st.integers(20, 60), st.randoms(use_true_random=False))
def test_the_last_phase_ends_well_before_its_bound(members: int, rng: random.Random) -> None:
    """All partitions start with one member. The search must end before it reaches `ROUNDS_MAX`."""
    ids = IDS[:4]
    subscriptions = {f"m{n}": frozenset(rng.sample(ids, rng.randint(1, 4))) for n in range(members)}
    subscriptions["m0"] = frozenset(ids)
    spec = spec_of(dict.fromkeys(ids, 40), subscriptions, {"m0": {i: tuple(range(40)) for i in ids}})
    targets = assigned(UNIFORM, spec)
    check_complete(spec, targets)
    assert assigned(UNIFORM, with_targets(spec, targets)) == targets
