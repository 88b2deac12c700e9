"""Due work without a request: topic changes, the checks at the beginning of a term, and deferred targets.

Groups and offsets are compared with the catalog by topic id. So a topic that was deleted and created again
under its name is a different topic, even if this happened while no leader was active. A change is found here
at once, whereas Kafka waits for a heartbeat; a heartbeat that comes first finds it too.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.api import Context, DecisionBuilder, Steps
from coordinator.group_context import GroupContext
from coordinator.state.offsetstore import removal_bytes, tombstone
from coordinator.state.pendingoffsets import PENDING_COST, pending_tombstone
from coordinator.targets.epochs import REASONS_KEPT, epoch_step, target_step
from records import METADATA_SHARD, ZERO_UUID, RawRecord, ReasonKind, RecordType, Trigger, decode_key

_TRIGGER_OF_REASON = {
    ReasonKind.TOPIC_CREATED: Trigger.TOPIC_CREATED,
    ReasonKind.TOPIC_GROWN: Trigger.TOPIC_GROWN,
    ReasonKind.TOPIC_DELETED: Trigger.TOPIC_DELETED,
}


def check_group(groups: GroupContext, group_id: str, ctx: Context, builder: DecisionBuilder) -> Steps:
    """Compare one group with the catalog.

    Offsets of deleted topics are removed, and changed topics bump the epoch."""
    builder.trigger = groups.checks.pop(group_id)
    tombstones = _offsets_without_topic(groups, group_id, ctx, builder)
    if group_id in groups.offset_scans:
        groups.checks[group_id] = Trigger(builder.trigger)  # the rest is checked after all other due groups
    if tombstones:
        if builder.trigger is Trigger.CATALOG_CHANGED:
            builder.trigger = Trigger.TOPIC_DELETED
        yield tombstones
        groups.expect_end(group_id, ctx)
    group = groups.projection.groups.get(group_id)
    if group is not None and group.is_consumer:
        yield from epoch_step(groups, group_id, None, ctx, builder)
        kinds = {reason.kind for reason in builder.reasons}
        if builder.trigger is Trigger.CATALOG_CHANGED and len(kinds) == 1:
            builder.trigger = _TRIGGER_OF_REASON.get(ReasonKind(kinds.pop()), builder.trigger)
        yield from target_step(groups, group_id, ctx, builder)
    return None


def _removals_max(groups: GroupContext, group_id: str) -> int:
    return max(1, groups.limits.removal_bytes_max // removal_bytes(group_id))


OFFSETS_AT_ONCE = 10_000
"""Offsets examined in one decision: about 5 ms."""


def _offsets_without_topic(
    groups: GroupContext, group_id: str, ctx: Context, builder: DecisionBuilder
) -> list[RawRecord]:
    """Tombstones for offsets of topics that were deleted, by topic id.

    There are at most as many as one decision may write. If more may follow, the search is stored in
    `groups.offset_scans`.

    A topic that this catalog lacks may also be one that it does not have *yet*: offsets carry no catalog
    version, and another node may have accepted them with a newer catalog. The topic id distinguishes the two
    cases.
    """
    scan = groups.offset_scans.pop(group_id, None) or _topic_ids(groups, group_id)
    verdicts = {ZERO_UUID: False}
    gone: list[RawRecord] = []
    room = _removals_max(groups, group_id)
    cost = 0
    for raw, topic_id in scan:
        each = 1 if raw.type == RecordType.OFFSET_COMMIT else PENDING_COST
        cost += each
        is_gone = verdicts.get(topic_id)
        if is_gone is None:
            is_gone = ctx.catalog.topic_by_id(topic_id) is None and not ctx.catalog.is_behind(topic_id)
            verdicts[topic_id] = is_gone
            if is_gone and len(builder.refs) < REASONS_KEPT:
                builder.refer(METADATA_SHARD, ctx.catalog.changed_at(decode_key(raw).topic))
        if is_gone:
            gone.append(raw)
            room -= each
        if room <= 0 or cost >= OFFSETS_AT_ONCE:
            groups.offset_scans[group_id] = scan
            break
    return gone


def _topic_ids(groups: GroupContext, group_id: str) -> Iterator[tuple[RawRecord, bytes]]:
    """Iterate over the group's offsets, also pending ones: the tombstone of each, and its topic id."""
    for key, topic_id in groups.projection.offsets.topic_ids(group_id):
        yield tombstone(key), topic_id
    for pending, value in groups.projection.pending.of_group(group_id):
        yield pending_tombstone(pending), value.topic_id


def compute_deferred_target(
    groups: GroupContext, group_id: str, ctx: Context, builder: DecisionBuilder
) -> Steps:
    """Compute a deferred target that is now due."""
    if group_id in groups.projection.groups:
        builder.trigger = Trigger.TARGET_COMPUTED
        if (index := groups.pacing.bumped_at.get(group_id)) is not None:
            builder.refer(groups.shard_id, index)
        yield from target_step(groups, group_id, ctx, builder)
    return None
