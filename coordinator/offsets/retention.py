"""Expiry of offsets and groups (E.5): which have expired, and the decisions that remove them.

An offset expires when the group does not subscribe to its topic and its retention has passed. The retention
ends at the time given in the commit (versions 2 to 4), or a fixed time after the commit; for a classic group
without members, the time counts from when it lost its last member. A group is removed when it has neither
members nor offsets. Offsets of a topic that members subscribe to are kept, however old they are, and so are
those of partitions, and groups, with offsets pending in a transaction. Groups of old protocols have the same
terms; the time of seed 000's commits is the client's TimeStamp.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from struct import Struct
from typing import Final

from coordinator import oldgroups
from coordinator.api import Context, DecisionBuilder, Steps
from coordinator.group_context import GroupContext
from coordinator.leader_state.expiry import Look, Reading
from coordinator.state import writes
from coordinator.state.offsetstore import CommittedOffset, tombstone
from records import Expiry, GroupMetadataValue, OffsetCommitValue, RawRecord, Trigger

NO_TIME: Final = -1
_CONSUMER: Final = "consumer"
_PREFIX: Final = Struct(">hi")
_SIZE: Final = Struct(">h")


@dataclass(frozen=True, slots=True)
class Terms:
    """Conditions that keep a group's offsets: a subscription, or the retention time since `base_ms` (None:
    since each commit)."""

    subscribed: Container[str]
    base_ms: int | None = None


def terms_of(groups: GroupContext, group_id: str) -> Terms | None:
    """The retention terms of a group; None while none of its offsets may expire, as in a rebalance."""
    served = groups.classic.get(group_id)
    if served is not None and served.is_rebalancing:
        return None
    group = groups.projection.groups.get(group_id)
    if group is None:
        return _terms_of_old(groups, group_id)
    classic = group.classic
    if group.is_consumer or classic is None:
        return Terms(group.subscriptions)
    if not classic.protocol_type:
        return Terms(())
    if not classic.members:
        state_ms = classic.current_state_timestamp_ms
        return Terms((), state_ms if state_ms >= 0 else None)
    topics = classic_subscriptions(classic)
    return None if topics is None else Terms(topics)


def _terms_of_old(groups: GroupContext, group_id: str) -> Terms | None:
    """The retention terms of a group of an old protocol, or of one that only has offsets."""
    topics: set[str] = set()
    for _, value in groups.projection.old_groups_of(group_id):
        subscribed = oldgroups.subscribed_topics(value)
        if subscribed is None:
            return None
        topics |= subscribed
    return Terms(topics)


def classic_subscriptions(classic: GroupMetadataValue) -> set[str] | None:
    """Topics that the members of a classic group subscribe to.

    None if they are not consumers or cannot be decoded."""
    if classic.protocol_type != _CONSUMER or classic.protocol is None:
        return None
    topics: set[str] = set()
    try:
        for member in classic.members:
            topics.update(_subscribed_topics(member.subscription))
    except (ValueError, IndexError):
        return None
    return topics


def _subscribed_topics(subscription: bytes) -> list[str]:
    """Decode the topics at the beginning of a consumer's subscription, which are the same in all versions.
    Raises ValueError."""
    if len(subscription) < _PREFIX.size:
        raise ValueError("the subscription has no topics")
    _, number = _PREFIX.unpack_from(subscription)
    topics, start = [], _PREFIX.size
    for _ in range(number):
        end = start + _SIZE.size
        if end > len(subscription):
            raise ValueError("the subscription is truncated")
        (size,) = _SIZE.unpack_from(subscription, start)
        if size < 0 or end + size > len(subscription):
            raise ValueError("a topic is truncated")
        topics.append(subscription[end : end + size].decode())
        start = end + size
    return topics


def over_at_ms(value: OffsetCommitValue, terms: Terms, retention_ms: int) -> int:
    """Time at which an offset expires, unless a subscription keeps it."""
    if value.expire_timestamp_ms != NO_TIME:
        return value.expire_timestamp_ms
    return (value.commit_timestamp_ms if terms.base_ms is None else terms.base_ms) + retention_ms


def expire_offsets(groups: GroupContext, ctx: Context, builder: DecisionBuilder) -> Steps:
    """Process one slice of the due looks.

    It ends with the first records, or when about `expiry_slice_max` offsets were read."""
    builder.trigger = Trigger.OFFSETS_EXPIRED
    table, room, has_written = groups.expiry, groups.limits.expiry_slice_max, False
    while room > 0 and not has_written:
        room -= 1
        if table.reading is None and not _take_up(groups, ctx):
            break
        reading = table.reading
        if reading is None:
            continue
        keys = reading.keys[reading.position : reading.position + room]
        room -= len(keys)
        tombstones = _read(groups, reading, keys, ctx, builder)
        if tombstones:
            has_written = True
            yield tombstones
        if reading.position == len(reading.keys):
            table.reading = None
            end = _end(groups, reading, ctx)
            if end:
                has_written = True
                yield end
                groups.forget_group(reading.group_id)
    table.aim(ctx, groups.limits.expiry_pause_ms)
    return None


def _take_up(groups: GroupContext, ctx: Context) -> bool:
    """Begin to read the group that has been due for longest; False if none is due.

    If reading would find nothing, its look is rescheduled instead."""
    due = groups.expiry.take_due(ctx)
    if due is None:
        return False
    group_id, look = due
    settings = ctx.settings.for_group(group_id)
    terms = terms_of(groups, group_id)
    if terms is None or look.has_nothing(terms.subscribed, ctx.past_ms):
        not_before_ms = ctx.past_ms + settings.offsets_retention_check_interval_ms
        look.due_ms = not_before_ms if terms is None else look.next_due_ms(not_before_ms)
        groups.expiry.put(group_id, look, ctx)
    else:
        keys = groups.projection.offsets.keys(group_id)
        groups.expiry.reading = Reading(group_id, keys, ctx.past_ms + settings.offsets_retention_ms)
    return True


def _read(
    groups: GroupContext, reading: Reading, keys: list[bytes], ctx: Context, builder: DecisionBuilder
) -> list[RawRecord]:
    """Return tombstones for the expired offsets among these; note in `reading` when the others expire."""
    group_id, offsets = reading.group_id, groups.projection.offsets
    retention_ms = ctx.settings.for_group(group_id).offsets_retention_ms
    terms = terms_of(groups, group_id)
    reading.position += len(keys)
    tombstones: list[RawRecord] = []
    oldest: Expiry | None = None
    for key in keys:
        offset = offsets.committed(key)
        if offset is None:  # removed since the reading began
            continue
        if terms is None or groups.projection.pending.has(group_id, offset.topic, offset.partition):
            reading.free_ms = ctx.past_ms
            continue
        at_ms = over_at_ms(offset.value, terms, retention_ms)
        if offset.topic in terms.subscribed:
            reading.held_ms = min(reading.held_ms, at_ms) if reading.held else at_ms
            reading.held.add(offset.topic)
        elif ctx.past_ms < at_ms:
            reading.free_ms = min(reading.free_ms, at_ms)
        else:
            tombstones.append(tombstone(key))
            oldest = _older(oldest, offset, at_ms)
    if oldest is not None:
        builder.expiries.append(oldest)
    return tombstones


def _older(oldest: Expiry | None, offset: CommittedOffset, at_ms: int) -> Expiry:
    """The expiry evidence of a decision: that of the offset that was committed first."""
    committed_ms = offset.value.commit_timestamp_ms
    if oldest is not None and oldest.armed_ms <= committed_ms:
        return oldest
    return Expiry(
        member_id="",
        timeout_ms=at_ms - committed_ms,
        armed_ms=committed_ms,
        last_heartbeat_ms=NO_TIME,
        deadline_ms=at_ms,
    )


def _end(groups: GroupContext, reading: Reading, ctx: Context) -> list[RawRecord]:
    """Finish the reading of a group: return its tombstones if it has ended, else schedule its next look."""
    group_id = reading.group_id
    if groups.projection.has_offsets(group_id):
        interval_ms = ctx.settings.for_group(group_id).offsets_retention_check_interval_ms
        look = Look(0, reading.free_ms, frozenset(reading.held), reading.held_ms)
        look.due_ms = look.next_due_ms(ctx.past_ms + interval_ms)
        groups.expiry.merge(group_id, look, ctx)
        return []
    if not groups.is_empty(group_id):
        return []
    group = groups.projection.groups.get(group_id)
    return [
        *oldgroups.tombstones(groups, group_id),
        *(writes.group_tombstones(group) if group is not None else ()),
    ]
