"""One connection to a peer, from the handshake through packets to its end: the life of one socket.

    state         accepts                    goes on when
    Shaking       frames of the handshake    the peer has proven itself
    Deciding      nothing                    its boot id is accepted, durably
    Confirming    packets (acceptor only)    the first valid packet: the dialer knows that it is accepted
    Up            packets                    -
    Closed        nothing                    -

Time is counted in ticks of the whole node (`Links`), not by clocks: a node that was stopped for a minute has
missed a single tick, so its links do not look dead when it wakes, before the data waiting in the sockets is
read.

Invariants: a link that is closed or not current delivers nothing; whatever bytes arrive, at worst
they end this connection, with one line that gives the reason.  An exception raised by a user of the link is
not about bytes: it stops the node.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from enum import Enum
from typing import Concatenate, Final, ParamSpec, Protocol

from raftlog.env.errors import in_one_line
from raftlog.env.host import Host, Stream
from raftlog.transport.contract import SelfDescription
from raftlog.transport.handshake import Handshake, Stage
from raftlog.transport.hello import HELLO_BYTES_MAX, Hello, pack_description, take_frame, unpack_description
from raftlog.transport.packets import MESSAGE_HEAD, PAYLOAD_BYTES_MAX, BadPacket, Opener, Sealer
from raftlog.transport.refusals import HelloRefused, RefusedByPeer

MIB: Final = 1 << 20

OUTBOUND_PAUSE_BYTES: Final = 16 * MIB
"""Users stop sending above this many bytes (`can_send`): a quarter of a second of a good network."""

OUTBOUND_MAX_BYTES: Final = 64 * MIB
"""A peer with more bytes than this waiting is cut off: heartbeats go on while it is paused, and add up."""

JOIN_BYTES_MAX: Final = 256 * 1024
"""Small messages are copied together into one packet of up to this many bytes.

A payload of at least a quarter of it is sent alone, uncopied.
"""

TICK_MS: Final = 125
"""Milliseconds between two ticks.

A link that has sent nothing since the last tick sends a ping, so that its peer gets something every 250 ms.
"""

SILENT_TICKS_MAX: Final = 16
"""A link is closed after this many ticks (2 s) without a packet or progress on a large one.

The same bound applies to the handshake.
"""

PART_BYTES: Final = 64 * 1024
"""This many bytes of an incomplete packet count as a sign of life.

