"""The steps that bump a group's epoch and compute its target.

Everything that changes a group uses both: heartbeats, leaves, expiries, topic changes, and the check at the
beginning of a term. `epoch_step` compares the group with the catalog, and bumps the epoch by one if there is
any reason, however many there are; all reasons go into the cause. `target_step` (in
`coordinator.targets.targeting`) computes the target of the new epoch, if the group's pacing and its
assignment interval allow it. Both are generators: the records they yield are applied before they continue.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from coordinator.api import Context, DecisionBuilder
from coordinator.group_context import GroupContext
from coordinator.state import writes
from coordinator.state.model import Group
from coordinator.targets.target import preferred_assignor
from coordinator.targets.targeting import Step as Step
from coordinator.targets.targeting import target_step as target_step
from coordinator.topics import CatalogView
from records import METADATA_SHARD, PartitionRacks, RawRecord, ReasonKind, TopicMetadata

REASONS_KEPT = 100
"""Maximum number of topic reasons per cause: enough to explain it, and a change of thousands of topics still
fits into an entry."""


@dataclass(frozen=True, slots=True)
class Before:
    """Values that a change of membership may affect, as they were before the change."""

    names: frozenset[str]
    assignor: str | None
    """None while the group has no members: the first members do not change an assignor."""

    @staticmethod
    def of(group: Group | None, ctx: Context, group_id: str) -> Before:
        if group is None or not group.num_members:
            return Before(frozenset(), None)
        configured = ctx.settings.for_group(group_id).assignors
        return Before(frozenset(group.subscriptions), preferred_assignor(group, configured))


def subscription_metadata(
    group: Group, catalog: CatalogView, *, racks_bytes_max: int = 0
) -> tuple[TopicMetadata, ...]:
    """The subscribed topics that exist, sorted by topic id.

    Topics that have not changed are the objects that the group already has, since often one of ten thousand
    topics changes. Partition racks are included unless all of them together exceed `racks_bytes_max`."""
    with_racks = (
        0 < sum([_racks_bytes(catalog.racks(name)) for name in group.subscriptions]) <= racks_bytes_max
    )
    known = {topic.topic_name: topic for topic in group.topics}
    found: list[TopicMetadata] = []
    for name in group.subscriptions:
        topic, metadata = catalog.topic(name), known.get(name)
        if topic is None:
            continue
        racks = catalog.racks(name) if with_racks else ()
        if (
            metadata is None
            or metadata.topic_id != topic.topic_id
            or metadata.num_partitions != topic.num_partitions
            or metadata.partition_racks != racks
        ):
            metadata = TopicMetadata(
                num_partitions=topic.num_partitions,
                topic_id=topic.topic_id,
                topic_name=topic.name,
                partition_racks=racks,
            )
        found.append(metadata)
    found.sort(key=attrgetter("topic_id"))
    return tuple(found)


def _racks_bytes(racks: tuple[PartitionRacks, ...]) -> int:
    """Approximate bytes of the racks in a record."""
    return sum([8 + sum([2 + len(name.encode()) for name in one.racks]) for one in racks])


def epoch_step(
    groups: GroupContext, group_id: str, before: Before | None, ctx: Context, builder: DecisionBuilder
) -> Step:
    """Write records 4 and 3 where they are due. `before` is None if membership did not change.

    Bumps the epoch if `builder` already has a reason (a member joined, left or changed its subscription) or
    this step finds one: a subscribed topic or the preferred assignor changed."""
    group = groups.projection.groups[group_id]
    if groups.catalog_is_behind(group, ctx):
        topics = group.topics
    else:
        topics = _compare_topics(groups, group, before, ctx, builder)
    if before is not None and before.assignor is not None and group.num_members:
        assignor = preferred_assignor(group, ctx.settings.for_group(group_id).assignors)
        if assignor != before.assignor:
            builder.because(ReasonKind.ASSIGNOR_CHANGED, detail=f"{before.assignor} to {assignor}")
            groups.pacing.forgive(group_id)
    epoch = group.epoch + 1 if builder.reasons else group.epoch
    records: list[RawRecord] = []
    if topics != group.topics or group.partition_metadata is None:
        records.append(writes.subscribed_topics(group_id, topics, epoch, ctx.catalog.version))
    if epoch != group.epoch:
        records.append(writes.group_epoch(group, epoch, ctx.wall_ms))
        groups.pacing.bumped_at[group_id] = ctx.next_index
        groups.bumped_ms[group_id] = ctx.wall_ms
    if records:
        yield records


def _compare_topics(
    groups: GroupContext, group: Group, before: Before | None, ctx: Context, builder: DecisionBuilder
) -> tuple[TopicMetadata, ...]:
    """The group's topics in the current catalog.

    Adds a reason for each topic that changed under an existing subscription."""
    settings = ctx.settings.for_group(group.group_id)
    asks = preferred_assignor(group, settings.assignors) in settings.rack_assignors
    checked = ctx.catalog.version, asks
    same_names = before is None or before.names == group.subscriptions.keys()
    if same_names and groups.checked_version.get(group.group_id) == checked:
        return group.topics
    groups.checked_version[group.group_id] = checked
    racks_bytes_max = groups.limits.group_racks_bytes_max if asks else 0
    topics = subscription_metadata(group, ctx.catalog, racks_bytes_max=racks_bytes_max)
    if topics == group.topics or group.partition_metadata is None:
        return topics
    old = {topic.topic_name: topic for topic in group.topics}
    new = {topic.topic_name: topic for topic in topics}
    stayed = group.subscriptions.keys() if before is None else before.names & group.subscriptions.keys()
    for name in sorted(name for name in stayed if old.get(name) != new.get(name))[:REASONS_KEPT]:
        kind, detail = _what_changed(old.get(name), new.get(name))
        builder.because(kind, topic=name, detail=detail)
        builder.refer(METADATA_SHARD, ctx.catalog.changed_at(name))
    return topics


def _what_changed(old: TopicMetadata | None, new: TopicMetadata | None) -> tuple[ReasonKind, str]:
    if old is None:
        assert new is not None
        return ReasonKind.TOPIC_CREATED, f"{new.num_partitions} partitions"
    if new is None:
        return ReasonKind.TOPIC_DELETED, f"{old.num_partitions} partitions"
    if old.topic_id != new.topic_id:
        return ReasonKind.TOPIC_RECREATED, f"{old.num_partitions} to {new.num_partitions} partitions"
    if old.num_partitions == new.num_partitions:
        return ReasonKind.TOPIC_RACKS_CHANGED, ""
    return ReasonKind.TOPIC_GROWN, f"{old.num_partitions} to {new.num_partitions} partitions"
