"""A consumer of the push protocol, without I/O: what it meets goes in, actions come out.

It goes on consuming while it looks for the coordinator, because a new coordinator that reads the log knows
its partitions. A coordinator that does not know them sends Stop first.
"""

from __future__ import annotations

from dataclasses import dataclass

from lineage.push.machines import SELF_TRANSITIONS, ConsumerState, Seen
from lineage.push.messages import (
    Answer,
    Broker,
    Command,
    CommandResponse,
    LookupRequest,
    LookupResponse,
    PartitionOffset,
    PingRequest,
    PingResponse,
    RegisterRequest,
    StartRequest,
    decode_command,
    partition_number,
)
from wire.errors import ErrorCode, MalformedFrame

Address = tuple[str, int]
"""Host and port."""
PartitionId = tuple[str, str]
"""Topic and the coordinator's name of the partition (`messages.partition_name`)."""

LOOKUP_BACKOFF_MS = 100
"""Pause before brokers are asked again, after one at least answered that there is no coordinator now, or
after a registration that was refused at once."""


@dataclass(frozen=True, slots=True)
class AskBroker:
    """Open a connection for one lookup; its end goes to `PushConsumerCore.looked_up`."""

    address: Address
    request: LookupRequest


@dataclass(frozen=True, slots=True)
class RegisterAt:
    """Open a connection and send Register first; what comes on it goes to `received` and `closed`."""

    address: Address
    request: RegisterRequest


