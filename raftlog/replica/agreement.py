"""Detects divergence: nodes compare hashes of the committed frames and of the state at equal indexes.

Different chains mean that logs have diverged, different states that applying is not deterministic; both are
worse than an outage.  Followers name their newest checkpoint in their answers; the leader compares it with
its own at that index.  When two differ, it asks all nodes for that very index:

    agreeing --a follower differs--> asking --a majority is equal--> the minority stops
       ^                               |----all answered, or the last question, none--> the shard is halted
       +----too late, a node silent----+

Checkpoints are taken at multiples of `CHAIN_STRIDE`, where every node passes, and at the end of an idle log.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from raftlog.consensus.messages import Checkpoint
from raftlog.env.errors import RaftlogError

CHECKPOINTS_KEPT = 256
"""Checkpoints kept: at one per 64 entries, nodes may be 16,000 entries apart and still compare."""
ANSWERS_WAIT_MS = 2000
"""Milliseconds to wait for answers of nodes in contact, which answer a heartbeat far sooner."""
QUESTIONS_MAX = 5
"""Questions while a node in contact does not answer: its disk stalls, or it is past that index."""


class Diverged(RaftlogError):
    """This node's history or state differs from the majority's."""


@dataclass(slots=True)
class _Question:
    """A checkpoint of this node that another node contradicts, and the answers of the others."""

    point: Checkpoint
    until_ms: float
    answers: dict[int, Checkpoint] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The checkpoint that a majority agrees on, if any, and the nodes that differ from it."""

    index: int
    right: Checkpoint | None
    wrong: tuple[int, ...]


class Agreement:
    """One node's checkpoints, and a leader's comparison of them with the others'."""

    def __init__(self, node_id: int, num_voters: int) -> None:
        self._node_id = node_id
        self._majority = num_voters // 2 + 1
        self._states: dict[int, int] = {}
        self._points: dict[int, Checkpoint] = {}
        self._question: _Question | None = None
        self._unanswered = 0
        self.newest: Checkpoint | None = None

    # Own checkpoints

    def applied(self, index: int, state_hash: int) -> None:
        """Note the hash of the state when the machine is exactly at `index`."""
        self._states[index] = state_hash

    def chained(self, index: int, chain: bytes) -> None:
        """Note the chain up to `index`, which is committed; the state was noted when it was applied."""
        state = self._states.pop(index, None)
        if state is None:
            return
        self.newest = self._points[index] = Checkpoint(index, chain, state)
        if len(self._points) > CHECKPOINTS_KEPT:
            del self._points[next(iter(self._points))]

    def truncated(self, index: int) -> None:
        """Forget the states after `index`: their entries were replaced."""
        self._states = {one: state for one, state in self._states.items() if one <= index}

    def at(self, index: int) -> Checkpoint | None:
        """The checkpoint at `index`, if it is one of the newest."""
        return self._points.get(index)

    # A leader's comparison

    @property
    def asked(self) -> Checkpoint | None:
        """The checkpoint that heartbeats name while a node differs."""
        return None if self._question is None else self._question.point

    def forget(self) -> None:
        """End the comparison: this node leads no more."""
        self._question = None
        self._unanswered = 0

    def hear(self, node_id: int, theirs: Checkpoint, ours: Checkpoint | None, now_ms: float) -> None:
        """Compare a follower's checkpoint with this node's at the same index."""
        question = self._question
        if question is not None and theirs.index == question.point.index:
            question.answers[node_id] = theirs
        elif question is None and ours is not None and theirs != ours:
            self._question = _Question(ours, now_ms + ANSWERS_WAIT_MS, {node_id: theirs})

    def verdict(self, in_contact: set[int], now_ms: float) -> Verdict | None:
        """The verdict on the open question, once it is clear who is right or that no majority agrees."""
        question = self._question
        if question is None:
            return None
        said = {self._node_id: question.point, **question.answers}
        right, count = Counter(said.values()).most_common(1)[0]
        is_decided = count >= self._majority
        if not is_decided and not in_contact <= set(said):
            if now_ms < question.until_ms:
                return None
            self._unanswered += 1
            if self._unanswered < QUESTIONS_MAX:
                self._question = None  # the node that differs will report again, at a later index
                return None
        self._question = None
        self._unanswered = 0
        wrong = tuple(node for node, point in said.items() if point != right)
        return Verdict(question.point.index, right if is_decided else None, wrong)


def explain(ours: Checkpoint, right: Checkpoint) -> str:
    """The message with which a node in the minority stops."""
    if ours.chain != right.chain:
        kind, mine, others = "committed entries", ours.chain.hex(), right.chain.hex()
    else:
        kind, mine, others = "state", f"{ours.state:016x}", f"{right.state:016x}"
    return (
        f"the {kind} up to entry {right.index} have the hash {mine} here and {others} on the majority: keep "
        "this directory for analysis, format a new one with `quorate node format --replace`"
    )
