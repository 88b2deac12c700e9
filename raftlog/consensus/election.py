"""Elections: when this node may campaign, and whom it may vote for; adds the pre-vote to pysyncobj.

    resting --deadline--> asking (pre-vote) --majority would vote--> waiting --they may--> campaigning
       ^                      |                                                              |
       +--- leader heard, refused, no answer in time, a better candidate asks ---------------+

No clock, no messages: callers supply the time and carry out what `due` returns.  Invariants:

- No real vote, its own included, within half of the minimum timeout after hearing from a leader or after the
  own start (a restart forgets which leader was heard): for that long the leader answers from its lease.  Only
  an election that the leader itself asked for is exempt.
- No pre-vote against a leader that was heard within the minimum timeout.  A broken connection to that leader
  ends this protection at once, but not the protection of its lease.
- A node that grants a pre-vote postpones its own campaign, so that two survivors do not split the vote.
- A drained node waits longer by the maximum timeout before it campaigns, and votes like any other: it wins
  only where no other node has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from raftlog.env.settings import LogSettings

NEVER_MS = float("inf")
LONG_AGO_MS = float("-inf")
RESET_JITTER_MS = 50.0
"""Milliseconds of jitter after a broken connection, which the other survivors notice at the same moment."""
PREFERRED_JITTER_MS = 5.0
"""Milliseconds of jitter of the preferred leader at a cold start, when no other node is in a hurry."""
WAIT_SLACK_MS = 1.0
"""Milliseconds added to the wait that voters reported, so that the candidate does not ask too early."""


class Due(Enum):
    """The action that a deadline calls for."""

    NOTHING = "nothing"
    ASK = "ask"
    CAMPAIGN = "campaign"


@dataclass(slots=True)
class _Asking:
    """A round of pre-votes: who would vote, and after how long."""

    until_ms: float
    campaign_ms: float = NEVER_MS
    grants: dict[int, float] = field(default_factory=dict)


class Election:
    """One node's part in the elections of one shard."""

    def __init__(
        self,
        uniform: Callable[[float, float], float],
        settings: LogSettings,
        node_id: int,
        num_voters: int,
        *,
        is_preferred: bool,
        now_ms: float,
    ) -> None:
        self._uniform = uniform
        self._min_ms = float(settings.raft_min_timeout_ms)
        self._max_ms = float(settings.raft_max_timeout_ms)
        self._lease_ms = self._min_ms / 2
        self._node_id = node_id
        self._others_needed = num_voters // 2
        self._started_ms = now_ms
        self._heard_ms = LONG_AGO_MS
        self._is_leader_gone = True
        self._asking: _Asking | None = None
        self.round = 0
        self.is_preferred = is_preferred
        self.is_drained = False
        """Whether this node shall not lead while another can."""
        patience_ms = 0.0 if is_preferred else self._max_ms
        jitter_ms = PREFERRED_JITTER_MS if is_preferred else self._max_ms
        self.deadline_ms = now_ms + patience_ms + uniform(0, jitter_ms)

    @property
    def protects_ms(self) -> float:
        """Milliseconds after hearing a leader in which this node votes only if that leader asks for it."""
        return self._lease_ms

    # Events

    def heard(self, now_ms: float) -> None:
        """A leader of the current term was heard."""
        self._heard_ms = now_ms
        self._is_leader_gone = False
        self._asking = None
        self.deadline_ms = now_ms + self._timeout_ms()

    def leader_lost(self, now_ms: float) -> None:
        """The connection to the leader broke."""
        self._is_leader_gone = True
        self._hurry(now_ms, RESET_JITTER_MS)

    def linked(self, now_ms: float) -> None:
        """A link came up: at a cold start the preferred node has waited for a peer that it can ask."""
        unheard = self._asking is None or not self._asking.grants
        if self.is_preferred and self._is_leader_gone and unheard:
            self._asking = None
            self.deadline_ms = min(self.deadline_ms, now_ms + self._uniform(0, PREFERRED_JITTER_MS))

    def voted(self, now_ms: float) -> None:
        """This node voted for another: give that candidate time to win."""
        self._asking = None
        self.deadline_ms = now_ms + self._timeout_ms()

    def postpone(self, now_ms: float, delay_ms: float) -> None:
        """Check again later: the loop was blocked, and messages from the leader may be waiting unread."""
        self._asking = None
        self.deadline_ms = max(self.deadline_ms, now_ms + delay_ms)

    @property
    def _patience_ms(self) -> float:
        return self._max_ms if self.is_drained else 0.0

    def _timeout_ms(self) -> float:
        return self._patience_ms + self._uniform(self._min_ms, self._max_ms)

    def _hurry(self, now_ms: float, jitter_ms: float) -> None:
        self.deadline_ms = min(self.deadline_ms, now_ms + self._patience_ms + self._uniform(0, jitter_ms))

    def _retry_ms(self) -> float:
        return self._uniform(self._lease_ms / 3, self._lease_ms)

    # Decisions

    def due(self, now_ms: float) -> Due:
        """The action due now; moves on to the next deadline."""
        if now_ms < self.next_deadline_ms():
            return Due.NOTHING
        asking = self._asking
        if asking is not None and asking.campaign_ms <= now_ms:
            self._asking = None
            self.deadline_ms = now_ms + self._lease_ms + self._retry_ms()
            return Due.CAMPAIGN
        if asking is not None:  # not answered in time
            self._asking = None
            self.deadline_ms = now_ms + self._retry_ms()
            return Due.NOTHING
        self.round += 1
        self._asking = _Asking(now_ms + self._lease_ms)
        self._count(now_ms)
        return Due.ASK

    def next_deadline_ms(self) -> float:
        """The next time at which `due` may return an action, unless an event comes first."""
        asking = self._asking
        if asking is None:
            return self.deadline_ms
        return asking.until_ms if asking.campaign_ms == NEVER_MS else asking.campaign_ms

    def vote_wait_ms(self, now_ms: float) -> float:
        """Milliseconds until this node may really vote; 0 when it may."""
        last_ms = max(self._heard_ms, self._started_ms)
        return max(0.0, last_ms + self._lease_ms - now_ms)

    def answer(self, now_ms: float, candidate: int, *, is_behind: bool, is_equal: bool) -> tuple[bool, float]:
        """Decide on a pre-vote for `candidate`; returns (granted, ms until this node may vote)."""
        hears_leader = not self._is_leader_gone and now_ms < self._heard_ms + self._min_ms
        wait_ms = self.vote_wait_ms(now_ms)
        if hears_leader:
            return False, wait_ms
        if is_behind:
            if self._asking is None:  # another node has to campaign: the one that asks cannot win
                self._hurry(now_ms, PREFERRED_JITTER_MS)
            return False, wait_ms
        if self._asking is not None and is_equal and self._outranks(candidate):
            return False, wait_ms
        self._asking = None
        self.deadline_ms = max(self.deadline_ms, now_ms + wait_ms + self._lease_ms + self._retry_ms())
        return True, wait_ms

    def _outranks(self, candidate: int) -> bool:
        return not self.is_drained and (self.is_preferred or self._node_id < candidate)

    def answered(
        self, now_ms: float, voter: int, round_number: int, *, granted: bool, wait_ms: float
    ) -> None:
        """Count an answer to a pre-vote."""
        asking = self._asking
        if asking is None or round_number != self.round:
            return
        if granted:
            asking.grants[voter] = now_ms + min(wait_ms, self._max_ms) + WAIT_SLACK_MS
        else:
            asking.until_ms = min(asking.until_ms, now_ms + self._retry_ms())
        self._count(now_ms)

    def _count(self, now_ms: float) -> None:
        """Set the time to campaign: when the last of the quickest majority, this node included, may vote."""
        asking = self._asking
        assert asking is not None
        if len(asking.grants) >= self._others_needed:
            times = sorted(asking.grants.values())
            own_ms = now_ms + self.vote_wait_ms(now_ms)
            asking.campaign_ms = max([own_ms, *times[: self._others_needed]])
