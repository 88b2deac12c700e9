"""The schedule of every request under bounds so low that each decision that may be split is split."""

from __future__ import annotations

import random
from collections.abc import Callable

from coordinator.limits import Limits
from tests.support.leader_state_checks import Historian, nothing_is_left
from tests.support.schedules import GROUPS, STATIC, TOPICS
from tests.support.schedules_of_every_request import EVERYBODY, REGEXES, EveryRequest, steps
from tests.support.world import LeadLost
from wire.apis import ApiKey
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

IN_PARTS = Limits(
    assign_inline_cost_max=0,
    resolve_inline_cost_max=0,
    install_records_max=1,
    expiries_max=1,
    removal_bytes_max=700,
    expiry_slice_max=2,
    resolved_names_at_once_max=0,
)


class InParts(EveryRequest):
    def __init__(self, limits: Limits = IN_PARTS) -> None:
        super().__init__(limits)
        self.world.after_entry.append(Historian())
        self.is_between = False

    def remember(self) -> None:
        """Adopt the offsets that are stored now: the outcome of a request was not reported."""
        found = {group: self.world.fetch(group) for group in GROUPS}
        self.committed = {
            (group, topic, partition): offset
            for (group, topic, partition), offset in self.committed.items()
            if found[group].get((topic, partition)) == offset
        }

    def between(self, what: Callable[[], object]) -> None:
        def once() -> None:
            if not self.is_between:
                self.is_between = True
                what()
                self.is_between = False

        self.world.between_decisions = once

    def days_pass(self, days: int) -> None:
        """Let all earlier commits expire. Turns of the loop pass too, so that no target stays deferred."""
        self.world.turn = 0
        super().days_pass(days + 8)

    def delete_groups(self, what: Callable[[], object]) -> None:
        self.between(what)
        request = DeleteGroupsRequest(groups_names=[*GROUPS, GROUPS[0]])
        try:
            answer = self.world.handle(ApiKey.DELETE_GROUPS, 2, request)
            assert {one.error_code for one in answer.results} <= {0, 68, 69}
        except LeadLost:
            pass
        self.world.between_decisions = lambda: None
        self.remember()

    def remove_many(self, group: str, what: Callable[[], object]) -> None:
        self.between(what)
        asked = [MemberIdentity(member_id=self.client(group, name).member_id) for name in EVERYBODY]
        try:
            answer = self.world.handle(
                ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(group_id=group, members=[*asked, asked[0]])
            )
            assert len(answer.members) in (0, len(asked) + 1)
        except LeadLost:
            pass
        self.world.between_decisions = lambda: None

    def work_once(self) -> None:
        """Take one decision of due work."""
        self.world.work_once()

    def commit_everywhere(self, group: str, name: str) -> None:
        """Commit to all partitions without a member id, which only a group without members accepts."""
        topics = [self.world.catalog.view.topic(topic) for topic in sorted(TOPICS)]
        asked = {(t.name, number): 7 for t in topics if t is not None for number in range(t.num_partitions)}
        if asked:
            for (topic, partition), code in self.world.commit(asked, group_id=group).items():
                if code == 0:
                    self.committed[group, topic, partition] = 7

    def all_go(self) -> None:
        """Let every member leave, delete the groups, and let time pass."""
        for client in self.clients.values():
            client.epoch = client.epoch or 1
            client.leave()
        self.world.sleep(3_600_000)
        answer = self.world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=sorted(GROUPS)))
        assert {one.error_code for one in answer.results} <= {0, 69}
        self.world.sleep(3_600_000)
        nothing_is_left(self.world)


def steps_in_parts(machine: InParts, rng: random.Random) -> list[Callable[[], object]]:
    """Return the steps of every schedule and those that run in parts, with other steps in between."""

    def group() -> str:
        return rng.choice(GROUPS)

    everything = steps(machine, rng)
    between: list[Callable[[], object]] = [
        machine.failover,
        machine.world.lead_again,
        machine.work_once,
        machine.work_once,
        lambda: machine.join(group(), rng.choice(EVERYBODY), sorted(TOPICS)),
        lambda: machine.come_back(group(), rng.choice(STATIC), True, False),
    ]
    own: list[Callable[[], object]] = [
        machine.work_once,
        machine.work_once,
        machine.work_once,
        machine.work_once,
        machine.failover,
        machine.world.lead_again,
        machine.world.renew,
        lambda: machine.subscribe_by_expression(group(), rng.choice(EVERYBODY), rng.choice(REGEXES)),
        lambda: machine.everybody(group()),
        lambda: machine.delete_groups(rng.choice(between)) if rng.random() < 0.3 else None,
        lambda: machine.remove_many(group(), rng.choice(between)) if rng.random() < 0.3 else None,
        lambda: machine.commit_everywhere(group(), rng.choice(EVERYBODY)),
    ]
    return everything + own