@dataclass(frozen=True, slots=True)
class SendAnswer:
    """Send an answer on the connection of the newest `RegisterAt`, in `version` of its class."""

    answer: Answer
    version: int = 0


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close the connection of the newest `RegisterAt`; nothing that comes on it counts any more."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """An operational error, in a sentence for the operator."""

    why: str


Action = AskBroker | RegisterAt | SendAnswer | CloseConnection | GiveUp


class PushConsumerCore:
    """One consumer. `positions` is what it consumes, with the offset that comes next (-1: none is known yet,
    `auto_offset_reset` decides); the fetcher reads it and moves it on. Times are in ms of any clock.

    `known_brokers` are the addresses of the properties file; those of the newest lookup response are added.
    """

    def __init__(self, register: RegisterRequest, known_brokers: tuple[Address, ...]) -> None:
        if not known_brokers:
            raise ValueError("a consumer needs the address of at least one broker")
        self.state = ConsumerState.DOWN
        self.positions: dict[PartitionId, int] = {}
        self._register = register
        self._known_brokers = self._brokers = list(dict.fromkeys(known_brokers))
        self._place = 0
        self._has_answer = False
        self.next_ms: int | None = None
        """The time at which `time_passed` is due; None if it is not."""

    def begin(self) -> list[Action]:
        """Start, or resume after `GiveUp`."""
        self._take(Seen.BEGINS)
        return self._ask_first()

    def looked_up(self, response: LookupResponse | None, now_ms: int) -> list[Action]:
        """The end of the newest lookup; None if the broker cannot be reached or broke the protocol."""
        if self.state is not ConsumerState.LOOKING_UP:
            return []
        if response is not None:
            self._has_answer = True
            learned = [(one.host, one.port) for one in response.brokers_info]
            self._brokers = list(dict.fromkeys([*self._known_brokers, *learned]))
            address = _coordinator_of(response)
            if address is not None:
                self._take(Seen.FOUND)
                self._hear(now_ms)
                return [RegisterAt(address, self._register)]
        self._place += 1
        if self._place < len(self._brokers):
            self._take(Seen.NOT_FOUND)
            return [self._ask()]
        if self._has_answer:
            self._take(Seen.NOT_FOUND)
            self.next_ms = now_ms + LOOKUP_BACKOFF_MS
            return []
        self._take(Seen.ALL_GONE)
        self.positions.clear()
        places = ", ".join(f"{host}:{port}" for host, port in self._brokers)
        return [
            GiveUp(
                f"no known broker of group {self._register.group_id} can be reached ({places}), so the "
                "coordinator cannot be found: give the consumer the address of a broker that is there"
            )
        ]

    def received(self, payload: bytes, now_ms: int) -> list[Action]:
        """A frame of the coordinator, without its size. Ignored if there is no registered connection."""
        if (self.state, Seen.CLOSED) not in SELF_TRANSITIONS:
            return []
        try:
            command = decode_command(payload)
            for one in command.assigned_parts if isinstance(command, StartRequest) else ():
                partition_number(one.partition)
        except MalformedFrame:
            return [CloseConnection(), *self.closed(now_ms)]
        if (self.state, self._seen_in(command)) not in SELF_TRANSITIONS:
            return [CloseConnection(), *self.closed(now_ms)]
        self._take(self._seen_in(command))
        self._hear(now_ms)
        return [self._answer(command)]

    def closed(self, now_ms: int) -> list[Action]:
        """The connection to the coordinator broke, or could not be opened. Ignored if there is none.

        A registration that ends soon, before the first command, was refused or met a node that is gone: the
        next lookup comes after a pause, because the answer will not be better at once."""
        if (self.state, Seen.CLOSED) not in SELF_TRANSITIONS:
            return []
        assert self.next_ms is not None, "a registered consumer expects to hear the coordinator"
        again_ms = self.next_ms - self._register.ping_interval_ms + LOOKUP_BACKOFF_MS
        is_refused = self.state is ConsumerState.REGISTERED and now_ms < again_ms
        self._take(Seen.CLOSED)
        if is_refused:
            self.next_ms = again_ms
            return []
        return self._ask_first()

    def time_passed(self, now_ms: int) -> list[Action]:
        """`next_ms` has come: silence of the coordinator, or the end of a pause between lookups."""
        if self.next_ms is None or now_ms < self.next_ms:
            return []
        if self.state is ConsumerState.LOOKING_UP:
            return self._ask_first()
        self._take(Seen.SILENT)
        return [CloseConnection(), *self._ask_first()]

    def quit(self) -> list[Action]:
        """Leave: the closed connection says so. A consumer that never began has nothing to leave."""
        if self.state is ConsumerState.DOWN:
            return []
        is_registered = (self.state, Seen.CLOSED) in SELF_TRANSITIONS
        self._take(Seen.QUITS)
        self.positions.clear()
        self.next_ms = None
        return [CloseConnection()] if is_registered else []

    def _seen_in(self, command: Command) -> Seen:
        if isinstance(command, PingRequest):
            return Seen.PING_BUSY if self.positions else Seen.PING_IDLE
        return Seen.START if isinstance(command, StartRequest) else Seen.STOP

    def _answer(self, command: Command) -> SendAnswer:
        if isinstance(command, PingRequest):
            return self._pinged()
        if isinstance(command, StartRequest):
            # A position is kept if there was no Stop: then a new coordinator repeats a Start, with its own
            # broker id in the names.
            kept = {(topic, partition_number(name)): at for (topic, name), at in self.positions.items()}
            self.positions = {
                (one.topic, one.partition): kept.get((one.topic, partition_number(one.partition)), one.offset)
                for one in command.assigned_parts
            }
        else:
            self.positions.clear()
        return SendAnswer(CommandResponse(error_code=ErrorCode.NONE))

    def _pinged(self) -> SendAnswer:
        offsets = [
            PartitionOffset(topic=topic, partition=partition, offset=offset)
            for (topic, partition), offset in self.positions.items()
        ]
        if self._register.auto_commit:
            return SendAnswer(PingResponse(num_partition=len(offsets), offset_info=offsets), version=1)
        return SendAnswer(PingResponse(num_partition=len(offsets)))

    def _ask_first(self) -> list[Action]:
        self._place, self._has_answer, self.next_ms = 0, False, None
        return [self._ask()]

    def _ask(self) -> AskBroker:
        return AskBroker(self._brokers[self._place], LookupRequest(group_id=self._register.group_id))

    def _hear(self, now_ms: int) -> None:
        self.next_ms = now_ms + self._register.ping_interval_ms

    def _take(self, seen: Seen) -> None:
        self.state = SELF_TRANSITIONS[self.state, seen]


def _coordinator_of(response: LookupResponse) -> Address | None:
    if response.error_code:
        return None
    found: list[Broker] = [one for one in response.brokers_info if one.id == response.coordinator_id]
    return (found[0].host, found[0].port) if found else None
