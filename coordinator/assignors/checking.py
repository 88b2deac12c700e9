"""Properties of assignors, as a check that their authors can run: `check_assignor(MyAssignor())`.

Groups of all shapes are generated from a seed: with equal and different subscriptions, static and dynamic
members, and no old target or an arbitrary one, which may name members, topics and partitions that no longer
exist. The same seed generates the same groups. The properties are those of the reference tests of assignors:

P1  each partition of each subscribed topic is assigned to exactly one member that subscribes to it
P2  sizes differ by at most one, if all subscribe to the same topics
P3  no partition could move to a member that subscribes to its topic and has at least two fewer
P4  the order of members does not matter, and with its own answer as the target it changes nothing
P5  when members join or leave, or topics grow, only as many partitions move as necessary, if all subscribe
    to the same topics
P6  a topic's partitions are split into ranges, and topics of equal size are split alike
P7  a subscription to a topic that the spec does not contain is an error

Nothing here is used by the node; it needs neither a cluster nor a test framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from coordinator.assignors.assigning import normal
from coordinator.assignors.spi import (
    AssignmentMemberSpec,
    AssignmentSpec,
    AssignmentTopicMetadata,
    PartitionAssignor,
    PartitionAssignorError,
    Partitions,
    is_homogeneous,
)

ALWAYS = ("P1", "P4", "P7")
"""Properties that every assignor must have; the others depend on its purpose."""

Targets = dict[str, Partitions]


class PropertyViolated(AssertionError):
    """The assignor lacks a property. The message has the property, the finding and the input."""


def check_assignor(
    assignor: PartitionAssignor, properties: Iterable[str] = ALWAYS, *, rounds: int = 200, seed: int = 1
) -> None:
    """Call `assignor` for `rounds` groups.

    Raises `PropertyViolated` for the first violation, and passes on any exception of the assignor."""
    numbers = numbers_from(seed)
    for round_ in range(rounds):
        spec = some_spec(numbers, is_mixed=round_ % 2 == 1)
        for name in properties:
            found = CHECKS[name](assignor, spec, numbers)
            if found is not None:
                raise PropertyViolated(f"{assignor.name}, {name}: {found}, for {spec}")


def assigned(assignor: PartitionAssignor, spec: AssignmentSpec) -> Targets:
    """The answer in its normal form, by member."""
    return {
        member_id: part.target_partitions
        for member_id, part in normal(assignor.assign(spec), assignor.name).items()
    }


def numbers_from(seed: int) -> Iterator[int]:
    """An endless sequence of 31-bit numbers (Knuth's MMIX generator, its upper bits)."""
    state = seed
    while True:
        state = (state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % (1 << 64)
        yield state >> 33


def some_spec(numbers: Iterator[int], *, is_mixed: bool) -> AssignmentSpec:
    """Generate a group of 1 to 9 members and 1 to 5 topics of 1 to 17 partitions.

    Subscriptions differ if `is_mixed`."""

    def up_to(most: int) -> int:
        return next(numbers) % (most + 1)

    topics = {
        bytes(15) + bytes([number + 1]): AssignmentTopicMetadata(f"topic-{number}", 1 + up_to(16))
        for number in range(1 + up_to(4))
    }
    member_ids = [f"{up_to(99_999):05}-{number}" for number in range(1 + up_to(8))]
    old = _old_targets(numbers, topics, [*member_ids, "gone", None, None]) if up_to(2) else {}
    everything = frozenset(topics)
    return AssignmentSpec(
        {
            member_id: AssignmentMemberSpec(
                frozenset(topic for topic in topics if up_to(2)) if is_mixed else everything,
                old.get(member_id, {}),
                f"static-{member_id[::-1]}" if up_to(3) == 0 else None,
                None,
            )
            for member_id in member_ids
        },
        topics,
    )


def _old_targets(
    numbers: Iterator[int], topics: dict[bytes, AssignmentTopicMetadata], owners: list[str | None]
) -> Targets:
    """Generate an old target without double owners.

    It may name deleted topics, and up to two more partitions per topic."""
    parts: dict[str, dict[bytes, tuple[int, ...]]] = {}
    sizes = {topic_id: topic.num_partitions + 2 for topic_id, topic in topics.items()} | {b"\xff" * 16: 3}
    for topic_id, size in sizes.items():
        for partition in range(size):
            owner = owners[next(numbers) % len(owners)]
            if owner is not None:
                part = parts.setdefault(owner, {})
                part[topic_id] = (*part.get(topic_id, ()), partition)
    return dict(parts)


def with_targets(
    spec: AssignmentSpec, targets: Targets, member_ids: Iterable[str] | None = None
) -> AssignmentSpec:
    """The spec with these present targets, and its members in this order."""
    order = spec.members if member_ids is None else member_ids
    return AssignmentSpec(
        {m: spec.members[m]._replace(target_partitions=targets.get(m, {})) for m in order}, spec.topics
    )


def _size(part: Partitions) -> int:
    return sum(map(len, part.values()))


def _p1(assignor: PartitionAssignor, spec: AssignmentSpec, numbers: Iterator[int]) -> str | None:
    owner_of: dict[tuple[bytes, int], str] = {}
    for member_id, part in assigned(assignor, spec).items():
        member = spec.members.get(member_id)
        if member is None:
            return f"{member_id} is not a member"
        for topic_id, partitions in part.items():
            if topic_id not in member.subscribed_topics:
                return f"{member_id} got partitions of {topic_id.hex()}, to which it is not subscribed"
            for partition in partitions:
                if (topic_id, partition) in owner_of:
                    return f"{topic_id.hex()}-{partition} was assigned twice"
                owner_of[topic_id, partition] = member_id
    wanted = {
        (topic_id, partition)
        for member in spec.members.values()
        for topic_id in member.subscribed_topics
        for partition in range(spec.topics[topic_id].num_partitions)
    }
    for topic_id, partition in owner_of.keys() ^ wanted:
        what = "does not exist" if (topic_id, partition) in owner_of else "was not assigned"
        return f"{topic_id.hex()}-{partition} {what}"
    return None


def _p2(assignor: PartitionAssignor, spec: AssignmentSpec, numbers: Iterator[int]) -> str | None:
    if not is_homogeneous(spec):
        return None
    answer = assigned(assignor, spec)
    sizes = [_size(answer.get(member_id, {})) for member_id in spec.members]
    return f"sizes are {sorted(sizes)}" if max(sizes) - min(sizes) > 1 else None


def _p3(assignor: PartitionAssignor, spec: AssignmentSpec, numbers: Iterator[int]) -> str | None:
    answer = assigned(assignor, spec)
    sizes = {member_id: _size(answer.get(member_id, {})) for member_id in spec.members}
    for member_id, part in answer.items():
        for other_id, other in spec.members.items():
            if sizes[member_id] - sizes[other_id] >= 2 and part.keys() & other.subscribed_topics:
                return (
                    f"{member_id} has {sizes[member_id]}, {other_id} has {sizes[other_id]} and could take one"
                )
    return None


def _p4(assignor: PartitionAssignor, spec: AssignmentSpec, numbers: Iterator[int]) -> str | None:
    answer = assigned(assignor, spec)
    order = sorted(spec.members, key=lambda member_id: next(numbers))
    shuffled = AssignmentSpec({member_id: spec.members[member_id] for member_id in order}, spec.topics)
    if _filled(assigned(assignor, shuffled)) != _filled(answer):
        return f"the result differs for the order {order}"
    if _filled(assigned(assignor, with_targets(spec, answer, order))) != _filled(answer):
        return "called again with its own result as the target, it moves partitions"
    return None


def _filled(targets: Targets) -> Targets:
    """Remove members without partitions: omitting them means the same."""
    return {member_id: part for member_id, part in targets.items() if part}


def _p5(assignor: PartitionAssignor, spec: AssignmentSpec, numbers: Iterator[int]) -> str | None:
    if not is_homogeneous(spec):
        return None
    before = assigned(assignor, spec)
    member_ids = sorted(spec.members)
    stay = member_ids[next(numbers) % len(member_ids) :]
    comers = [f"{'0z'[number % 2]}-{number}" for number in range(next(numbers) % 3)]
    subscribed = spec.members[member_ids[0]].subscribed_topics
    topics = {
        topic_id: topic._replace(num_partitions=topic.num_partitions + next(numbers) % 3)
        for topic_id, topic in spec.topics.items()
    }
    after_ids = [*stay, *comers]
    changed = AssignmentSpec(
        {m: AssignmentMemberSpec(subscribed, before.get(m, {})) for m in after_ids}, topics
    )
    after = assigned(assignor, changed)
    moved = sum(
        len(set(numbers_) - set(after.get(m, {}).get(topic_id, ())))
        for m in stay
        for topic_id, numbers_ in before.get(m, {}).items()
    )
    quota, extras = divmod(sum(topics[topic_id].num_partitions for topic_id in subscribed), len(after_ids))
    held = sorted((_size(before.get(m, {})) for m in stay), reverse=True)
    must = sum(max(0, count - quota - (place < extras)) for place, count in enumerate(held))
    return (
        f"{moved} partitions moved, {must} had to, when the members changed from {member_ids} to {after_ids}"
        if moved != must
        else None
    )


def _p6(assignor: PartitionAssignor, spec: AssignmentSpec, numbers: Iterator[int]) -> str | None:
    for member_id, part in assigned(assignor, spec).items():
        for topic_id, partitions in part.items():
            if any(later != former + 1 for former, later in pairwise(partitions)):
                return f"{member_id} got {partitions} of {topic_id.hex()}, which is not a range"
        if is_homogeneous(spec):
            cuts: dict[int, Partitions | tuple[int, ...]] = {}
            for topic_id in sorted(spec.members[member_id].subscribed_topics):
                topic = spec.topics[topic_id]
                if cuts.setdefault(topic.num_partitions, part.get(topic_id, ())) != part.get(topic_id, ()):
                    return f"{member_id} got different partitions of topics with equal partition counts"
    return None


def _p7(assignor: PartitionAssignor, spec: AssignmentSpec, numbers: Iterator[int]) -> str | None:
    member_id = min(spec.members)
    member = spec.members[member_id]
    unknown = member._replace(subscribed_topics=member.subscribed_topics | {b"\xfe" * 16})
    try:
        assignor.assign(AssignmentSpec({**spec.members, member_id: unknown}, spec.topics))
    except PartitionAssignorError:
        return None
    return f"{member_id} is subscribed to a topic that is not described, and no error was raised"


Check = Callable[[PartitionAssignor, AssignmentSpec, Iterator[int]], str | None]

CHECKS: dict[str, Check] = {"P1": _p1, "P2": _p2, "P3": _p3, "P4": _p4, "P5": _p5, "P6": _p6, "P7": _p7}
"""The checks by property; each returns a description of the violation, or None."""
