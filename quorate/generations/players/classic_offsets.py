"""The work of a classic member and its offsets, as Kafka's consumer has them under enable.auto.commit.

It begins where OffsetFetch says. It commits in an interval while its group is stable, before it joins again,
and before it leaves. An eager member stops before the commit that precedes JoinGroup; a cooperative one works
on, and what it does after that commit is done again by the next owner of a partition that moves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from client.classic_member import EAGER, ClassicMachine, Part
from client.core.member.states import COORDINATOR_MOVED
from cluster.simulator.talking import RETRY_MS, Caller
from quorate.generations.contest import COMMIT_MS, POLL_INTERVAL_MS
from quorate.generations.players.on_cluster import PlayedMember
from wire.errors import ErrorCode

_RETRIED = {*COORDINATOR_MOVED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class ClassicOffsets:
    """Knows which partitions the program works on, tells the ledger, and commits."""

    def __init__(self, member: PlayedMember, core: ClassicMachine, caller: Caller) -> None:
        self._member, self._core, self._caller = member, core, caller
        self._host = member.host
        self._parts: set[Part] = set()
        """What the program works on."""
        self._asked: set[Part] = set()
        """What it owns and whose offset is asked for."""
        self._begins: dict[Part, int] = {}
        """What it owns and begins with the next poll, with the committed offset."""
        self._question = 0
        """Number of the newest OffsetFetch whose answer counts."""
        self._has_stopped = self._is_committed = self._is_committing = False
        self._commit_ms = 0.0

    def own(self) -> None:
        """Work on what the member owns; called where a poll would call on_assign or on_revoke."""
        owned = set() if self._has_stopped else self._core.owned
        if not self._asked <= owned:
            self._asked.clear()
            self._question += 1
        new = owned - self._parts - self._asked - self._begins.keys()
        begins = dict.fromkeys(self._parts & owned, 0)
        begins |= {part: offset for part, offset in self._begins.items() if part in owned}
        self._begins.clear()
        if begins.keys() != self._parts:
            self._parts = {*begins}
            self._member.works_on(begins)
        if new:
            self._asked |= new
            self._ask(self._question, new)

    def poll(self) -> None:
        """Commit if it is time to."""
        now_ms = self._host.monotonic_ms()
        if self._parts and self._core.is_stable and not self._is_committing and now_ms >= self._commit_ms:
            self._is_committing = True
            self._commit_ms = now_ms + COMMIT_MS
            self._commit(self._member.positions(self._parts), self._committed)

    @property
    def must_commit(self) -> bool:
        """Whether a commit comes before JoinGroup."""
        return bool(self._parts and self._core.owned) and not self._is_committed

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
        positions = self._member.positions(self._parts & self._core.owned)
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
            then(not self._is_retried(answer, codes))

        self._caller.with_coordinator(lambda connection: connection.ask(*out, answered))

    def _committed(self, is_over: bool) -> None:
        self._is_committing = False
        if not is_over:
            self._commit_ms = 0.0

    def _ask(self, question: int, parts: set[Part]) -> None:
        out = self._core.fetch_committed(parts)
        told = partial(self._told, question, parts)
        self._caller.with_coordinator(lambda connection: connection.ask(*out, told))

    def _told(self, question: int, parts: set[Part], answer: Any) -> None:
        if question != self._question:
            return
        if self._is_retried(answer, set() if answer is None else {answer.groups[0].error_code}):
            self._host.call_later(RETRY_MS, self._ask, question, parts)
            return
        self._asked -= parts
        for topic in answer.groups[0].topics:
            for one in topic.partitions:
                self._begins[topic.name, one.partition_index] = max(one.committed_offset, 0)
        if not self._member.slow_ms:
            self.own()

    def _is_retried(self, answer: Any, codes: set[int]) -> bool:
        if answer is None or not codes.isdisjoint(COORDINATOR_MOVED):
            self._caller.moved()
        return answer is None or not codes.isdisjoint(_RETRIED)
