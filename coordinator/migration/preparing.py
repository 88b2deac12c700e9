"""Preparing the upgrade of a large group, some members in each turn of the event loop.

The turns write nothing and change nothing that a request sees; others are served in between. The decision
itself comes last. It checks the group as if nothing had been prepared, so members may come, go and join again
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

from coordinator.api import Context, DecisionBuilder, Steps
from coordinator.group_context import GroupContext
from coordinator.leader_state.classic_group import ClassicGroup
from coordinator.migration.upgraded_members import prepare_member
from coordinator.migration.upgrading import upgradable

MEMBERS_AT_ONCE = 200
"""Members prepared in one turn: about 5 ms. A group with no more is upgraded without preparation."""

Answer = Callable[[Context, DecisionBuilder], Steps]


def is_large(groups: GroupContext, group_id: str) -> bool:
    """Whether this is a classic group that is too large to be upgraded in one turn."""
    served = groups.classic.get(group_id)
    return served is not None and len(served.members) > MEMBERS_AT_ONCE


def is_prepared_first(groups: GroupContext, group_id: str, ctx: Context) -> bool:
    """Whether a join of the consumer protocol upgrades a group that is too large for one turn."""
    served = groups.classic.get(group_id)
    return served is not None and is_large(groups, group_id) and upgradable(groups, served, ctx)


def prepare_upgrade(groups: GroupContext, group_id: str, answer: Answer) -> Answer:
    """Return the steps that prepare the group's upgrade in turns before `answer` decides."""
    return partial(_prepare_some, groups, group_id, answer, 0)


def _prepare_some(
    groups: GroupContext, group_id: str, answer: Answer, start: int, ctx: Context, builder: DecisionBuilder
) -> Steps:
    classic = groups.classic.get(group_id)
    end = start + MEMBERS_AT_ONCE
    if classic is not None and classic.members:
        _prepare_members(groups, classic, start, end, ctx)
    if classic is not None and len(classic.members) > end:
        builder.continuation = partial(_prepare_some, groups, group_id, answer, end)
    else:
        builder.continuation = answer
    yield from ()
    return None


def _prepare_members(groups: GroupContext, classic: ClassicGroup, start: int, end: int, ctx: Context) -> None:
    protocol = classic.protocol or classic.best_protocol()
    for member in islice(classic.members.values(), start, end):
        prepare_member(classic, member, protocol, ctx.catalog, groups.limits)
