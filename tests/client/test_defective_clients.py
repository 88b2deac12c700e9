"""The stories notice a client with a defect: each of these mutants breaks one rule of the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from client.core.commits import CommitManager
from client.core.consumed import ConsumedRecords
from client.core.effects import Steps
from client.core.events import AckPartitionRevokedEvent, FetchResponseEvent, RevokePartitionsEvent
from client.core.fetch.handler import FetchHandler
from client.core.member.membership import MembershipManager
from client.core.member.steps import Acknowledgement, ApplicationSteps
from client.core.rebalance import ApplicationRounds
from tests.client.stories import play

STORIES: Final = 150
"""So many stories are played to each mutant, until one fails."""

Patch = pytest.MonkeyPatch


def tells_a_revocation_before_its_callback_has_ended(patch: Patch) -> None:
    patch.setattr(MembershipManager, "told", property(lambda self: self.target | frozenset(self.owned)))


def keeps_its_partitions_when_it_joins_again(patch: Patch) -> None:
    def lose_nothing(self: MembershipManager, now_ms: float) -> None:
        self.owned, self.revoking, self.target, self.member_epoch = {}, {}, frozenset(), 0
        self._released(None, now_ms)

    patch.setattr(MembershipManager, "_lose_all", lose_nothing)


def leaves_before_its_callback_has_ended(patch: Patch) -> None:
    release = MembershipManager._release_all

    def release_and_go(self: MembershipManager, now_ms: float) -> None:
        release(self, now_ms)
        if self.steps.running is not None:
            self._released(None, now_ms)

    patch.setattr(MembershipManager, "_release_all", release_and_go)


def hears_acknowledgements_of_earlier_rounds(patch: Patch) -> None:
    def acknowledge(self: ApplicationSteps, event: Acknowledgement, now_ms: float) -> None:
        step, self.running = self.running, None
        if step is not None:
            step.then(event, now_ms)

    patch.setattr(ApplicationSteps, "acknowledge", acknowledge)


def acknowledges_a_revocation_before_its_callback(patch: Patch) -> None:
    revoke = ApplicationRounds._revoke

    def acknowledge_and_revoke(self: ApplicationRounds, event: RevokePartitionsEvent) -> Steps[None]:
        self._send(AckPartitionRevokedEvent(round=event.round))
        return revoke(self, event)

    patch.setattr(ApplicationRounds, "_revoke", acknowledge_and_revoke)


def commits_what_it_has_given_up_meanwhile(patch: Patch) -> None:
    patch.setattr(CommitManager, "_obstacle", lambda self, call: None)


def commits_what_was_not_handed_out(patch: Patch) -> None:
    def positions(self: ConsumedRecords, partitions: Any) -> Any:
        known = self._fetched.positions
        return {at: known[at] for at in partitions if at in known}

    patch.setattr(ConsumedRecords, "positions", positions)


def hands_out_records_of_what_it_gave_up(patch: Patch) -> None:
    patch.setattr(
        ApplicationRounds,
        "_take_out",
        lambda self, partitions: self.assignment.difference_update(partitions),
    )


def drops_a_batch(patch: Patch) -> None:
    add, seen = FetchHandler.add, [0]

    def add_most(self: FetchHandler, event: FetchResponseEvent) -> None:
        seen[0] += 1
        if seen[0] % 20:
            add(self, event)

    patch.setattr(FetchHandler, "add", add_most)


def stays_away_after_it_was_stale(patch: Patch) -> None:
    def poll_called(self: MembershipManager, event: object, now_ms: float) -> None:
        self.polled_ms = now_ms

    patch.setattr(MembershipManager, "poll_called", poll_called)


def waits_for_callbacks_for_ever_when_it_closes(patch: Patch) -> None:
    never = property(lambda self: None, lambda self, value: None)
    patch.setattr(ApplicationRounds, "deadline_ms", never, raising=False)


MUTANTS: Final = {
    commits_what_was_not_handed_out: 0,
    leaves_before_its_callback_has_ended: 4,
    acknowledges_a_revocation_before_its_callback: 4,
    keeps_its_partitions_when_it_joins_again: 16,
    drops_a_batch: 8,
    tells_a_revocation_before_its_callback_has_ended: 11,
    hears_acknowledgements_of_earlier_rounds: 41,
    hands_out_records_of_what_it_gave_up: 24,
    commits_what_it_has_given_up_meanwhile: 82,
    waits_for_callbacks_for_ever_when_it_closes: 45,
    stays_away_after_it_was_stale: 150,
}
"""Each with the first seed that noticed it. After a change that moves the draws it may be another one."""


@pytest.mark.parametrize(("mutant", "first"), MUTANTS.items())
def test_the_stories_notice_a_client_with_a_defect(
    mutant: Callable[[Patch], None], first: int, monkeypatch: Patch
) -> None:
    mutant(monkeypatch)
    for seed in range(first, first + STORIES):
        try:
            play(seed)
        except Exception as error:
            print(f"{mutant.__name__}: seed {seed}: {str(error).splitlines()[:1]}")
            return
    pytest.fail(f"no story notices a client that {mutant.__name__}")
