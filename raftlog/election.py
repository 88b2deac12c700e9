"""When a node may ask to lead, and whom it may help to: the pre-vote in front of the library's election.

    resting --deadline--> asking (pre-vote) --majority would vote--> waiting --they may--> campaigning
       ^                      |                                                              |
       +--- leader heard, refused, no answer in time, a better candidate asks ---------------+

No clock, no messages: callers bring the time and carry out what `due` says.  What must stay true:

- No real vote, its own included, within half of the minimum timeout of last hearing a leader or of the own
  start (a node forgets at a restart whom it heard): the leader answers from its lease that long.  Only an
  election that the leader itself asked for is exempt.
- Nobody helps to depose a leader whom it heard within the minimum timeout.  A broken connection to that
  leader ends this at once, the protection of the lease it does not touch.
- A node that grants a pre-vote holds back itself, so that two survivors do not split the vote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from raftlog.settings import LogSettings

NEVER_MS = float("inf")
LONG_AGO_MS = float("-inf")
RESET_JITTER_MS = 50.0
"""After a broken connection; the other survivors see it break in the same moment."""
PREFERRED_JITTER_MS = 5.0
"""At a cold start; nobody else is in a hurry then."""
WAIT_SLACK_MS = 1.0
"""Added to what voters said that they still wait: the candidate must not come a hair too early."""


class Due(Enum):
    """What a deadline asks for."""

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
        self.is_barred = False
        """A joining node, or one whose projection is being rebuilt: does not stand."""
        self.is_preferred = is_preferred
        patience_ms = 0.0 if is_preferred else self._max_ms
        jitter_ms = PREFERRED_JITTER_MS if is_preferred else self._max_ms
        self.deadline_ms = now_ms + patience_ms + uniform(0, jitter_ms)

    @property
    def protects_ms(self) -> float:
        """For so long after hearing a leader this node votes for nobody, unless that leader asks for it."""
        return self._lease_ms

    # What happens to this node

    def heard(self, now_ms: float) -> None:
        """A leader of the present term spoke."""
        self._heard_ms = now_ms
        self._is_leader_gone = False
        self._asking = None
        self.deadline_ms = now_ms + self._timeout_ms()

    def leader_lost(self, now_ms: float) -> None:
        """The connection to the leader broke."""
        self._is_leader_gone = True
        self.deadline_ms = min(self.deadline_ms, now_ms + self._uniform(0, RESET_JITTER_MS))

    def linked(self, now_ms: float) -> None:
        """A link came up: at a cold start the preferred node has waited for somebody to ask."""
        unheard = self._asking is None or not self._asking.grants
        if self.is_preferred and self._is_leader_gone and unheard:
            self._asking = None
            self.deadline_ms = min(self.deadline_ms, now_ms + self._uniform(0, PREFERRED_JITTER_MS))

    def voted(self, now_ms: float) -> None:
        """This node gave its vote away: let the candidate win."""
        self._asking = None
        self.deadline_ms = now_ms + self._timeout_ms()

    def postpone(self, now_ms: float, delay_ms: float) -> None:
        """Look again later: the loop stood still, and what the leader sent meanwhile is not read yet."""
        self._asking = None
        self.deadline_ms = max(self.deadline_ms, now_ms + delay_ms)

    def _timeout_ms(self) -> float:
        return self._uniform(self._min_ms, self._max_ms)

    def _retry_ms(self) -> float:
        return self._uniform(self._lease_ms / 3, self._lease_ms)

    # What this node may do

    def due(self, now_ms: float) -> Due:
        """What is to be done now; moves on to the next deadline."""
        if self.is_barred or now_ms < self.next_deadline_ms():
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
        """When `due` has something to say, unless something happens before."""
        if self.is_barred:
            return NEVER_MS
        asking = self._asking
        if asking is None:
            return self.deadline_ms
        return asking.until_ms if asking.campaign_ms == NEVER_MS else asking.campaign_ms

    def vote_wait_ms(self, now_ms: float) -> float:
        """How long until this node may really vote; 0 when it may."""
        last_ms = max(self._heard_ms, self._started_ms)
        return max(0.0, last_ms + self._lease_ms - now_ms)

    def answer(self, now_ms: float, candidate: int, *, is_behind: bool, is_equal: bool) -> tuple[bool, float]:
        """Would this node vote for `candidate`: (granted, ms until it may).

        `is_behind`: the candidate lacks entries that this node has; `is_equal`: both logs end alike.
        """
        hears_leader = not self._is_leader_gone and now_ms < self._heard_ms + self._min_ms
        wait_ms = self.vote_wait_ms(now_ms)
        if hears_leader:
            return False, wait_ms
        if is_behind:
            if self._asking is None:  # somebody must stand, and it is not the one who asks
                self.deadline_ms = min(self.deadline_ms, now_ms + self._uniform(0, PREFERRED_JITTER_MS))
            return False, wait_ms
        if self._asking is not None and is_equal and self._outranks(candidate):
            return False, wait_ms
        self._asking = None
        self.deadline_ms = max(self.deadline_ms, now_ms + wait_ms + self._lease_ms + self._retry_ms())
        return True, wait_ms

    def _outranks(self, candidate: int) -> bool:
        return self.is_preferred or self._node_id < candidate

    def answered(
        self, now_ms: float, voter: int, round_number: int, *, granted: bool, wait_ms: float
    ) -> None:
        """A pre-vote came in."""
        asking = self._asking
        if asking is None or round_number != self.round:
            return
        if granted:
            asking.grants[voter] = now_ms + min(wait_ms, self._max_ms) + WAIT_SLACK_MS
        else:
            asking.until_ms = min(asking.until_ms, now_ms + self._retry_ms())
        self._count(now_ms)

    def _count(self, now_ms: float) -> None:
        """Campaign when the last of the quickest majority may vote, this node among them."""
        asking = self._asking
        assert asking is not None
        if len(asking.grants) >= self._others_needed:
            times = sorted(asking.grants.values())
            own_ms = now_ms + self.vote_wait_ms(now_ms)
            asking.campaign_ms = max([own_ms, *times[: self._others_needed]])
