"""Replies that wait until what they say is durable, and until it is proven that this node may say it.

A reply is held with the index of the last entry that it may reveal, and with a moment since when leadership
must have been proven: a read's arrival, for a write nothing of its own, as the commit of its entry is proof
enough. Indexes, moments and deadlines only grow, so one queue in order of arrival serves for release, for
expiry and for failure.

What must stay true: each reply is answered exactly once; none before its index is committed and its proof
obtained; in the order of their arrival; none waits longer than the time-out.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cluster.runtime.answers import Why, refusal

LOG = logging.getLogger("quorate.runtime")

Reply = Callable[[object], None]

NO_PROOF = -math.inf
"""The moment of a reply that needs no proof of leadership."""


@dataclass(slots=True)
class Question:
    """A request together with whom to answer; enough to refuse it in its own shape.

    While it is held: what to answer, once which index is committed and which proof obtained, and until when.
    """

    api_key: int
    api_version: int
    request: object
    reply: Reply
    response: object = None
    index: int = 0
    proof_ms: float = NO_PROOF
    deadline_ms: float = 0.0
    has_written: bool = False
    """Whether any of its decisions left records."""

    def answer(self, response: object) -> None:
        """Hands the response over. A listener's failure must not keep other replies from going."""
        try:
            self.reply(response)
        except Exception:
            LOG.exception("a reply to API %d could not be handed over", self.api_key)

    def refuse(self, why: Why, message: str = "") -> None:
        self.answer(self.refusal(why, message))

    def refusal(self, why: Why, message: str = "") -> object:
        return refusal(why, self.api_key, self.api_version, self.request, message)


class Barrier(Question):
    """Somebody who asks nothing, and wants to know when a read of this moment would be answered: told None
    then, or why it would be refused."""

    __slots__ = ()

    def __init__(self, told: Callable[[Any], None]) -> None:
        super().__init__(-1, 0, None, told)

    def refuse(self, why: Why, message: str = "") -> None:
        self.answer(why)


class HeldReplies:
    """The replies of one shard that wait for its log, or for its peers."""

    def __init__(self, timeout_ms: float) -> None:
        self._timeout_ms = timeout_ms
        self._queue: deque[Question] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def next_deadline_ms(self) -> float | None:
        return self._queue[0].deadline_ms if self._queue else None

    def hold(
        self, index: int, now_ms: float, question: Question, response: object, proof_ms: float = NO_PROOF
    ) -> None:
        if self._queue:
            last = self._queue[-1]
            assert index >= last.index, "indexes only grow"
            proof_ms = max(proof_ms, last.proof_ms)
        question.response, question.index, question.proof_ms = response, index, proof_ms
        question.deadline_ms = now_ms + self._timeout_ms
        self._queue.append(question)

    def release(self, commit_index: int, proven_ms: float = math.inf) -> None:
        """Answers, oldest first, everything that is durable now and whose proof is there."""
        queue = self._queue
        while queue and queue[0].index <= commit_index and queue[0].proof_ms <= proven_ms:
            question = queue.popleft()
            question.answer(question.response)

    def expire(self, now_ms: float) -> int:
        """Refuses what has waited too long; returns how many."""
        count = 0
        while self._queue and self._queue[0].deadline_ms <= now_ms:
            self._queue.popleft().refuse(Why.TIMED_OUT)
            count += 1
        return count

    def fail(self, why: Why) -> None:
        """Refuses everything: nobody will know the outcome here any more."""
        queue, self._queue = self._queue, deque()
        for question in queue:
            question.refuse(why)

    def shift_deadlines(self, gap_ms: float) -> None:
        """The loop stood still for `gap_ms`: the disk could not have answered meanwhile either."""
        for question in self._queue:
            question.deadline_ms += gap_ms
