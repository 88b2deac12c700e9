"""The offset at which the work on a partition begins: the committed one, which OffsetFetch tells."""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import partial
from typing import Any

from client.classic_member import Part, offset_fetch
from client.core.member.states import COORDINATOR_MOVED
from cluster.simulator.talking import RETRY_MS, Caller
from quorate.generations.contest import GROUP
from quorate.generations.players.on_cluster import PlayedMember
from wire.errors import ErrorCode

_RETRIED = {*COORDINATOR_MOVED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class Beginnings:
    """Knows which partitions a member's program works on, and tells the ledger.

    `owned` says what the program may work on now. It begins once it knows the committed offset."""

    def __init__(self, member: PlayedMember, caller: Caller, owned: Callable[[], Set[Part]]) -> None:
        self._member, self._caller, self._owned = member, caller, owned
        self.parts: frozenset[Part] = frozenset()
        """The partitions that the program works on."""
        self._asked: set[Part] = set()
        """The partitions that it may work on once their offsets arrive."""
        self._begins: dict[Part, int] = {}
        """The partitions that it begins with the next call of `own`, with their committed offsets."""
        self._question = 0
        """Number of the newest OffsetFetch whose answer counts."""

    def own(self) -> None:
        """Work on what is owned; call this after each change."""
        owned = self._owned()
        if not self._asked <= owned:
            self._asked.clear()
            self._question += 1
        new = owned - self.parts - self._asked - self._begins.keys()
        begins = dict.fromkeys(self.parts & owned, 0)
        begins |= {part: offset for part, offset in self._begins.items() if part in owned}
        self._begins.clear()
        if begins.keys() != self.parts:
            self.parts = frozenset(begins)
            self._member.works_on(begins)
        if new:
            self._asked |= new
            self._ask(self._question, new)

    def _ask(self, question: int, parts: Set[Part]) -> None:
        out = offset_fetch(GROUP, parts)
        told = partial(self._told, question, parts)
        self._caller.with_coordinator(lambda connection: connection.ask(*out, told))

    def _told(self, question: int, parts: Set[Part], answer: Any) -> None:
        if question != self._question:
            return
        if is_retried(self._caller, answer, set() if answer is None else {answer.groups[0].error_code}):
            self._member.host.call_later(RETRY_MS, self._ask, question, parts)
            return
        self._asked -= parts
        for topic in answer.groups[0].topics:
            for one in topic.partitions:
                self._begins[topic.name, one.partition_index] = max(one.committed_offset, 0)
        if not self._member.slow_ms:
            self.own()


def is_retried(caller: Caller, answer: Any, codes: Set[int]) -> bool:
    """Return whether a request with these errors is sent again; `answer` is None if there was none.

    If the coordinator has moved, it is looked up again."""
    if answer is None or not codes.isdisjoint(COORDINATOR_MOVED):
        caller.moved()
    return answer is None or not codes.isdisjoint(_RETRIED)
