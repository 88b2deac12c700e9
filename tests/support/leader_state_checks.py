"""Checks of a leader's state beside the log: no work that is due is forgotten, and none stays for ever.

Decisions may not depend on that state, but a missing timer, check, child process or round keeps a group
waiting for ever, and no record shows it. `nothing_is_forgotten` holds between any two decisions;
`nothing_is_left` holds once all groups are gone.
"""

from __future__ import annotations

from coordinator.api import JobKind
from coordinator.group_context import GroupContext
from coordinator.state.model import Group
from history.checking.invariants import InvariantChecker
from records import ConsumerGroupMetadataKey, MemberState
from tests.support.world import Entry, World


class Historian:
    """Checks every entry by history's invariants, and that every new epoch has a reason."""

    def __init__(self) -> None:
        self.checker = InvariantChecker()
        self.epochs: dict[str, int] = {}

    def __call__(self, world: World, entry: Entry) -> None:
        self.checker.entry(entry.index, entry.records)
        assert not self.checker.violations, self.checker.violations
        assert entry.cause.trigger, "an entry that nothing triggered"
        for record in entry.typed():
            if not isinstance(record.key, ConsumerGroupMetadataKey):
                continue
            group_id, value = record.key.group_id, record.value
            epoch = value.epoch if value is not None else 0
            if epoch > self.epochs.get(group_id, 0):
                assert entry.cause.reasons, f"{group_id} is at epoch {epoch}, and nobody can say why"
                first_is_empty = 7 not in entry.types and 6 in entry.types
                is_upgrade = -2 in entry.types  # from a generation that may not have been written
                assert is_upgrade or epoch <= self.epochs.get(group_id, 0) + 1 + first_is_empty
            self.epochs[group_id] = epoch


def nothing_is_forgotten(world: World) -> None:
    """Check that everything that a group waits for is under way."""
    groups = world.shard.groups
    for group_id, group in world.shard.projection.groups.items():
        for member in group.members.values():
            key = (group_id, member.member_id)
            assert groups.sessions.get(key) or key in _expired(groups), f"{key} has no session"
            is_to_revoke = member.current.state is MemberState.UNREVOKED_PARTITIONS and not member.is_away
            if is_to_revoke and not member.is_classic:  # its next Heartbeat tells it to join again
                assert groups.rebalances.get(key) or key in _expired(groups), f"{key} may revoke for ever"
        if group.is_consumer:
            _assert_target_comes(groups, group)
            _assert_expressions_come(groups, group)
        if group.is_empty:
            assert _is_looked_at(groups, group_id), f"{group_id} is empty and will stay"
    for group_id in world.shard.projection.offsets.group_ids():
        assert _is_looked_at(groups, group_id), f"nobody looks at the offsets of {group_id}"
    for group_id in world.shard.projection.old_ids:
        is_looked_at = _is_looked_at(groups, group_id)
        assert is_looked_at or not groups.is_empty(group_id), f"{group_id} has no consumers and will stay"
    for job in groups.jobs.values():
        assert any(one is job for one in world.jobs), f"{job.key} is waited for, and nobody works on it"


def _expired(groups: GroupContext) -> set[tuple[str, str]]:
    return {(group_id, member_id) for group_id, due in groups.expired.items() for member_id, _ in due}


def _is_looked_at(groups: GroupContext, group_id: str) -> bool:
    reading = groups.expiry.reading
    return group_id in groups.expiry or (reading is not None and reading.group_id == group_id)


def _assert_target_comes(groups: GroupContext, group: Group) -> None:
    if not group.num_members or group.epoch <= group.assignment_epoch:
        return
    group_id = group.group_id
    assert (
        groups.is_working(JobKind.ASSIGN, group_id)
        or group_id in groups.installs
        or group_id in groups.checks
        or groups.pacing.is_deferred(group_id)
    ), f"{group_id} is at epoch {group.epoch}, its target at {group.assignment_epoch}, and none is to come"


def _assert_expressions_come(groups: GroupContext, group: Group) -> None:
    group_id = group.group_id
    missing = group.regex_subscribers.keys() - group.regexes.keys()
    if missing - groups.resolutions.errors(group_id).keys():
        assert groups.is_working(JobKind.RESOLVE, group_id) or groups.resolutions.is_wanted(group_id), (
            f"{missing} of {group_id} will never be resolved"
        )


def nothing_is_left(world: World) -> None:
    """Check that all groups are gone, and all state kept for them."""
    groups = world.shard.groups
    assert not world.shard.projection.groups
    assert not world.shard.projection.old_ids
    kept = {
        "sessions": len(groups.sessions),
        "rebalances": len(groups.rebalances),
        "looks": len(groups.expiry),
        "checks": groups.checks,
        "expired": groups.expired,
        "checked versions": groups.checked_version,
        "bumps": groups.bumped_ms,
        "moves": groups.moved_ms,
        "jobs": groups.jobs,
        "installs": groups.installs,
        "pacing": groups.pacing.group_ids(),
        "resolutions": groups.resolutions.group_ids(),
        "rounds": groups.client_side.rounds,
        "errors": groups.client_side.errors,
    }
    assert not any(kept.values()), {name: what for name, what in kept.items() if what}
