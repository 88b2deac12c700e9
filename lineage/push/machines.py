"""The states of a consumer of the push protocol, as tables: seen by its coordinator, and by itself.

docs/proofs/state-machines.md is rendered from these tables by `tests/state_machines.py`.
"""

from __future__ import annotations

from enum import Enum

from records import PushState


class Turn(Enum):
    """Events of a consumer, as its coordinator sees it; the value is shown in the diagram."""

    REGISTERS = "Register: Stop is sent first, whatever it may be consuming"
    REGISTERS_AGAIN = "Register after a failover: asked again what was not answered"
    MUST_STOP = "a round begins: Stop is sent"
    STOPPED = "Stop is answered"
    ASSIGNED = "nobody owns anything: Start is sent"
    STARTED = "Start is answered"
    LEAVES = "its connection is closed"
    FAILS = "pings failed in a row, or Stop or Start did"


_WAITING, _STOPPING = PushState.WAITING, PushState.STOPPING
_STARTING, _STARTED = PushState.STARTING, PushState.STARTED

CONSUMER_TRANSITIONS: dict[tuple[PushState | None, Turn], PushState | None] = {
    (None, Turn.REGISTERS): _STOPPING,
    (_WAITING, Turn.REGISTERS_AGAIN): _WAITING,
    (_WAITING, Turn.ASSIGNED): _STARTING,
    (_WAITING, Turn.LEAVES): None,
    (_WAITING, Turn.FAILS): None,
    (_STOPPING, Turn.REGISTERS_AGAIN): _STOPPING,
    (_STOPPING, Turn.STOPPED): _WAITING,
    (_STOPPING, Turn.LEAVES): None,
    (_STOPPING, Turn.FAILS): None,
    (_STARTING, Turn.REGISTERS_AGAIN): _STARTING,
    (_STARTING, Turn.MUST_STOP): _STOPPING,
    (_STARTING, Turn.STARTED): _STARTED,
    (_STARTING, Turn.LEAVES): None,
    (_STARTING, Turn.FAILS): None,
    (_STARTED, Turn.REGISTERS_AGAIN): _STARTED,
    (_STARTED, Turn.MUST_STOP): _STOPPING,
    (_STARTED, Turn.LEAVES): None,
    (_STARTED, Turn.FAILS): None,
}
"""State of a consumer (None: not in the group) and what happens → its next state. No other pair occurs."""


class ConsumerState(Enum):
    """The states of a consumer, as it sees itself."""

    DOWN = "Down"
    LOOKING_UP = "LookingUp"
    REGISTERED = "Registered"
    WAITING = "Waiting"
    CONSUMING = "Consuming"
    FAILED = "Failed"


class Seen(Enum):
    """Events of a consumer, as it sees them itself; the value is shown in the diagram."""

    BEGINS = "begins"
    FOUND = "a broker names the coordinator: Register is sent"
    NOT_FOUND = "a broker cannot be reached or knows no coordinator: the next one is asked"
    ALL_GONE = "no known broker can be reached"
    PING_IDLE = "Ping, and nothing is consumed"
    PING_BUSY = "Ping, and partitions are consumed"
    STOP = "Stop"
    START = "Start"
    SILENT = "neither Stop nor Ping within ping_interval_ms"
    CLOSED = "the connection is closed"
    QUITS = "quits"


_ON_LINE = (ConsumerState.REGISTERED, ConsumerState.WAITING, ConsumerState.CONSUMING)

SELF_TRANSITIONS: dict[tuple[ConsumerState, Seen], ConsumerState] = {
    (ConsumerState.DOWN, Seen.BEGINS): ConsumerState.LOOKING_UP,
    (ConsumerState.LOOKING_UP, Seen.FOUND): ConsumerState.REGISTERED,
    (ConsumerState.LOOKING_UP, Seen.NOT_FOUND): ConsumerState.LOOKING_UP,
    (ConsumerState.LOOKING_UP, Seen.ALL_GONE): ConsumerState.FAILED,
    (ConsumerState.LOOKING_UP, Seen.QUITS): ConsumerState.DOWN,
    (ConsumerState.REGISTERED, Seen.PING_IDLE): ConsumerState.WAITING,
    (ConsumerState.REGISTERED, Seen.PING_BUSY): ConsumerState.CONSUMING,
    (ConsumerState.WAITING, Seen.PING_IDLE): ConsumerState.WAITING,
    (ConsumerState.CONSUMING, Seen.PING_IDLE): ConsumerState.CONSUMING,
    (ConsumerState.CONSUMING, Seen.PING_BUSY): ConsumerState.CONSUMING,
    **{(state, Seen.STOP): ConsumerState.WAITING for state in _ON_LINE},
    (ConsumerState.REGISTERED, Seen.START): ConsumerState.CONSUMING,
    (ConsumerState.WAITING, Seen.START): ConsumerState.CONSUMING,
    **{(state, Seen.SILENT): ConsumerState.LOOKING_UP for state in _ON_LINE},
    **{(state, Seen.CLOSED): ConsumerState.LOOKING_UP for state in _ON_LINE},
    **{(state, Seen.QUITS): ConsumerState.DOWN for state in _ON_LINE},
    (ConsumerState.FAILED, Seen.BEGINS): ConsumerState.LOOKING_UP,
    (ConsumerState.FAILED, Seen.QUITS): ConsumerState.DOWN,
}
"""State and what a consumer meets → its next state. A command that is not here, such as Start
without Stop before it, breaks the protocol, and the consumer closes the connection."""
