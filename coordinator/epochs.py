"""The steps that move a group: its epoch, then its target.

Both are shared by everything that changes a group: heartbeats, leaves, expiries, topic changes, the check
at the beginning of a term. `epoch_step` compares the group with the catalog, and bumps the epoch by one if
there is any reason to, whatever their number; every reason goes into the cause. `target_step` computes the
target of the new epoch, if the group's pacing and its assignment interval allow. They are generators: what
they yield is applied before they go on.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from coordinator import writes
from coordinator.api import Context, Draft
from coordinator.core import Core
from coordinator.limits import GroupSettings
from coordinator.model import Group
from coordinator.target import assignment_spec, install_records, preferred_assignor
from coordinator.topics import CatalogView
from records import METADATA_SHARD, RawRecord, ReasonKind, TopicMetadata

Step = Generator[list[RawRecord], None, None]

REASONS_KEPT = 100
"""Topic reasons per cause: enough to explain, and a change of thousands of topics still fits in an entry."""


@dataclass(frozen=True, slots=True)
class Before:
    """What a change of membership may change, as it was before it."""

    names: frozenset[str]
    assignor: str | None
    """None while the group has no members: the first ones change nobody's assignor."""

    @staticmethod
    def of(group: Group | None, ctx: Context, group_id: str) -> Before:
        if group is None or not group.num_members:
            return Before(frozenset(), None)
        configured = ctx.settings.for_group(group_id).assignors
        return Before(frozenset(group.subscriptions), preferred_assignor(group, configured))


def subscription_metadata(group: Group, catalog: CatalogView) -> tuple[TopicMetadata, ...]:
    """The subscribed topics that exist, by topic id."""
    found = [
        TopicMetadata(num_partitions=topic.num_partitions, topic_id=topic.topic_id, topic_name=topic.name)
        for name in group.subscriptions
        if (topic := catalog.topic(name)) is not None
    ]
    found.sort(key=lambda topic: topic.topic_id)
    return tuple(found)


def epoch_step(core: Core, group_id: str, before: Before | None, ctx: Context, draft: Draft) -> Step:
    """Records 4 and 3 where they are due. `before` is None when no membership changed.

    Bumps if `draft` has a reason already (a member came, went or subscribed anew) or finds one: a subscribed
    topic changed, or the preferred assignor did."""
    group = core.projection.groups[group_id]
    if core.catalog_is_behind(group, ctx):
        topics = group.topics
    else:
        topics = _compare_topics(core, group, before, ctx, draft)
    if before is not None and before.assignor is not None and group.num_members:
        assignor = preferred_assignor(group, ctx.settings.for_group(group_id).assignors)
        if assignor != before.assignor:
            draft.because(ReasonKind.ASSIGNOR_CHANGED, detail=f"{before.assignor} to {assignor}")
    epoch = group.epoch + 1 if draft.reasons else group.epoch
    records: list[RawRecord] = []
    if topics != group.topics or group.partition_metadata is None:
        records.append(writes.subscribed_topics(group_id, topics, epoch, ctx.catalog.version))
    if epoch != group.epoch:
        records.append(writes.group_epoch(group, epoch, ctx.wall_ms))
        core.pacing.bumped_at[group_id] = ctx.next_index
        core.bumped_ms[group_id] = ctx.wall_ms
    if records:
        yield records


def _compare_topics(
    core: Core, group: Group, before: Before | None, ctx: Context, draft: Draft
) -> tuple[TopicMetadata, ...]:
    """The group's topics by today's catalog, with a reason for each that changed under a subscription."""
    version = ctx.catalog.version
    same_names = before is None or before.names == group.subscriptions.keys()
    if same_names and core.checked_version.get(group.group_id) == version:
        return group.topics
    core.checked_version[group.group_id] = version
    topics = subscription_metadata(group, ctx.catalog)
    if topics == group.topics or group.partition_metadata is None:
        return topics
    old = {topic.topic_name: topic for topic in group.topics}
    new = {topic.topic_name: topic for topic in topics}
    stayed = group.subscriptions.keys() if before is None else before.names & group.subscriptions.keys()
    for name in sorted(name for name in stayed if old.get(name) != new.get(name))[:REASONS_KEPT]:
        kind, detail = _what_changed(old.get(name), new.get(name))
        draft.because(kind, topic=name, detail=detail)
        draft.refer(METADATA_SHARD, ctx.catalog.changed_at(name))
    return topics


def _what_changed(old: TopicMetadata | None, new: TopicMetadata | None) -> tuple[ReasonKind, str]:
    if old is None:
        assert new is not None
        return ReasonKind.TOPIC_CREATED, f"{new.num_partitions} partitions"
    if new is None:
        return ReasonKind.TOPIC_DELETED, f"{old.num_partitions} partitions"
    if old.topic_id != new.topic_id:
        return ReasonKind.TOPIC_RECREATED, f"{old.num_partitions} to {new.num_partitions} partitions"
    return ReasonKind.TOPIC_GROWN, f"{old.num_partitions} to {new.num_partitions} partitions"


def target_step(core: Core, group_id: str, ctx: Context, draft: Draft) -> Step:
    """Records 7 and 6, if the group's epoch has no target yet and it is the group's turn.

    An assignor that fails leaves the old target in force; its error is kept for the describe views, and it is
    asked again later. A group that has no target at all then gets an empty one, so that its members have an
    epoch to heartbeat with."""
    group = core.projection.groups[group_id]
    if group.epoch <= group.assignment_epoch:
        return
    if not group.num_members:
        core.pacing.forget(group_id)
        yield [writes.target_epoch(group_id, group.epoch, 0)]
        return
    settings = ctx.settings.for_group(group_id)
    is_behind = core.catalog_is_behind(group, ctx)
    wait_ms = core.limits.target_retry_ms if is_behind else _interval_left_ms(core, group, settings, ctx)
    if wait_ms or not core.pacing.may_compute(group_id, ctx):
        core.pacing.defer(group_id, ctx, wait_ms)
        yield from _empty_first_target(group, ctx)
        return
    name = preferred_assignor(group, settings.assignors)
    started_ms = ctx.stopwatch_ms()
    try:
        spec = assignment_spec(group)
        answer = core.assignors[name].assign(spec).members
        records = install_records(group, spec, answer, group.epoch, ctx, core.limits, name)
    except Exception as error:  # an assignor may be anybody's code; the group must live on without it
        draft.warning = f"Assignor {name} failed for group {group_id}: {error!r}"
        core.pacing.failed(group_id, ctx, draft.warning)
        yield from _empty_first_target(group, ctx)
        return
    yield records
    core.pacing.computed(group_id, ctx, ctx.stopwatch_ms() - started_ms)


def _interval_left_ms(core: Core, group: Group, settings: GroupSettings, ctx: Context) -> float:
    """How long the group's assignment interval keeps it from its next target; its first one never waits."""
    last = group.target_metadata
    timestamp_ms = last.assignment_timestamp_ms if last is not None else 0
    interval_ms = settings.assignment_interval_ms
    return core.pacing.interval_left_ms(group.group_id, timestamp_ms, interval_ms, ctx)


def _empty_first_target(group: Group, ctx: Context) -> Step:
    """A first target that nobody could compute is empty, and the epoch moves on to ask for another one."""
    if group.target_metadata is None:
        yield [
            writes.target_epoch(group.group_id, group.epoch, 0),
            writes.group_epoch(group, group.epoch + 1, ctx.wall_ms),
        ]
