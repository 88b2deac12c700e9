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
                assert epoch <= self.epochs.get(group_id, 0) + 1 + first_is_empty
            self.epochs[group_id] = epoch


def nothing_is_forgotten(world: World) -> None:
    """Check that everything that a group waits for is under way."""
    core = world.shard.core
    for group_id, group in world.shard.projection.groups.items():
        for member in group.members.values():
            key = (group_id, member.member_id)
            assert core.sessions.get(key) or key in _expired(core), f"{key} has no session"
            if member.current.state is MemberState.UNREVOKED_PARTITIONS and not member.is_away:
                assert core.rebalances.get(key) or key in _expired(core), f"{key} may revoke for ever"
        if group.is_consumer:
            _assert_target_comes(core, group)
            _assert_expressions_come(core, group)
        if group.is_empty:
            assert _is_looked_at(core, group_id), f"{group_id} is empty and will stay"
    for group_id in world.shard.projection.offsets.group_ids():
        assert _is_looked_at(core, group_id), f"nobody looks at the offsets of {group_id}"
    for job in core.jobs.values():
        assert any(one is job for one in world.jobs), f"{job.key} is waited for, and nobody works on it"


def _expired(core: GroupContext) -> set[tuple[str, str]]:
    return {(group_id, member_id) for group_id, due in core.expired.items() for member_id, _ in due}


def _is_looked_at(core: GroupContext, group_id: str) -> bool:
    reading = core.expiry.reading
    return group_id in core.expiry or (reading is not None and reading.group_id == group_id)


def _assert_target_comes(core: GroupContext, group: Group) -> None:
    if not group.num_members or group.epoch <= group.assignment_epoch:
        return
    group_id = group.group_id
    assert (
        core.is_working(JobKind.ASSIGN, group_id)
        or group_id in core.installs
        or group_id in core.checks
        or core.pacing.is_deferred(group_id)
    ), f"{group_id} is at epoch {group.epoch}, its target at {group.assignment_epoch}, and none is to come"


def _assert_expressions_come(core: GroupContext, group: Group) -> None:
    group_id = group.group_id
    missing = group.regex_subscribers.keys() - group.regexes.keys()
    if missing - core.resolutions.errors(group_id).keys():
        assert core.is_working(JobKind.RESOLVE, group_id) or core.resolutions.is_wanted(group_id), (
            f"{missing} of {group_id} will never be resolved"
        )


def nothing_is_left(world: World) -> None:
    """Check that all groups are gone, and all state kept for them."""
    core = world.shard.core
    assert not world.shard.projection.groups
    kept = {
        "sessions": len(core.sessions),
        "rebalances": len(core.rebalances),
        "looks": len(core.expiry),
        "checks": core.checks,
        "expired": core.expired,
        "checked versions": core.checked_version,
        "bumps": core.bumped_ms,
        "moves": core.moved_ms,
        "jobs": core.jobs,
        "installs": core.installs,
        "pacing": core.pacing.group_ids(),
        "resolutions": core.resolutions.group_ids(),
        "rounds": core.client_side.rounds,
        "errors": core.client_side.errors,
    }
    assert not any(kept.values()), {name: what for name, what in kept.items() if what}
