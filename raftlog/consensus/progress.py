"""A leader's knowledge of its followers: how far each one is, and when each last answered.

Pure arithmetic on numbers that the replica supplies.  Times are this node's monotonic clock, always the time
at which a message was *sent*, so that the round trip counts against the leader.  Invariants:

- Only answers of the own term come here, and `match_index` is what a peer has synced.
- A lease counts on no peer for longer than that peer has promised: its settings are its own.
- A joining peer (a replaced disk that has forgotten what it promised) counts for nothing.
- A peer with an obstacle counts like any other, but is never chosen to lead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

NEVER_MS = float("-inf")


@dataclass(slots=True)
class FollowerProgress:
    """One follower, in one term of this node's.

    - `next_index`: the first entry not yet sent.
    - `is_probing`: a place where the logs agree is being looked for, with one message in flight at a time
      (`is_waiting`, sent at `probed_ms`), which asks about `probed_index`.
    - `in_flight`: (last index, bytes) of messages sent and not yet acknowledged.
    - `joined_index`: the index that a joining peer has to reach; -1 while unknown.
    - `asked`: the peer's clock in an answer on this link, and the time by this node's clock when that
      arrived.
    - `known_ms`: the newest such peer clock until which this node certainly led; -1 without one.
    - `lease_ms`: how long the peer votes for no other node after hearing from this one; 0 until it has said
      so.
    - `obstacle`: the reason why it cannot serve (`raftlog.env.obstacles`); None until it has reported one.
    """

    node_id: int
    is_up: bool = False
    next_index: int = 1
    match_index: int = 0
    applied_index: int = 0
    last_index: int = 0
    acked_sent_ms: float = NEVER_MS
    last_ack_ms: float = NEVER_MS
    is_probing: bool = True
    is_waiting: bool = False
    probed_index: int = 0
    probed_ms: float = NEVER_MS
    is_joining: bool = False
    joining_since_ms: float = NEVER_MS
    joined_index: int = -1
    lease_ms: float = 0.0
    asked: tuple[float, float] | None = None
    known_ms: float = -1.0
    obstacle: int | None = None
    round_trip_ms: float = 0.0
    in_flight: deque[tuple[int, int]] = field(default_factory=deque)
    in_flight_bytes: int = 0

    @property
    def can_lead(self) -> bool:
        """Whether it is in contact and, as far as it has reported, nothing keeps it from serving."""
        return self.is_up and not self.is_joining and not self.obstacle

    def link(self, *, is_up: bool, next_index: int, now_ms: float) -> None:
        """Note that the link came up or went down: nothing is in flight any more.

        A peer that was joining may have yet another disk after a new link.
        """
        self.is_up = is_up
        self.asked, self.known_ms = None, -1.0  # there may be a new process, and its clock another one
        if not is_up:
            self.lease_ms = 0.0  # its settings may be others when it comes back
            self.obstacle = None
        if self.is_joining:
            self.forgot(now_ms)
        self.rewind(max(next_index, self.match_index + 1))

    def forgot(self, now_ms: float) -> None:
        """Reset its progress: its disk was replaced, so earlier acknowledgements no longer hold."""
        self.match_index = self.applied_index = self.last_index = 0
        self.joining_since_ms, self.joined_index = now_ms, -1
        self.rewind(self.next_index)

    def rewind(self, next_index: int) -> None:
        """Send from `next_index` on, one message at a time until one is answered."""
        self.next_index = next_index
        self.is_probing = True
        self.is_waiting = False
        self.in_flight.clear()
        self.in_flight_bytes = 0

    def sent(self, last_index: int, num_bytes: int, now_ms: float) -> None:
        """Note that entries up to `last_index` are in flight."""
        if self.is_probing:
            self.probed_index, self.probed_ms = self.next_index - 1, now_ms
        self.next_index = last_index + 1
        self.in_flight.append((last_index, num_bytes))
        self.in_flight_bytes += num_bytes
        self.is_waiting = self.is_probing

    def answered(self, sent_ms: float, now_ms: float) -> None:
        """Note an answer of the own term to a message sent at `sent_ms`."""
        self.last_ack_ms = now_ms
        if sent_ms != NEVER_MS:
            self.round_trip_ms = now_ms - sent_ms
        if sent_ms > self.acked_sent_ms:
            self.acked_sent_ms = sent_ms

    def asks(self, asked_ms: float, now_ms: float) -> None:
        """Note that its clock showed `asked_ms` when it answered (-1: an older release).

        An earlier answer is kept until a proof of a later time arrives: replacing it each time would mean
        that over a slow link no answer is ever proven.
        """
        if self.asked is None and asked_ms >= 0:
            self.asked = asked_ms, now_ms

    def known(self, led_until_ms: float) -> float:
        """The newest time of its clock until which no other node led; this one led until `led_until_ms`."""
        if self.asked is not None and self.asked[1] <= led_until_ms:
            self.known_ms, self.asked = self.asked[0], None
        return self.known_ms

    def matches(self, index: int) -> bool:
        """Raise `match_index` to `index`, as its log is synced and equal so far; returns whether it rose."""
        if self.is_waiting and index < self.probed_index:
            return False  # a heartbeat's answer: nothing new
        in_flight = self.in_flight
        while in_flight and in_flight[0][0] <= index:
            self.in_flight_bytes -= in_flight.popleft()[1]
        self.is_probing = self.is_waiting = False
        if self.next_index <= index:
            self.next_index = index + 1
        if index <= self.match_index:
            return False
        self.match_index = index
        return True


class ReplicationProgress:
    """All followers of a shard's leader."""

    def __init__(self, peer_ids: Iterable[int], lease_ms: float) -> None:
        self.peers = {node_id: FollowerProgress(node_id) for node_id in peer_ids}
        self.drained: frozenset[int] = frozenset()
        """The nodes that shall not lead while another can."""
        self._all = tuple(self.peers.values())
        self._needed = (len(self._all) + 1) // 2  # peers that make a majority together with this node
        self._lease_ms = lease_ms

    def begin_term(self, next_index: int) -> None:
        """Forget the answers of the last term: this node leads a new one."""
        for peer in self._all:
            peer.match_index = peer.applied_index = 0
            peer.acked_sent_ms = peer.last_ack_ms = NEVER_MS
            peer.is_joining, peer.joined_index = False, -1
            peer.obstacle = None
            peer.rewind(next_index)

    def commit_index(self, durable_index: int) -> int:
        """The highest index that a majority has synced, this node up to `durable_index`."""
        indexes = [0 if peer.is_joining else peer.match_index for peer in self._all]
        indexes.append(durable_index)
        return majority(indexes)

    def protects(self, node_id: int, protects_ms: float) -> None:
        """Note for how long after hearing from a leader a peer votes for no other node."""
        self.peers[node_id].lease_ms = min(self._lease_ms, protects_ms)

    def proven_ms(self) -> float:
        """The latest time such that a majority answered a message sent since; inf when this node is alone."""
        if not self._needed:
            return float("inf")
        times = sorted([NEVER_MS if peer.is_joining else peer.acked_sent_ms for peer in self._all])
        return times[-self._needed]

    def has_lease(self, now_ms: float) -> bool:
        """Whether a majority answered a message sent less than the lease ago; closed links do not count."""
        count = 0
        for peer in self._all:
            if peer.acked_sent_ms > now_ms - peer.lease_ms and peer.is_up and not peer.is_joining:
                count += 1
        return count >= self._needed

    @property
    def best(self) -> FollowerProgress | None:
        """The most advanced of the peers that can lead, drained ones last; None if no peer can."""
        able = [peer for peer in self._all if peer.can_lead]
        return max(able, key=self._rank, default=None)

    def _rank(self, peer: FollowerProgress) -> tuple[bool, int, int]:
        return peer.node_id not in self.drained, peer.match_index, -peer.node_id


def majority(indexes: list[int]) -> int:
    """The highest index that more than half of the nodes have reached, given each node's."""
    return sorted(indexes, reverse=True)[len(indexes) // 2]
