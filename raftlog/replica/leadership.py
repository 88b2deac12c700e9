"""A replica's proofs that it leads, and the requests to it as leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftlog.consensus.core import RaftCore
from raftlog.consensus.progress import NEVER_MS
from raftlog.env.host import Host
from raftlog.replica.follower import FollowerReplication
from raftlog.replica.leader import LeaderReplication


class ReplicaLeadership:
    """Leases, proofs and hand-over of one shard's replica, from its load (`begin`) to its end.

    A node that is alone has no `leading` and no `following`: nobody can take the lead from it.
    """

    def __init__(self, host: Host, fail: Callable[[BaseException], None]) -> None:
        self._host = host
        self._fail = fail
        self._raft: RaftCore | None = None
        self._leading: LeaderReplication | None = None
        self._following: FollowerReplication | None = None

    def begin(
        self, raft: RaftCore, leading: LeaderReplication | None, following: FollowerReplication | None
    ) -> None:
        """The log is loaded."""
        self._raft, self._leading, self._following = raft, leading, following

    def end(self) -> None:
        """The replica failed or stopped: it leads no longer."""
        self._raft = self._leading = self._following = None

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the shard; it may still be catching up."""
        return self._raft is not None and self._raft.is_leader

    @property
    def is_handing_over(self) -> bool:
        """Whether this node still leads, but takes no more proposals and waits for another to take over."""
        return self._leading is not None and self._leading.is_closing

    @property
    def proven_ms(self) -> float:
        """Monotonic time until which this node certainly led: inf when alone, -inf if it does not lead."""
        if self._leading is None:
            return float("inf") if self.is_leader else NEVER_MS
        return self._leading.proven_ms

    def ask_proof(self) -> None:
        """Bring `proven_ms` up to now at the cost of one round trip, shared by all calls of a turn."""
        if self._leading is not None:
            self._leading.ask_proof()

    def has_lease(self, now_ms: float) -> bool:
        """Whether no other node can lead before `now_ms`."""
        return self.is_leader if self._leading is None else self._leading.has_lease(now_ms)

    @property
    def horizon(self) -> tuple[float, int]:
        """A time of this node's clock and an index: nothing after that index was committed by that time.

        On a leader the time until which it has certainly led; elsewhere the last pair that the leader sent,
        however old.
        """
        raft = self._raft
        if raft is not None and raft.is_leader and raft.knows_commit:
            now_ms = self._host.monotonic_ms()
            return now_ms if self._leading is None else self._leading.led_until(now_ms), raft.commit_index
        return (NEVER_MS, 0) if self._following is None else self._following.horizon

    def transfer(self, target: int | None, done: Callable[[str | None], None]) -> None:
        """Hand leadership to node `target`, or to the most advanced peer that can serve.

        Calls `done(None)` once another term has begun, otherwise `done` with the reason why this node still
        leads.
        """
        if self._leading is None:
            self._host.call_soon(done, "there is no other node")
            return
        try:
            self._leading.transfer(target, done)
        except Exception as error:
            self._fail(error)

    def when_everywhere(self, index: int, timeout_ms: float, fn: Callable[[], None]) -> None:
        """Call `fn` when every node in contact has applied `index`, or after `timeout_ms`."""
        if self._leading is None:
            self._host.call_soon(fn)
        else:
            self._leading.when_everywhere(index, timeout_ms, fn)

    def followers(self) -> list[dict[str, Any]]:
        """The progress of each peer as a leader knows it; JSON-ready."""
        return [] if self._leading is None else self._leading.followers()
