"""Members that go: by their own leave, or because a deadline passed.

All members of a group whose time has come in one turn go in one decision. Tombstones, the bump, and (unlike
Kafka, which waits for somebody's next heartbeat) the target of those who stay, at once, so that freed
partitions do not lie idle for a heartbeat interval.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator import writes
from coordinator.api import Context, Draft, Steps
from coordinator.core import Core
from coordinator.epochs import Before, Step, epoch_step, target_step
from records import MemberState, RawRecord, ReasonKind, Trigger


def leave(core: Core, group_id: str, member_id: str, ctx: Context, draft: Draft) -> Step:
    """A member says that it goes (epoch −1). The epoch that it had is not checked (C.4)."""
    group = core.consumer_group(group_id)
    core.require_catalog(group, ctx)
    core.consumer_member(group, member_id)
    draft.trigger = Trigger.MEMBER_LEFT
    draft.because(ReasonKind.MEMBER_LEFT, member_id=member_id)
    yield from _remove(core, group_id, [member_id], ctx, draft)


def expire(core: Core, group_id: str, ctx: Context, draft: Draft) -> Steps:
    """Removes the members of one group whose session or rebalance timeout is over, if it still is."""
    due = core.expired.pop(group_id)
    group = core.projection.groups.get(group_id)
    gone: list[str] = []
    for member_id, (trigger, deadline) in sorted(due.items()):
        member = group.member(member_id) if group is not None else None
        if member is None or core.was_rearmed(trigger, (group_id, member_id), deadline, ctx):
            continue
        if trigger is Trigger.REBALANCE_EXPIRED and (
            member.current.state is not MemberState.UNREVOKED_PARTITIONS
            or member.current.epoch != deadline.member_epoch
        ):
            continue
        gone.append(member_id)
        kind = (
            ReasonKind.SESSION_EXPIRED if trigger is Trigger.SESSION_EXPIRED else ReasonKind.REBALANCE_EXPIRED
        )
        draft.because(kind, member_id=member_id)
        draft.expiries.append(deadline.evidence(member_id))
        draft.trigger = (
            Trigger.SESSION_EXPIRED if trigger is Trigger.SESSION_EXPIRED else draft.trigger or trigger
        )
    if gone:
        yield from _remove(core, group_id, gone, ctx, draft)
    return None


def _remove(core: Core, group_id: str, member_ids: Sequence[str], ctx: Context, draft: Draft) -> Step:
    group = core.projection.groups[group_id]
    before = Before.of(group, ctx, group_id)
    tombstones: list[RawRecord] = []
    for member_id in member_ids:
        tombstones += writes.member_tombstones(group, member_id)
    yield tombstones
    for member_id in member_ids:
        core.forget_member(group_id, member_id)
    yield from epoch_step(core, group_id, before, ctx, draft)
    yield from target_step(core, group_id, ctx, draft)
