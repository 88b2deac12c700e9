"""Streams in memory that behave like asyncio's transports, over a network with latency and faults.

Bytes arrive in order, after a latency drawn per delivery, sometimes in two pieces; data that a reader does
not take fills the writer's buffer until `pause_writing`. A closed stream delivers what was written first; an
aborted one resets its peer, as does a process that dies. A machine without power answers nothing at all.

Faults apply to machines by name, and to each direction separately: data sent into a cut is held back, as TCP
would retransmit it, and arrives when the cut heals; the connection itself does not notice. An aborted
connection retransmits nothing.

Invariants: a protocol sees the same calls in the same order as under asyncio (connection_made,
data_received*, eof_received?, connection_lost), never from inside its own write.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from cluster.simulator.streams import Opened, Shaking, SimTransport
from cluster.simulator.world import World

LATENCY_MIN_MS: Final = 0.02
LATENCY_MAX_MS: Final = 0.4
"""One-way latency: from loopback to a good local network."""

FIRST_EPHEMERAL_PORT: Final = 40_000

Way = tuple[str, str]
"""The direction from one machine to another."""


class SimListener:
    """A listening address; `close` stops new connections and leaves open ones alone."""

    def __init__(
        self,
        network: Network,
        owner: str,
        address: tuple[str, int],
        factory: Callable[[], Any],
        *,
        has_tls: bool = False,
    ) -> None:
        self._network = network
        self.owner = owner
        self.address = address
        self.port = address[1]
        self.factory = factory
        self.has_tls = has_tls
        self._shaking: dict[object, SimTransport] = {}

    def close(self) -> None:
        self._network.listeners.pop(self.address, None)

    def accepted(self, transport: SimTransport, *, has_tls: bool) -> None:
        """Take a new connection; one without the required TLS stays in its handshake."""
        if has_tls or not self.has_tls:
            transport.opened(self.factory)
            return
        handler = self.factory()
        self._shaking[handler] = transport
        transport.opened(lambda: Shaking(handler))

    def cut(self, handler: object) -> None:
        """End a connection in its handshake."""
        transport = self._shaking.pop(handler, None)
        if transport is not None:
            transport.abort()


class Network:
    """All streams and listeners of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.transports: dict[SimTransport, None] = {}
        self.machines: dict[str, str] = {}
        self.addresses: dict[str, str] = {}  # of client machines; by default where they connect to
        self.latency_ms: dict[Way, float] = {}
        self._cuts: set[Way] = set()
        self._held: dict[Way, deque[tuple[SimTransport | None, Callable[[], None]]]] = {}
        self._dark: dict[str, list[Callable[[], None]]] = {}
        self._next_port = FIRST_EPHEMERAL_PORT

    def soon(self, owner: str, fn: Callable[..., object], *args: object) -> None:
        self.world.at(self.world.now_ms, fn, *args, owner=owner)

    # Streams.

    def listen(
        self, owner: str, host: str, port: int, factory: Callable[[], Any], *, has_tls: bool = False
    ) -> SimListener:
        """Listen on an address; raises OSError if it is taken."""
        address = (host, port or self._ephemeral_port())
        if address in self.listeners:
            raise OSError(f"{host}:{port} is in use")
        listener = SimListener(self, owner, address, factory, has_tls=has_tls)
        self.listeners[address] = listener
        return listener

    def connect(
        self,
        owner: str,
        host: str,
        port: int,
        factory: Callable[[], Any],
        opened: Opened,
        *,
        has_tls: bool = False,
    ) -> None:
        """Connect both ends; `opened` is called in a later event of `owner`.

        The attempt waits as long as either direction is cut, or the other machine has no power.
        """
        here, there = machine_of(owner), self.machines.get(host, host)

        def again() -> None:
            self.connect(owner, host, port, factory, opened, has_tls=has_tls)

        for way in ((here, there), (there, here)):
            if way in self._cuts:
                self._held.setdefault(way, deque()).append((None, again))
                return
        if there in self._dark:
            self._dark[there].append(again)
            return
        listener = self.listeners.get((host, port))
        if listener is None:
            refused = ConnectionRefusedError(f"nobody listens on {host}:{port}")
            self.soon(owner, opened, None, refused)
            return
        local = (self.addresses.get(here, host), self._ephemeral_port())
        near = SimTransport(self, owner, local, listener.address)
        far = SimTransport(self, listener.owner, listener.address, local)
        near.peer, far.peer = far, near
        self.transports[near] = self.transports[far] = None
        accepted = functools.partial(listener.accepted, far, has_tls=has_tls)
        self.soon(listener.owner, accepted)
        self.soon(owner, near.opened, factory, opened)

    def carry(self, source: SimTransport, method: str, args: tuple[object, ...]) -> None:
        """Carry a call from one end of a stream to the other."""
        target = source.peer
        assert target is not None
        way = (source.machine, target.machine)
        if way in self._cuts:
            self._held.setdefault(way, deque()).append((source, lambda: self.carry(source, method, args)))
            return
        if target.has_no_power:
            if target.machine not in self._dark and method != "arrive_reset":
                self.soon(source.owner, source.arrive_reset)
            return
        world = self.world
        latency_ms = world.rng.uniform(LATENCY_MIN_MS, LATENCY_MAX_MS) + self.latency_ms.get(way, 0.0)
        source.last_arrival_ms = max(world.now_ms + latency_ms, source.last_arrival_ms)
        world.at(source.last_arrival_ms, getattr(target, method), *args, owner=target.owner)

    def acknowledge(self, source: SimTransport, num_bytes: int) -> None:
        """Give `source` room for bytes that its peer has read, unless the way back is cut."""
        assert source.peer is not None
        way = (source.peer.machine, source.machine)
        if way in self._cuts:
            go_on = functools.partial(self.acknowledge, source, num_bytes)
            self._held.setdefault(way, deque()).append((None, go_on))
        else:
            source.drained(num_bytes)

    def drop_held(self, source: SimTransport) -> None:
        """Drop what this end has written and what is held back: it is not retransmitted any more."""
        assert source.peer is not None
        way = (source.machine, source.peer.machine)
        if way in self._held:
            self._held[way] = deque(one for one in self._held[way] if one[0] is not source)

    def drop_host(self, owner: str, *, has_power: bool = True) -> None:
        """Remove a host that died: its addresses refuse and its connections are reset.

        Without power, peers receive nothing from it any more.
        """
        for address in [a for a, listener in self.listeners.items() if listener.owner == owner]:
            del self.listeners[address]
        if not has_power:
            self._dark.setdefault(machine_of(owner), [])
        for transport in [t for t in self.transports if t.owner == owner]:
            del self.transports[transport]
            transport.vanish(has_power=has_power)

    def power_on(self, machine: str) -> None:
        """Give a machine its power back.

        Connection attempts that waited for it are made again, and peers that still have data in flight on a
        connection that it has lost are reset.
        """
        for again in self._dark.pop(machine, []):
            again()
        for transport in list(self.transports):
            peer = transport.peer
            if (
                peer is not None
                and peer.has_no_power
                and peer.machine == machine
                and transport.in_flight_bytes
            ):
                self.soon(transport.owner, transport.arrive_reset)

    # Faults.

    def cut(self, one: str, other: str) -> None:
        """Cut both directions between two machines."""
        self.cut_one_way(one, other)
        self.cut_one_way(other, one)

    def cut_one_way(self, source: str, target: str) -> None:
        """Cut the direction from `source` to `target`; the other stays open."""
        self._cuts.add((source, target))

    def isolate(self, machine: str, others: list[str]) -> None:
        """Cut a machine off from each of the others."""
        for other in others:
            if other != machine:
                self.cut(machine, other)

    def heal(self, one: str, other: str) -> None:
        """End all cuts between two machines: data held back arrives."""
        for way in ((one, other), (other, one)):
            self._heal(way)

    def heal_all(self) -> None:
        """End every cut and every delay."""
        self.latency_ms.clear()
        for way in sorted(self._cuts):
            self._heal(way)

    def _heal(self, way: Way) -> None:
        self._cuts.discard(way)
        for _, go_on in self._held.pop(way, ()):
            go_on()

    def slow_down(self, one: str, other: str, extra_ms: float) -> None:
        """Add to the latency between two machines, in each direction; 0 ends it."""
        for way in ((one, other), (other, one)):
            self.latency_ms[way] = extra_ms

    def reset(self, one: str, other: str, later_ms: float = 0.0) -> int:
        """Reset both ends of every connection between two machines, and return their number.

        `other` gets its resets `later_ms` after `one`, as when something between them forgets a connection.
        """
        found = [
            t for t in self.transports if t.peer is not None and (t.machine, t.peer.machine) == (one, other)
        ]
        for transport in found:
            far = transport.peer
            assert far is not None
            self.soon(transport.owner, transport.arrive_reset)
            self.world.at(self.world.now_ms + later_ms, far.arrive_reset, owner=far.owner)
        return len(found)

    def _ephemeral_port(self) -> int:
        self._next_port += 1
        return self._next_port


def machine_of(owner: str) -> str:
    """Return the machine that a host (`machine#boot`) runs on."""
    return owner.partition("#")[0]
