"""The state machines of seed 000 as tables: two coordinators and two consumers.

The design describes its states in words (its drawings are lost); a comment under it, "the thread", describes
others. docs/generations.md has these tables as `tests/lineage/rewrite/rewrite_tables.py` renders them.
"""

from __future__ import annotations

from enum import Enum


class RewriteState(Enum):
    """States of a coordinator for one group. The thread calls PREPARING "PrepReba", and has four."""

    DOWN = "Down"
    CATCH_UP = "CatchUp"
    READY = "Ready"
    PREPARING = "PrepareForRebalance"
    REBALANCING = "Rebalancing"
    STEADY = "Steady"


class RewriteEvent(Enum):
    """Events of a group at its coordinator."""

    ELECTED = "this node becomes the coordinator"
    LOADED = "the group's record is loaded"
    DEMOTED = "another node becomes the coordinator"
    HEARD = "a consumer of the loaded generation sends a heartbeat"
    JOINED = "a JoinGroup without an id"
    CHANGED = "a JoinGroup of a known consumer with other topics"
    REJOINED = "a JoinGroup of a known consumer with the same topics"
    GROWN = "the partitions of a subscribed topic change"
    SILENT = "a consumer is found dead: no Heartbeat, or no JoinGroup, within its session"
    TOLD = "a consumer is told of the rebalance by the answer to its heartbeat"
    RECOVERED = "every consumer that was found dead is back before another one was told"
    ALL_JOINED = "every consumer that is alive has sent JoinGroup"
    ASKED = "every consumer that is alive has sent JoinGroup, and a user's strategy is asked"
    FAILED = "the user's strategy gives no valid answer: each JoinGroup of the round is answered Unknown"
    WRITTEN = "generation, members and ownership are one entry, on which the answers wait"


Table = dict[tuple[RewriteState, RewriteEvent], RewriteState]

_DOWN, _CATCH_UP, _READY, _PREPARING, _STEADY = (
    RewriteState.DOWN, RewriteState.CATCH_UP, RewriteState.READY, RewriteState.PREPARING, RewriteState.STEADY
)  # fmt: skip
_REBALANCING = RewriteState.REBALANCING
_BEGINNING = (RewriteEvent.JOINED, RewriteEvent.CHANGED, RewriteEvent.GROWN, RewriteEvent.SILENT)
_MEANWHILE = (
    RewriteEvent.JOINED, RewriteEvent.CHANGED, RewriteEvent.REJOINED, RewriteEvent.GROWN, RewriteEvent.TOLD
)  # fmt: skip
"""Events that may come while a user's strategy is asked. All consumers are alive: all of them have joined."""

_LIFE: Table = {(_DOWN, RewriteEvent.ELECTED): _CATCH_UP, (_CATCH_UP, RewriteEvent.LOADED): _READY}

DESIGN_COORDINATOR: Table = {
    **_LIFE,
    (_READY, RewriteEvent.HEARD): _STEADY,
    **{
        (state, event): _PREPARING
        for state in (_READY, _STEADY)
        for event in (*_BEGINNING, RewriteEvent.REJOINED)
    },
    **{(_PREPARING, event): _PREPARING for event in (*_BEGINNING, RewriteEvent.REJOINED, RewriteEvent.TOLD)},
    (_PREPARING, RewriteEvent.RECOVERED): _STEADY,
    (_PREPARING, RewriteEvent.ALL_JOINED): _REBALANCING,
    (_PREPARING, RewriteEvent.ASKED): _REBALANCING,
    **{(_REBALANCING, event): _REBALANCING for event in _MEANWHILE},
    (_REBALANCING, RewriteEvent.FAILED): _PREPARING,
    (_REBALANCING, RewriteEvent.WRITTEN): _STEADY,
    **{(state, RewriteEvent.DEMOTED): _DOWN for state in (_READY, _PREPARING, _REBALANCING, _STEADY)},
}
THREAD_COORDINATOR: Table = {
    **_LIFE,
    **{(_READY, event): _PREPARING for event in _BEGINNING},
    (_READY, RewriteEvent.REJOINED): _READY,
    **{(_PREPARING, event): _PREPARING for event in (*_BEGINNING, RewriteEvent.REJOINED, RewriteEvent.TOLD)},
    (_PREPARING, RewriteEvent.ALL_JOINED): _READY,
    (_PREPARING, RewriteEvent.ASKED): _PREPARING,
    (_PREPARING, RewriteEvent.FAILED): _PREPARING,
    (_PREPARING, RewriteEvent.WRITTEN): _READY,
    **{(state, RewriteEvent.DEMOTED): _DOWN for state in (_READY, _PREPARING)},
}


