"""The links of one node to all others: dialling, choosing the current connection, one packet per turn.

The node with the greater id dials and redials; the other listens.  Each pair has at most one current link,
the one that came up last, and the users (one per shard) see that one only.  All messages that the users send
within one turn of the loop leave as one packet per peer at its end.

Invariants: a peer is up only after it has proven that it knows the secret and its boot was accepted;
a superseded connection is cut before its successor is announced; nothing that strangers do costs more than
`STRANGERS_MAX` connections with small buffers, counted from the accept on, and a few lines of log.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from raftlog.env.errors import RaftlogError
from raftlog.env.host import Host, Listener, StreamHandler
from raftlog.storage.directory import NodeDirectory
from raftlog.transport.boots import Boots
from raftlog.transport.contract import LinkUser, PeerInfo, PeersError, PeerSettings, SelfDescription
from raftlog.transport.handshake import Handshake
from raftlog.transport.hello import Hello
from raftlog.transport.link import TICK_MS, Link, LinkState
from raftlog.transport.packets import BadPacket
from raftlog.transport.peer import Notes, Peer
from raftlog.transport.refusals import HelloRefused, RefusedByPeer
from raftlog.transport.secret import read_secret

LOG = logging.getLogger("quorate.peers")

STRANGERS_MAX: Final = 64
"""At most this many accepted connections may be unproven, in TLS handshake or hello.

One more cuts off the oldest.  A real peer takes milliseconds, so an attacker who fills the places must be
quick to keep it out.
"""

DIAL_AGAIN_MS: Final = 100
DIAL_AGAIN_MAX_MS: Final = 250
DIAL_GROWTH: Final = 1.3
"""The factor by which the delay between dials grows.

