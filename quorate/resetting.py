"""Works out the plan of an offset reset from an operator's options.

It queries the group, the catalog and, if named, the Kafka cluster that keeps the records, and changes
nothing. A group with members is refused, since they would overwrite the offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from quorate.client import Client
from quorate.endoffsets import KafkaOffsets
from quorate.errors import CommandError, ExitCode
from quorate.groupclient import GroupDescription
from quorate.offsetplan import Ends, OffsetChange, Partition, Wish, plan
from quorate.retrying_client import ClusterRefused
from wire.errors import ErrorCode

NEED_KAFKA = ("--to-latest", "--to-datetime")
"""Goals that require a cluster that keeps the records."""

AT_KAFKA = ("--to-earliest", *NEED_KAFKA)
"""Goals that use such a cluster; without one every partition begins at 0."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The wanted offsets: the option that states them, and its value."""

    option: str
    number: int = 0
    """The value of --to-offset or --shift-by; for --to-datetime, ms since 1970."""
    told: Mapping[Partition, int] = field(default_factory=dict)
    """The offsets in --from-file."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The planned changes to a group, which need not exist yet."""

    group_id: str
    is_new: bool
    steps: list[OffsetChange]
    changes: list[OffsetChange]

    def offsets(self) -> dict[str, dict[int, int]]:
        """The offsets to commit, by topic and partition."""
        offsets: dict[str, dict[int, int]] = {}
        for step in self.changes:
            assert step.new is not None
            offsets.setdefault(step.topic, {})[step.partition] = step.new
        return offsets


Named = Mapping[str, list[int] | None]
"""Topics with the named partitions; None: all of them."""


def work_out(
    client: Client, source: KafkaOffsets | None, group_id: str, goal: Goal, named: Named | None
) -> Reset:
    """The reset that would be made now; raises `CommandError`.

    It covers the partitions in the goal's file, those `named`, or (None) all with a committed offset.
    """
    if source is not None:
        source.check_has_records(client.cluster_id())
    group = _without_members(client, group_id)
    committed = group.offsets if group is not None else {}
    if named is None and not goal.told:
        partitions = [(topic, number) for topic, by in committed.items() for number in by]
    else:
        partitions = _existing(client, goal, named or {})
    ends = _ends(source, partitions)
    why_not = "is unknown there" if goal.option in AT_KAFKA else "has no committed offset"
    steps = plan(partitions, committed, _wish(goal, source, partitions, ends), ends, why_not)
    if goal.option == "--shift-by":
        _check_shiftable(steps, named or {})
    renews = goal.option == "--to-current"
    changes = [step for step in steps if step.is_change or (renews and step.new is not None)]
    return Reset(group_id, group is None, steps, changes)


def _without_members(client: Client, group_id: str) -> GroupDescription | None:
    """The group, or None if it does not exist; raises `CommandError` if it has members."""
    try:
        found = client.describe_group(group_id)
    except ClusterRefused as error:
        if error.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    if found.members or found.state != "Empty":
        number = len(found.members)
        raise ClusterRefused(
            ErrorCode.NON_EMPTY_GROUP,
            f"it has {number} member{'s' * (number != 1)} and is {found.state}",
            f"resetting offsets of group {group_id!r}",
        )
    return found


def _existing(client: Client, goal: Goal, named: Named) -> list[Partition]:
    """The partitions named or listed in a file; raises `CommandError` for one that does not exist."""
    sizes = {topic.name: topic.num_partitions for topic in client.topics()}
    partitions = list(goal.told)
    for topic, numbers in named.items():
        of_topic = range(_size(sizes, topic)) if numbers is None else numbers
        partitions += [(topic, number) for number in of_topic]
    for topic, number in partitions:
        if number >= _size(sizes, topic):
            raise CommandError(
                f"topic {topic!r} has no partition {number}",
                hint=f"it has {sizes[topic]}, from 0 to {sizes[topic] - 1}",
                code=ExitCode.REFUSED,
            )
    return partitions


def _size(sizes: Mapping[str, int], topic: str) -> int:
    if topic not in sizes:
        raise CommandError(
            f"there is no topic {topic!r}",
            hint="`quorate topics list` shows all topics",
            code=ExitCode.REFUSED,
        )
    return sizes[topic]


def _ends(source: KafkaOffsets | None, partitions: Sequence[Partition]) -> Ends:
    if source is None:
        return {}
    first, last = source.earliest(partitions), source.latest(partitions)
    return {partition: (first[partition], last[partition]) for partition in first if partition in last}


def _wish(goal: Goal, source: KafkaOffsets | None, partitions: Sequence[Partition], ends: Ends) -> Wish:
    """The goal as a function; without a needed end offset, the partition stays as it is."""

    def end(place: int) -> Callable[[Partition, int | None], int | None]:
        return lambda partition, now: ends[partition][place] if partition in ends else None

    number, told = goal.number, goal.told
    match goal.option:
        case "--to-earliest":
            return end(0) if source is not None else lambda partition, now: 0
        case "--to-latest":
            return end(1)
        case "--to-datetime":
            assert source is not None
            since = source.at(partitions, number)
            return lambda partition, now: since.get(partition)
        case "--shift-by":
            return lambda partition, now: None if now is None else now + number
        case "--from-file":
            return lambda partition, now: told[partition]
        case "--to-current":
            return lambda partition, now: now
    return lambda partition, now: number


def _check_shiftable(steps: Sequence[OffsetChange], named: Named) -> None:
    """Raise `CommandError` for an explicitly numbered partition without an offset to shift."""
    for step in steps:
        if step.now is None and named.get(step.topic) is not None:
            raise CommandError(
                f"{step.topic}-{step.partition} has no committed offset that could be shifted",
                hint="set it with --to-offset",
                code=ExitCode.REFUSED,
            )
