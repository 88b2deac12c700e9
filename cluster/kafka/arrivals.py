"""Clients that start together: several have just asked for the coordinator of one group.

A consumer asks for its coordinator before it joins. So when the first of several joins, the node knows that
others are on their way, and lets it wait for them even if `group.initial.rebalance.delay.ms` is 0. Otherwise
it would begin alone, and the others would wait for its next heartbeat.

A consumer that comes alone must not wait. A connection does not say whose it is, and librdkafka asks again by
a second one: 51 ms later, because it waits 50 ms before it opens one more. So clients come together only if
they ask much closer to each other than that. A node knows only of those that asked it, which in a cluster are
not all.
"""

from __future__ import annotations

from dataclasses import dataclass

TOGETHER_MS = 25.0
"""Longest time between the requests of two clients that start together: half of those 51 ms."""
EXPECTED_MS = 200.0
"""The time for which clients are expected after they asked: librdkafka's join within 60 ms."""
GROUPS_MAX = 1_000
"""Groups that were asked for last; an older one is forgotten, and its first client does not wait."""
GROUP_ID_CHARS_MAX = 1_024
"""A longer group id is not kept: JoinGroup refuses it."""


@dataclass(slots=True)
class _Asked:
    """The client that last asked for a group's coordinator, when, and until when several are expected."""

    peer: str
    at_ms: float
    several_until_ms: float = 0.0


class Arrivals:
    """The groups that were asked for last, and whether by several clients at about the same time."""

    def __init__(self) -> None:
        self._asked: dict[str, _Asked] = {}

    def asked(self, group_id: str, peer: str, now_ms: float) -> None:
        """Note that the client at this address asked for the group's coordinator."""
        if len(group_id) > GROUP_ID_CHARS_MAX:
            return
        found = self._asked.pop(group_id, None) or _Asked(peer, now_ms)
        if found.peer != peer and now_ms - found.at_ms <= TOGETHER_MS:
            found.several_until_ms = now_ms + EXPECTED_MS
        found.peer, found.at_ms = peer, now_ms
        self._asked[group_id] = found
        if len(self._asked) > GROUPS_MAX:
            del self._asked[next(iter(self._asked))]

    def are_several(self, group_id: str, now_ms: float) -> bool:
        """Whether several clients are about to join the group."""
        found = self._asked.get(group_id)
        return found is not None and now_ms < found.several_until_ms
