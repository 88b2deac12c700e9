"""`diff`: what differs between two moments: topics, groups, members, partition owners, committed offsets.

Both states are replayed, each from the snapshot before it. How the change came about is for `explain` to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from history.protocols import epoch_noun
from history.reading.catalog import TopicChange, changes_between
from history.reading.groups import GROUPS_NAMED_MAX
from history.reading.node import NodeLog
from history.reading.source import NothingToRead
from history.render import LOCAL, TimeStyle, plural, ranges
from history.state.replay import ReplayedGroup, ReplayedMember, ReplayedShard, member_words, replay
from history.words import shard_name
from records import SCRATCH_TERM_BITS

GROUP_CREATED, GROUP_REMOVED, GROUP_CHANGED = "created", "removed", "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """A moment of a shard and its basis; ``index`` is the last entry at or before it, 0 if there is none."""

    index: int
    timestamp_ms: int
    rests_on: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsMoved:
    """Partitions of one topic that moved from one owner to another; ``None``: no owner."""

    topic: str
    partitions: tuple[int, ...]
    source: str | None
    target: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChanged:
    """A committed offset that changed; ``None``: no offset."""

    topic: str
    partition: int
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDiff:
    """One group that changed."""

    group_id: str
    change: str
    """`created`, `removed` or `changed`."""
    state_before: str
    state_after: str
    epoch_before: int
    epoch_after: int
    members_came: tuple[ReplayedMember, ...]
    members_went: tuple[ReplayedMember, ...]
    moved: tuple[PartitionsMoved, ...]
    offsets: tuple[OffsetChanged, ...]
    noun: str
    """The word of the group's protocol for its epochs."""
    names: dict[str, str]
    """Member id -> ``m2 (app-1)``, for the members that partitions moved from or to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDiff:
    """One shard at two moments."""

    shard: int
    before: At
    after: At
    topics: tuple[TopicChange, ...]
    groups: tuple[GroupDiff, ...]

    @property
    def is_same(self) -> bool:
        return not self.topics and not self.groups


Moment = tuple[int | None, int | None]
"""(index, epoch ms), at most one of them set; neither: the end of the log."""


def diff(
    log: NodeLog, start: Moment | None, end: Moment, *, shard: int | None = None, group: str | None = None
) -> tuple[ShardDiff, ...]:
    """The changes between two moments, in every shard, one shard or one group.

    If ``start`` is ``None``, it is the oldest state that is kept. Raises `NothingToRead` if an index does not
    exist or the group is known at neither moment.
    """
    if group is not None and shard is None:
        shard = log.shard_of_group(group)
    found = []
    for number in log.shards if shard is None else (shard,):
        begin = (_oldest(log, number), None) if start is None else start
        before, after = (replay(log, shard=number, at_index=index, at_ms=ms) for index, ms in (begin, end))
        found.append(_shard_diff(before, after, group))
        if group is not None and not _knows(before, group) and not _knows(after, group):
            raise NothingToRead(f"no group {group!r} at either moment: {_who_there_is(before, after)}")
    return tuple(found)


def _oldest(log: NodeLog, shard: int) -> int:
    """The first index with a known state: 0, or that of a snapshot if retention removed the beginning."""
    reader = log.reader(shard)
    first = next(reader.frames(), None)
    if first is not None and first.index == 1:
        return 0
    return next((one.last_index for one in reader.snapshots()), 0)


def _knows(state: ReplayedShard, group_id: str) -> bool:
    return any(group.group_id == group_id for group in state.groups)


def _who_there_is(before: ReplayedShard, after: ReplayedShard) -> str:
    names = sorted({group.group_id for state in (before, after) for group in state.groups})
    shown, rest = names[:GROUPS_NAMED_MAX], len(names) - GROUPS_NAMED_MAX
    if not shown:
        return f"{shard_name(after.shard)} has none"
    return f"{shard_name(after.shard)} has {', '.join(shown)}" + (f" and {rest} more" if rest > 0 else "")


def _shard_diff(before: ReplayedShard, after: ReplayedShard, only: str | None) -> ShardDiff:
    shapes = [
        {topic.name: (topic.topic_id.encode(), topic.num_partitions) for topic in state.topics}
        for state in (before, after)
    ]
    groups = [{one.group_id: one for one in state.groups} for state in (before, after)]
    names = sorted({*groups[0], *groups[1]} if only is None else {only})
    diffs = (_group_diff(groups[0].get(name), groups[1].get(name)) for name in names)
    return ShardDiff(
        shard=after.shard,
        before=_at(before),
        after=_at(after),
        topics=tuple(changes_between(*shapes).values()),
        groups=tuple(found for found in diffs if found is not None),
    )


def _at(state: ReplayedShard) -> At:
    return At(index=state.index, timestamp_ms=state.timestamp_ms, rests_on=state.basis.words())


def _group_diff(before: ReplayedGroup | None, after: ReplayedGroup | None) -> GroupDiff | None:
    known = after or before
    if known is None or before == after:
        return None
    members_before = {} if before is None else {one.member_id: one for one in before.members}
    members_after = {} if after is None else {one.member_id: one for one in after.members}
    moved = _moved(_owners(members_before.values()), _owners(members_after.values()))
    named = {member_id for one in moved for member_id in (one.source, one.target) if member_id is not None}
    return GroupDiff(
        group_id=known.group_id,
        change=GROUP_CREATED if before is None else GROUP_REMOVED if after is None else GROUP_CHANGED,
        state_before="" if before is None else before.state,
        state_after="" if after is None else after.state,
        epoch_before=-1 if before is None else before.epoch,
        epoch_after=-1 if after is None else after.epoch,
        members_came=tuple(one for key, one in members_after.items() if key not in members_before),
        members_went=tuple(one for key, one in members_before.items() if key not in members_after),
        moved=moved,
        offsets=_offsets(before, after),
        noun=epoch_noun(known.kind),
        names={one: _called((members_before | members_after)[one]) for one in sorted(named)},
    )


def _owners(members: Iterable[ReplayedMember]) -> dict[tuple[str, int], str]:
    return {
        (topic, number): member.member_id
        for member in members
        for parts in (member.assigned, member.pending_revocation)
        for topic, numbers in parts.items()
        for number in numbers
    }


def _moved(
    before: dict[tuple[str, int], str], after: dict[tuple[str, int], str]
) -> tuple[PartitionsMoved, ...]:
    moved: dict[tuple[str, str | None, str | None], list[int]] = {}
    for topic, number in before.keys() | after.keys():
        source, target = before.get((topic, number)), after.get((topic, number))
        if source != target:
            moved.setdefault((topic, source, target), []).append(number)
    rows = (
        PartitionsMoved(topic=topic, partitions=tuple(sorted(numbers)), source=source, target=target)
        for (topic, source, target), numbers in moved.items()
    )
    return tuple(sorted(rows, key=lambda row: (row.topic, row.partitions)))


def _offsets(before: ReplayedGroup | None, after: ReplayedGroup | None) -> tuple[OffsetChanged, ...]:
    committed = [
        {} if state is None else {(one.topic, one.partition): one.offset for one in state.offsets}
        for state in (before, after)
    ]
    return tuple(
        OffsetChanged(topic=topic, partition=number, before=old, after=new)
        for topic, number in sorted(committed[0].keys() | committed[1].keys())
        if (old := committed[0].get((topic, number))) != (new := committed[1].get((topic, number)))
    )


def diff_text(found: Sequence[ShardDiff], style: TimeStyle = LOCAL) -> Iterator[str]:
    """Lines of text: per shard the two moments, then what differs."""
    for one in found:
        said = f"{shard_name(one.shard)}: {_place(one.before, style)} -> {_place(one.after, style)}"
        yield said + (": nothing changed" if one.is_same else "")
        for basis in dict.fromkeys((one.before.rests_on, one.after.rests_on)):
            yield f"  from {basis}"
        for topic in one.topics:
            yield f"  topic {topic.name} {topic.words()}"
        for group in one.groups:
            yield from _group_text(group)


def _place(at: At, style: TimeStyle) -> str:
    return f"index {at.index} ({style.full(at.timestamp_ms)})" if at.index else "before the first entry"


def _group_text(group: GroupDiff) -> Iterator[str]:
    old, new = f"{group.noun} {group.epoch_before}", f"{group.noun} {group.epoch_after}"
    if group.change == GROUP_CREATED:
        yield f"  group {group.group_id} was created: {group.state_after}, {new}"
    elif group.change == GROUP_REMOVED:
        yield f"  group {group.group_id} was deleted: it was {group.state_before}, {old}"
    elif (group.epoch_before, group.state_before) == (group.epoch_after, group.state_after):
        yield f"  group {group.group_id}: {group.state_after}, {new} as before"
    else:
        states = f"{group.state_before} -> {group.state_after}"
        yield f"  group {group.group_id}: {old} -> {group.epoch_after}, {states}"
    for word, members in (("came", group.members_came), ("went", group.members_went)):
        for member in members:
            yield f"    {word}      {member_words(member)}"
    for moved in group.moved:
        source, target = (group.names.get(one or "", "nobody") for one in (moved.source, moved.target))
        yield f"    moved     {moved.topic} {ranges(moved.partitions)}: {source} -> {target}"
    yield from _offsets_text(group.offsets)


def _called(member: ReplayedMember) -> str:
    return f"{member.name} ({member.client_id})" if member.client_id else member.name


def _offsets_text(offsets: Sequence[OffsetChanged]) -> Iterator[str]:
    for topic in dict.fromkeys(one.topic for one in offsets):
        mine = [one for one in offsets if one.topic == topic]
        steps = "; ".join(f"{one.partition}: {_said(one.before)} -> {_said(one.after)}" for one in mine)
        both = [(one.before, one.after) for one in mine if one.before is not None and one.after is not None]
        same_term = [(old, new) for old, new in both if old >> SCRATCH_TERM_BITS == new >> SCRATCH_TERM_BITS]
        said = f"{plural(sum(max(new - old, 0) for old, new in same_term), 'offset')} forward"
        if anew := len(both) - len(same_term):
            counted = f"{said}; " if same_term else ""
            said = f"{counted}after a failover the offsets of {plural(anew, 'partition')} began anew"
        yield f"    committed {topic} {steps} ({said})"


def _said(offset: int | None) -> str:
    return "none" if offset is None else str(offset)