class RewriteConsumerState(Enum):
    """States of a consumer: the first six are the design's, the others the thread's."""

    DOWN = "Down"
    STARTUP = "StartupAndDiscover"
    PART = "PartOfGroup"
    REDISCOVER = "Rediscover"
    STOPPED = "StoppedConsumption"
    RESURRECT = "Resurrect"
    INIT = "Init"
    DISCOVERY = "CoordDiscovery"
    JOINING = "JoinGroup"
    IN_GROUP = "InGroup"


class RewriteConsumerEvent(Enum):
    """Events of a consumer."""

    STARTED = "the application starts it"
    FOUND = "ConsumerMetadata names the coordinator"
    LOST = "the connection is lost, no answer within the session, or another node coordinates"
    NOT_READY = "the coordinator is not ready"
    JOINED = "JoinGroup is answered"
    ALIVE = "a heartbeat is answered without an error"
    REBALANCE = "a heartbeat or commit is answered IllegalGeneration or NeedRebalance"
    UNKNOWN = "the coordinator does not know the consumer's id"
    SUBSCRIBED = "its list of topics has changed"
    COMMITTED = "a commit is answered"
    COMMIT_FAILED = "a commit is refused for another reason"
    REFUSED = "JoinGroup is refused for good"


class RewriteAction(Enum):
    """Actions of a consumer in a transition, in this order."""

    STOP = "stop consumption"
    FORGET = "forget the id and the partitions"
    BACK_OFF = "wait for the backoff"
    DISCOVER = "send ConsumerMetadata"
    COMMIT = "commit offsets if it owns partitions, else send JoinGroup"
    JOIN = "send JoinGroup"
    OWN = "take over id, generation and partitions, and consume"
    BEAT = "send a heartbeat"
    FAIL = "tell the application"


Step = tuple[RewriteConsumerState, tuple[RewriteAction, ...]]
ConsumerTable = dict[tuple[RewriteConsumerState, RewriteConsumerEvent], Step]

_S, _E, _A = RewriteConsumerState, RewriteConsumerEvent, RewriteAction
_AGAIN = (_A.BACK_OFF, _A.DISCOVER)
_REFUSED = (_A.STOP, _A.FORGET, _A.FAIL)