A node that is back is found within a quarter of a second; a dial on loopback costs one refused connection.
"""


class Links:
    """One connection per pair of nodes, shared by all shards."""

    def __init__(
        self,
        host: Host,
        directory: NodeDirectory,
        settings: PeerSettings,
        describe: Callable[[], SelfDescription],
    ) -> None:
        """`describe` is called at each hello and eight times a second; changes are sent to all peers."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after a link went up or down, or a peer sent a new description of itself."""
        self.on_clock: Callable[[], None] = lambda: None
        """Called after a peer reported its wall clock."""
        self._host = host
        self._directory = directory
        self._settings = settings
        self._describe = describe
        self._described: SelfDescription | None = None  # set at the first hello: too early now
        self._users: dict[int, LinkUser] = {}
        own_id = directory.identity.node_id
        now_ms = host.monotonic_ms()
        self._configured = {
            address.node_id: Peer(address, is_dialled=address.node_id < own_id, changed_ms=now_ms)
            for address in settings.nodes
            if address.node_id != own_id
        }
        self._peers: Mapping[int, PeerInfo] = {}
        self._up: dict[int, Link] = {}
        self._open: dict[Link, None] = {}
        self._notes = Notes(host)
        self._secret = b""
        self._boots: Boots
        self._listener: Listener | None = None
        self._listening_since_ms: float | None = None
        self._is_stopped = False
        self._is_outdated = False
        self._is_flush_due = False
        self._ticked_ms = now_ms

    # Life.

    def attach(self, shard: int, user: LinkUser) -> None:
        """Register `user` to send and receive for `shard`; only before `start`."""
        self._users[shard] = user

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        """Listen and dial; calls `done` with None when listening, or PeersError, Corrupt or OSError."""
        try:
            self._check_nodes()
            self._secret = read_secret(self._host, self._settings.secret_file)
            self._boots = Boots(self._host, self._directory.path, self._directory.identity)
        except RaftlogError as error:
            self._host.call_soon(done, error)
            return
        self._host.listen(
            self._settings.bind_host,
            self._settings.bind_port,
            self._accept,
            functools.partial(self._listening, done),
            tls=self._settings.tls,
        )

    def _check_nodes(self) -> None:
        ids = tuple(address.node_id for address in self._settings.nodes)
        voters = self._directory.identity.voters
        if ids != voters:
            formatted_for = ", ".join(map(str, voters)) or "a cluster of one"
            raise PeersError(
                f"cluster.nodes names nodes {', '.join(map(str, ids))}, but {self._directory.path} was "
                f"formatted for {formatted_for}; name the same nodes, or format another directory"
            )

    def _listening(
        self,
        done: Callable[[BaseException | None], None],
        listener: Listener | None,
        error: BaseException | None,
    ) -> None:
        if listener is None:
            done(error)
            return
        if self._is_stopped:
            listener.close()
            return
        self._listener = listener
        self._ticked_ms = self._listening_since_ms = self._host.monotonic_ms()
        self._host.call_later(TICK_MS, self._tick)
        for peer in self._configured.values():
            if peer.is_dialled:
                self._dial(peer)
        done(None)

    def stop(self) -> None:
        """Send the queued messages and close everything; users get `peer_down` for links that were up."""
        self._is_stopped = True
        if self._listener is not None:
            self._listener.close()
        for link in tuple(self._open):
            link.close(None)

    # Calls from users.

    def send(self, node_id: int, shard: int, payload: bytes) -> bool:
        """Queue `payload` for the end of this turn; False if there is no link.

        A large payload is sent at once, after those queued.  Raises ValueError beyond
        `packets.PAYLOAD_BYTES_MAX`.
        """
        link = self._up.get(node_id)
        if link is None:
            return False
        link.queue(shard, payload)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._host.call_soon(self._end_turn)
        return True

    def can_send(self, node_id: int) -> bool:
        """Whether the link is up and its send buffer is below its bound."""
        link = self._up.get(node_id)
        return link is not None and not link.is_paused

    def flush(self) -> None:
        """Write the queued messages now (before a sync that blocks the loop)."""
        for link in self._up.values():
            link.flush()

    def _end_turn(self) -> None:
        self._is_flush_due = False
        self.flush()

    @property
    def peers(self) -> Mapping[int, PeerInfo]:
        """The links that are up, by node id; a snapshot, as a change replaces the mapping."""
        return self._peers

    def have_met(self, meeting_ms: float) -> bool:
        """Whether every peer has had a link since the start, or has had `meeting_ms` for it."""
        if all(peer.info is not None for peer in self._configured.values()):
            return True
        since_ms = self._listening_since_ms
        return since_ms is not None and self._host.monotonic_ms() - since_ms >= meeting_ms

    def lost_within(self, period_ms: float) -> list[PeerInfo]:
        """Return what is known of the peers whose link has been down for less than `period_ms`."""
        since_ms = self._host.monotonic_ms() - period_ms
        return [
            peer.info
            for peer in self._configured.values()
            if peer.link is None and peer.info is not None and peer.changed_ms > since_ms
        ]

    @property
    def port(self) -> int:
        """The port on which this node listens for its peers."""
        assert self._listener is not None, "the links have not been started"
        return self._listener.port

    def status(self) -> list[dict[str, Any]]:
        """The status of each configured peer; JSON-ready."""
        now_ms = self._host.monotonic_ms()
        return [peer.status(now_ms) for _, peer in sorted(self._configured.items())]

    # Dialling and accepting.

    def _hello(self, to_node_id: int, attempt: int) -> Hello:
        identity = self._directory.identity
        return Hello(
            cluster_id=identity.cluster_id,
            node_id=identity.node_id,
            to_node_id=to_node_id,
            num_shards=identity.num_shards,
            voters=identity.voters,
            incarnation=identity.incarnation,
            is_replacement=identity.is_replacement,
            boot_id=self._directory.boot_id,
            previous_boot_id=self._directory.previous_boot_id,
            attempt=attempt,
            description=self._refreshed(),
            nonce=self._host.fresh_uuid() + self._host.fresh_uuid(),
            starting_level=identity.starting_level,
        )

    @property
    def _is_over(self) -> bool:
        return self._is_stopped or self._is_outdated

    def _dial(self, peer: Peer) -> None:
        if self._is_over:
            return
        peer.dials += 1
        address = peer.address
        hello = self._hello(address.node_id, peer.dials)
        link = Link(self._host, self, Handshake(self._secret, hello, is_dialer=True))
        link.remote = str(address)
        self._open[link] = None

        def connected(_: StreamHandler | None, error: BaseException | None) -> None:
            if error is not None:
                link.close(error if isinstance(error, Exception) else OSError(str(error)))

        self._host.connect(address.host, address.port, lambda: link, connected, tls=self._settings.tls)

    def _accept(self) -> Link:
        strangers = [link for link in self._open if not link.is_dialer and link.state is LinkState.SHAKING]
        if len(strangers) >= STRANGERS_MAX:
            strangers[0].close(
                TimeoutError(f"{STRANGERS_MAX} other connections have not completed their handshake either")
            )
        link = Link(self._host, self, Handshake(self._secret, self._hello(-1, 0), is_dialer=False))
        self._open[link] = None
        if self._is_over:
            link.close(None)
        return link

    def _tick(self) -> None:
        if self._is_stopped:
            return
        now_ms = self._host.monotonic_ms()
        is_late = now_ms - self._ticked_ms > 2 * TICK_MS
        self._ticked_ms = now_ms
        self._refreshed()
        for link in tuple(self._open):
            link.tick(is_late)
        self._host.call_later(TICK_MS, self._tick)

    def _refreshed(self) -> SelfDescription:
        """The node's current description; if it has changed, it is sent to all peers."""
        described = self._describe()
        if described != self._described:
            self._described = described
            for link in self._up.values():
                link.describe(described)
        return described

    # Calls from a link (`LinkOwner`).

    def link_proven(self, link: Link) -> None:
        assert link.peer is not None
        self._boots.accept(link.peer, link.accepted)

    def link_up(self, link: Link) -> None:
        hello = link.peer
        assert hello is not None
        peer = self._configured[hello.node_id]
        boot, attempt = peer.last_attempt
        if not self._boots.is_latest(hello) or (boot == hello.boot_id and hello.attempt < attempt):
            link.close(BadPacket("a newer connection of this peer came up first"))
            return
        if peer.link is not None:
            peer.link.close(BadPacket("the peer has opened another connection"))
        peer.last_attempt = (hello.boot_id, hello.attempt)
        peer.link = self._up[hello.node_id] = link
        peer.failures = 0
        peer.trouble = ""
        peer.changed_ms = self._host.monotonic_ms()
        peer.info = _info(hello, peer.changed_ms)
        self._renew_peers()
        if self._described is not None and link.own.description != self._described:
            link.describe(self._described)
        text = f"link to node {hello.node_id} at {link.remote} is up (release {hello.description.release})"
        self._notes.write(hello.node_id, "up", logging.INFO, text)
        for user in self._users.values():
            user.peer_up(hello.node_id)
        self.on_change()

    def link_message(self, link: Link, shard: int, payload: bytes) -> None:
        user = self._users.get(shard)
        if user is None:
            raise BadPacket(f"a message for shard {shard}, which this node does not have")
        assert link.peer is not None
        user.peer_message(link.peer.node_id, payload)

    def link_described(self, link: Link, description: SelfDescription) -> None:
        assert link.peer is not None
        peer = self._configured[link.peer.node_id]
        if peer.link is not None and peer.info is not None:
            peer.info = dataclasses.replace(peer.info, **dataclasses.asdict(description))
            self._renew_peers()
            self.on_change()

    def link_clock(self, link: Link, their_wall_ms: float) -> None:
        assert link.peer is not None
        peer = self._configured[link.peer.node_id]
        if peer.link is not None and peer.info is not None:
            skew_ms = their_wall_ms - self._host.wall_ms()
            offset_ms = their_wall_ms - self._host.monotonic_ms()
            peer.info = dataclasses.replace(peer.info, clock_skew_ms=skew_ms, clock_offset_ms=offset_ms)
            self._renew_peers()
            peer.note_skew(skew_ms)
            self.on_clock()

    def clock_offsets(self) -> list[float]:
        """Wall clocks of the peers in contact minus this node's monotonic clock, in ms."""
        return [info.clock_offset_ms for info in self._peers.values() if info.clock_offset_ms is not None]

    def link_writable(self, link: Link) -> None:
        assert link.peer is not None
        for user in self._users.values():
            user.peer_writable(link.peer.node_id)

    def link_closed(self, link: Link, why: Exception | None) -> None:
        self._open.pop(link, None)
        if not link.has_stream and self._listener is not None:
            self._listener.cut(link)
        peer = self._peer_of(link)
        if peer is None:
            self._note_trouble(None, f"connection from {link.remote}", why)
            return
        node_id = peer.address.node_id
        is_current = peer.link is link
        if is_current:
            peer.link = None
            self._renew_peers()
            del self._up[node_id]
            peer.changed_ms = self._host.monotonic_ms()
            peer.past_bytes_in += link.bytes_in
            peer.past_bytes_out += link.bytes_out
        text = self._note_trouble(node_id, f"link to node {node_id} at {link.remote}", why)
        if peer.link is None and text:
            peer.trouble = text
        if is_current:
            for user in self._users.values():
                user.peer_down(node_id)
            self.on_change()
        if isinstance(why, RefusedByPeer) and why.is_outdated:
            self._withdraw(node_id, text)
        elif link.is_dialer and not self._is_over:
            self._dial_again(peer)

    def _withdraw(self, node_id: int, text: str) -> None:
        """Close all links: a peer has proven that it knows of a newer disk of this node.

        The other peers must not rely on this disk either.
        """
        if self._is_outdated:
            return
        self._is_outdated = True
        for peer in self._configured.values():
            peer.trouble = text
        LOG.error(
            "node %d knows a newer disk of this node: this one does not participate until it is formatted "
            "with --replace; if two nodes run with this id, stop one and restart the other",
            node_id,
        )
        for link in tuple(self._open):
            link.close(None)

    def _renew_peers(self) -> None:
        self._peers = {
            node_id: peer.info
            for node_id, peer in self._configured.items()
            if peer.link is not None and peer.info is not None
        }

    def _dial_again(self, peer: Peer) -> None:
        delay_ms = min(DIAL_AGAIN_MAX_MS, DIAL_AGAIN_MS * DIAL_GROWTH ** min(peer.failures, 16))
        peer.failures += 1
        self._host.call_later(delay_ms * self._host.rng.uniform(0.5, 1.0), self._dial, peer)

    def _peer_of(self, link: Link) -> Peer | None:
        """The peer that a link leads to, or, before any proof, claims to lead to."""
        if link.is_dialer:
            return self._configured[link.own.to_node_id]
        return None if link.peer is None else self._configured.get(link.peer.node_id)

    def _note_trouble(self, node_id: int | None, subject: str, why: Exception | None) -> str:
        """Log the end of a connection; returns the reason in words."""
        if why is None:
            return ""
        text = _said(why)
        level = logging.WARNING if isinstance(why, HelloRefused | RefusedByPeer | BadPacket) else logging.INFO
        kind = why.code.name if isinstance(why, HelloRefused) else type(why).__name__
        self._notes.write(node_id, kind, level, f"{subject}: {text}")
        return text


def _said(why: Exception) -> str:
    if isinstance(why, HelloRefused):
        return f"refused: it {why}"
    if isinstance(why, RefusedByPeer):
        return f"it refused this node: {why}"
    if isinstance(why, OSError) and why.strerror:
        return why.strerror
    return str(why) or type(why).__name__


def _info(hello: Hello, now_ms: float) -> PeerInfo:
    return PeerInfo(
        node_id=hello.node_id,
        incarnation=hello.incarnation,
        is_replacement=hello.is_replacement,
        starting_level=hello.starting_level,
        boot_id=hello.boot_id,
        clock_skew_ms=0.0,
        clock_offset_ms=None,
        since_ms=now_ms,
        **dataclasses.asdict(hello.description),
    )