Pings in two seconds add up to fewer bytes.  So a damaged packet length, which makes everything after it look
like one packet, is detected.
"""

CLOCK_TICKS: Final = 80
"""Wall clocks are compared every this many ticks: 10 s."""

ROUND_TRIP_MAX_MS: Final = 1_000
"""Milliseconds; a slower answer says nothing about the clocks: one node was stopped meanwhile."""

PING: Final = -2
CLOCK_ASKED: Final = -3
CLOCK_TOLD: Final = -4
DESCRIPTION: Final = -5
REFUSAL: Final = -6
METADATA_SHARD: Final = -1

P = ParamSpec("P")

_ASKED = struct.Struct("<d")
_TOLD = struct.Struct("<dq")


class LinkState(Enum):
    """The states of a link; see the table above."""

    SHAKING = "Shaking"
    DECIDING = "Deciding"
    CONFIRMING = "Confirming"
    UP = "Up"
    CLOSED = "Closed"


def _ours(call: Callable[Concatenate[Link, P], None]) -> Callable[Concatenate[Link, P], None]:
    """Wrap a transport callback in which the node's state changes: any error in it stops the node."""

    @functools.wraps(call)
    def called(self: Link, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            call(self, *args, **kwargs)
        except Exception as error:
            self.host.fatal(
                f"link at {self.remote} failed because of an internal error: {in_one_line(error)}"
            )

    return called


class LinkOwner(Protocol):
    """Callbacks from a link to the `Links` that it belongs to."""

    def link_proven(self, link: Link) -> None:
        """The peer has proven itself: call `link.accepted()` once its boot is noted; may raise
        HelloRefused."""

    def link_up(self, link: Link) -> None:
        """The handshake is complete on both sides."""

    def link_message(self, link: Link, shard: int, payload: bytes) -> None:
        """A payload arrived for a shard's user; raises BadPacket when there is none."""

    def link_described(self, link: Link, description: SelfDescription) -> None:
        """The peer sent a new description of itself."""

    def link_clock(self, link: Link, their_wall_ms: float) -> None:
        """The peer reported the time of its wall clock."""

    def link_writable(self, link: Link) -> None:
        """The transport has room again."""

    def link_closed(self, link: Link, why: Exception | None) -> None:
        """The link is closed; called once.

        `why` is HelloRefused, RefusedByPeer, BadPacket or OSError; None when this node closed it on purpose.
        """


class Link:
    """The `raftlog.env.host.StreamHandler` of one connection between nodes."""

    def __init__(self, host: Host, owner: LinkOwner, handshake: Handshake) -> None:
        self.host = host
        self._owner = owner
        self._handshake = handshake
        self.state = LinkState.SHAKING
        self.is_dialer = handshake.is_dialer
        self.remote = "an unknown address"
        self.is_paused = False
        self.bytes_in = 0
        self.bytes_out = 0
        self._transport: Stream | None = None
        self._buffer = bytearray()
        self._sealer: Sealer
        self._opener: Opener
        self._queued: list[bytes] = []
        self._queued_bytes = 0
        self._has_sent = False
        self._silent_ticks = 0
        self._part_bytes = 0
        self._ticks = 0

    @property
    def own(self) -> Hello:
        """The hello that we sent."""
        return self._handshake.own

    @property
    def peer(self) -> Hello | None:
        """The peer's claims; believed from DECIDING on."""
        return self._handshake.peer

    @property
    def has_stream(self) -> bool:
        """Whether there is a transport: not while a connection is dialled, or during its TLS handshake."""
        return self._transport is not None

    # Calls from the transport.

    @_ours
    def connection_made(self, transport: Stream) -> None:
        self._transport = transport
        if self.state is LinkState.CLOSED:
            transport.abort()
            return
        peername = transport.get_extra_info("peername")
        if peername:
            self.remote = f"{peername[0]}:{peername[1]}"
        transport.set_write_buffer_limits(high=OUTBOUND_PAUSE_BYTES)
        self._write(self._handshake.begin())

    @_ours
    def data_received(self, data: bytes) -> None:
        if self.state is LinkState.CLOSED:
            return
        self.bytes_in += len(data)
        try:
            if self.state in (LinkState.UP, LinkState.CONFIRMING):
                self._take_packets(data)
            else:
                self._take_frames(data)
        except (HelloRefused, RefusedByPeer, BadPacket) as why:
            self.close(why)

    def eof_received(self) -> bool | None:
        return False

    @_ours
    def connection_lost(self, exc: Exception | None) -> None:
        self.close(exc or ConnectionResetError("the peer closed the connection"))

    def pause_writing(self) -> None:
        self.is_paused = True

    @_ours
    def resume_writing(self) -> None:
        self.is_paused = False
        if self.state is LinkState.UP:
            self._owner.link_writable(self)

    # Calls from the owner.

    def accepted(self) -> None:
        """Continue the handshake, as the peer's boot is noted durably; ignored if the connection is gone."""
        if self.state is not LinkState.DECIDING:
            return
        self._write(self._handshake.accept())
        if self.is_dialer:
            self._come_up()
        else:
            self.state = LinkState.CONFIRMING

    def queue(self, kind: int, payload: bytes) -> None:
        """Add a message to the packet of this turn; a large payload is sent at once, after those queued.

        Raises ValueError if no packet can hold it.
        """
        size = len(payload)
        head = MESSAGE_HEAD.pack(kind, size)
        if size * 4 < JOIN_BYTES_MAX:
            self._queued += (head, payload)
            self._queued_bytes += size
            if self._queued_bytes >= JOIN_BYTES_MAX:
                self.flush()
            return
        if size > PAYLOAD_BYTES_MAX:
            raise ValueError(f"a payload of {size} bytes; the maximum of a packet is {PAYLOAD_BYTES_MAX}")
        self.flush()
        self._write(self._sealer.head(head, payload) + head)
        self._write(payload)
        self._check_outbound()

    def flush(self) -> None:
        """Seal and write the queued messages as one packet."""
        if not self._queued or self.state is LinkState.CLOSED:
            return
        body = b"".join(self._queued)
        self._queued.clear()
        self._queued_bytes = 0
        self._write(self._sealer.head(body) + body)
        self._check_outbound()

    def tick(self, is_late: bool) -> None:
        """Note that `TICK_MS` have passed; `is_late`: much more, because this node itself was stopped."""
        if not is_late:
            self._silent_ticks += 1
        if self._silent_ticks > SILENT_TICKS_MAX:
            silent_s = SILENT_TICKS_MAX * TICK_MS / 1000
            self.close(TimeoutError(f"has not responded for {silent_s:g} s (stopped, or disconnected?)"))
        elif self.state is LinkState.UP:
            self._ticks += 1
            if self._ticks % CLOCK_TICKS == 0:
                self._ask_clock()
            elif not self._has_sent:
                self.queue(PING, b"")
            self._has_sent = False
            self.flush()

    def describe(self, description: SelfDescription) -> None:
        """Send the peer a changed description."""
        self.queue(DESCRIPTION, pack_description(description))

    def close(self, why: Exception | None) -> None:
        """End the connection: at once because of `why`, or without one after the sent bytes have gone out."""
        if self.state is LinkState.CLOSED:
            return
        if isinstance(why, HelloRefused):
            self._tell(why)
        if why is None and self.state is LinkState.UP:
            self.flush()
        self.state = LinkState.CLOSED
        self._queued.clear()
        self._buffer.clear()
        if self._transport is not None:
            if why is None or isinstance(why, HelloRefused):
                self._transport.close()
            else:
                self._transport.abort()
        self._owner.link_closed(self, why)

    def _tell(self, why: HelloRefused) -> None:
        """Send the refusal as the peer expects it: in a packet once an acceptor has sent its proof."""
        if self.is_dialer and self.state is LinkState.DECIDING:
            self.queue(REFUSAL, bytes([why.code]))
            self.flush()
        else:
            self._write(self._handshake.refuse(why.code))

    # Frames of the handshake.

    def _take_frames(self, data: bytes) -> None:
        self._buffer += data
        while self.state is LinkState.SHAKING and (taken := take_frame(self._buffer)) is not None:
            self._write(self._shaken(*taken))
            if self._handshake.stage is Stage.DECIDING:
                self.state = LinkState.DECIDING
                sending, receiving = self._handshake.keys()
                self._sealer, self._opener = Sealer(sending), Opener(receiving)
                self._owner.link_proven(self)
        if len(self._buffer) > HELLO_BYTES_MAX or (self._buffer and self.state is not LinkState.SHAKING):
            raise BadPacket("it sends messages before the handshake is complete")

    def _shaken(self, kind: int, body: bytes) -> bytes:
        """The answer in the handshake.

        The bytes are untrusted, so an error of ours in reading them costs no more than the connection.
        """
        try:
            return self._handshake.take(kind, body)
        except (HelloRefused, RefusedByPeer):
            raise
        except Exception as error:
            raise BadPacket(f"its hello cannot be read: {in_one_line(error)}") from None

    def _come_up(self) -> None:
        self.state = LinkState.UP
        self._silent_ticks = 0
        self._ask_clock()
        self.flush()
        self._owner.link_up(self)

    # Packets of the session.

    def _take_packets(self, data: bytes) -> None:
        self._part_bytes += len(data)
        for kind, payload in self._opener.feed(data):
            self._part_bytes = PART_BYTES
            if kind == REFUSAL:
                raise RefusedByPeer(payload, is_proven=True)
            if self.state is LinkState.CONFIRMING:
                self._come_up()
            if self.state is not LinkState.UP:
                return
            if kind >= METADATA_SHARD:
                self._owner.link_message(self, kind, payload)
            else:
                self._take_control(kind, payload)
        if self.state is LinkState.UP and self._part_bytes >= PART_BYTES:
            self._silent_ticks = self._part_bytes = 0

    def _take_control(self, kind: int, payload: bytes) -> None:
        """Handle a control message; unknown kinds, of newer releases, are ignored."""
        try:
            if kind == CLOCK_ASKED:
                (asked_ms,) = _ASKED.unpack(payload)
                self.queue(CLOCK_TOLD, _TOLD.pack(asked_ms, self.host.wall_ms()))
                self.flush()
            elif kind == CLOCK_TOLD:
                asked_ms, their_wall_ms = _TOLD.unpack(payload)
                self._clock_told(asked_ms, their_wall_ms)
            elif kind == DESCRIPTION:
                self._owner.link_described(self, unpack_description(payload))
        except (struct.error, ValueError) as error:
            raise BadPacket(f"message {kind} cannot be read: {error}") from None

    def _ask_clock(self) -> None:
        self.queue(CLOCK_ASKED, _ASKED.pack(self.host.monotonic_ms()))

    def _clock_told(self, asked_ms: float, their_wall_ms: int) -> None:
        round_trip_ms = self.host.monotonic_ms() - asked_ms
        if 0 <= round_trip_ms <= ROUND_TRIP_MAX_MS:
            self._owner.link_clock(self, their_wall_ms + round_trip_ms / 2)

    # Writing.

    def _write(self, data: bytes) -> None:
        if data and self._transport is not None:
            self.bytes_out += len(data)
            self._has_sent = True
            self._transport.write(data)

    def _check_outbound(self) -> None:
        if self.is_paused and self._transport is not None:
            waiting_bytes = self._transport.get_write_buffer_size()
            if waiting_bytes > OUTBOUND_MAX_BYTES:  # later: this is inside a user's call
                why = TimeoutError(f"it does not read what is sent: {waiting_bytes} bytes are waiting")
                self.host.call_soon(self.close, why)