DESIGN_CONSUMER: ConsumerTable = {
    (_S.DOWN, _E.STARTED): (_S.STARTUP, (_A.DISCOVER,)),
    (_S.STARTUP, _E.FOUND): (_S.STARTUP, (_A.JOIN,)),
    (_S.STARTUP, _E.JOINED): (_S.PART, (_A.OWN,)),
    (_S.STARTUP, _E.LOST): (_S.STARTUP, _AGAIN),
    (_S.STARTUP, _E.NOT_READY): (_S.STARTUP, (_A.BACK_OFF, _A.JOIN)),
    (_S.STARTUP, _E.REFUSED): (_S.DOWN, _REFUSED),
    (_S.PART, _E.ALIVE): (_S.PART, ()),
    (_S.PART, _E.COMMITTED): (_S.PART, ()),
    (_S.PART, _E.REBALANCE): (_S.STOPPED, (_A.STOP, _A.COMMIT)),
    (_S.PART, _E.SUBSCRIBED): (_S.STOPPED, (_A.STOP, _A.COMMIT)),
    (_S.PART, _E.UNKNOWN): (_S.RESURRECT, (_A.STOP, _A.FORGET, _A.JOIN)),
    (_S.PART, _E.LOST): (_S.REDISCOVER, _AGAIN),
    (_S.PART, _E.NOT_READY): (_S.PART, (_A.BACK_OFF, _A.BEAT)),
    (_S.REDISCOVER, _E.FOUND): (_S.PART, (_A.BEAT,)),
    (_S.REDISCOVER, _E.LOST): (_S.REDISCOVER, _AGAIN),
    (_S.STOPPED, _E.COMMITTED): (_S.STOPPED, (_A.JOIN,)),
    (_S.STOPPED, _E.JOINED): (_S.PART, (_A.OWN,)),
    (_S.STOPPED, _E.UNKNOWN): (_S.RESURRECT, (_A.FORGET, _A.JOIN)),
    (_S.STOPPED, _E.LOST): (_S.STOPPED, _AGAIN),
    (_S.STOPPED, _E.FOUND): (_S.STOPPED, (_A.JOIN,)),
    (_S.STOPPED, _E.NOT_READY): (_S.STOPPED, (_A.BACK_OFF, _A.JOIN)),
    (_S.STOPPED, _E.REFUSED): (_S.DOWN, _REFUSED),
    (_S.RESURRECT, _E.JOINED): (_S.PART, (_A.OWN,)),
    (_S.RESURRECT, _E.LOST): (_S.STARTUP, _AGAIN),
    (_S.RESURRECT, _E.NOT_READY): (_S.RESURRECT, (_A.BACK_OFF, _A.JOIN)),
    (_S.RESURRECT, _E.REFUSED): (_S.DOWN, _REFUSED),
}
THREAD_CONSUMER: ConsumerTable = {
    (_S.INIT, _E.STARTED): (_S.DISCOVERY, (_A.DISCOVER,)),
    (_S.DISCOVERY, _E.FOUND): (_S.JOINING, (_A.STOP, _A.COMMIT)),
    (_S.DISCOVERY, _E.LOST): (_S.DISCOVERY, _AGAIN),
    (_S.JOINING, _E.COMMITTED): (_S.JOINING, (_A.JOIN,)),
    (_S.JOINING, _E.COMMIT_FAILED): (_S.JOINING, (_A.BACK_OFF, _A.COMMIT)),
    (_S.JOINING, _E.JOINED): (_S.IN_GROUP, (_A.OWN,)),
    (_S.JOINING, _E.LOST): (_S.DISCOVERY, _AGAIN),
    (_S.JOINING, _E.NOT_READY): (_S.JOINING, (_A.BACK_OFF, _A.JOIN)),
    (_S.JOINING, _E.UNKNOWN): (_S.JOINING, (_A.FORGET, _A.JOIN)),
    (_S.JOINING, _E.REFUSED): (_S.INIT, _REFUSED),
    (_S.IN_GROUP, _E.ALIVE): (_S.IN_GROUP, ()),
    (_S.IN_GROUP, _E.COMMITTED): (_S.IN_GROUP, ()),
    (_S.IN_GROUP, _E.COMMIT_FAILED): (_S.IN_GROUP, (_A.BACK_OFF, _A.COMMIT)),
    (_S.IN_GROUP, _E.LOST): (_S.DISCOVERY, _AGAIN),
    (_S.IN_GROUP, _E.REBALANCE): (_S.JOINING, (_A.STOP, _A.COMMIT)),
    (_S.IN_GROUP, _E.UNKNOWN): (_S.JOINING, (_A.STOP, _A.FORGET, _A.JOIN)),
    (_S.IN_GROUP, _E.SUBSCRIBED): (_S.JOINING, (_A.STOP, _A.COMMIT)),
}


class Subroutine(Enum):
    """The thread's subroutines of fetching, by their numbers; one at a time runs for each partition."""

    FIND_LEADER = 20
    FIND_OFFSET = 30
    FETCH = 40


class FetchResult(Enum):
    """Outcomes of the request of such a subroutine."""

    DONE = "answered"
    OUT_OF_RANGE = "OffsetOutOfRange"
    FAILED = "connection loss or any other error"


FETCHING: dict[tuple[Subroutine, FetchResult], Subroutine] = {
    (Subroutine.FIND_LEADER, FetchResult.DONE): Subroutine.FETCH,
    (Subroutine.FIND_LEADER, FetchResult.FAILED): Subroutine.FIND_LEADER,
    (Subroutine.FIND_OFFSET, FetchResult.DONE): Subroutine.FETCH,
    (Subroutine.FIND_OFFSET, FetchResult.FAILED): Subroutine.FIND_LEADER,
    (Subroutine.FETCH, FetchResult.DONE): Subroutine.FETCH,
    (Subroutine.FETCH, FetchResult.OUT_OF_RANGE): Subroutine.FIND_OFFSET,
    (Subroutine.FETCH, FetchResult.FAILED): Subroutine.FIND_LEADER,
}
"""The step that runs for a partition, and the end of its request → the next step."""
