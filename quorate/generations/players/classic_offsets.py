"""The work of a classic member and its offsets, as Kafka's consumer has them under enable.auto.commit.

It begins where OffsetFetch says. It commits in an interval while its group is stable, before it joins again,
and before it leaves. An eager member stops before the commit that precedes JoinGroup; a cooperative one works
on, and what it does after that commit is done again by the next owner of a partition that moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from client.classic_member import EAGER, ClassicMachine, Part
from cluster.simulator.talking import RETRY_MS, Caller
from quorate.generations.contest import COMMIT_MS, POLL_INTERVAL_MS
from quorate.generations.players.beginnings import Beginnings, is_retried
from quorate.generations.players.on_cluster import PlayedMember


class ClassicOffsets:
    """Has the program begin and stop, and commits."""

    def __init__(self, member: PlayedMember, core: ClassicMachine, caller: Caller) -> None:
        self._member, self._core, self._caller = member, core, caller
        self._host = member.host
        self._work = Beginnings(member, caller, self._owned)
        self._has_stopped = self._is_committed = self._is_committing = False
        self._commit_ms = 0.0

    def own(self) -> None:
        """Work on what the member owns; called where a poll would call on_assign or on_revoke."""
        self._work.own()

    def _owned(self) -> set[Part]:
        return set() if self._has_stopped else self._core.owned

    def poll(self) -> None:
        """Commit if it is time to."""
        now_ms = self._host.monotonic_ms()
        if (
            self._work.parts
            and self._core.is_stable
            and not self._is_committing
            and now_ms >= self._commit_ms
        ):
            self._is_committing = True
            self._commit_ms = now_ms + COMMIT_MS
            self._commit(self._member.positions(self._work.parts), self._committed)

    @property
    def must_commit(self) -> bool:
        """Whether a commit comes before JoinGroup."""
        return bool(self._work.parts and self._core.owned) and not self._is_committed

    def joined(self) -> None:
        """A round has ended, and the member owns what it was given."""
        self._has_stopped = self._is_committed = False
        self._commit_ms = self._host.monotonic_ms() + COMMIT_MS

    def before_join(self, then: Callable[[], None]) -> None:
        """Commit, having stopped if the protocol is eager; then call `then`."""
        self._is_committed = True
        self._release(then, stops=self._core.protocol == EAGER)

    def before_leave(self, then: Callable[[], None]) -> None:
        """Stop and commit; then call `then`."""
        self._release(then, stops=True)

    def _release(self, then: Callable[[], None], *, stops: bool) -> None:
        positions = self._member.positions(self._work.parts & self._core.owned)
        if stops:
            self._has_stopped = True
            self.own()
        if not positions:
            then()
            return
        until_ms = self._host.monotonic_ms() + POLL_INTERVAL_MS

        def ended(is_over: bool) -> None:
            if is_over or self._host.monotonic_ms() >= until_ms:
                then()
            else:
                self._host.call_later(RETRY_MS, self._commit, positions, ended)

        self._commit(positions, ended)

    def _commit(self, positions: dict[Part, int], then: Callable[[bool], None]) -> None:
        """Call `then` with whether that was all: committed, or refused for good."""
        out = self._core.commit(positions)

        def answered(answer: Any) -> None:
            codes = set() if answer is None else {one.partitions[0].error_code for one in answer.topics}
            then(not is_retried(self._caller, answer, codes))

        self._caller.with_coordinator(lambda connection: connection.ask(*out, answered))

    def _committed(self, is_over: bool) -> None:
        self._is_committing = False
        if not is_over:
            self._commit_ms = 0.0
