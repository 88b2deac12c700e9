"""The contract of the links between nodes: addresses, settings, descriptions, and their user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from raftlog.env.errors import RaftlogError
from raftlog.env.host import TlsSettings


class PeersError(RaftlogError):
    """The links cannot start: one sentence about the secret, the address or the accepted boots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAddress:
    """The address on which a node listens for its peers."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """The settings by which a node finds its peers and proves that it belongs to the cluster."""

    nodes: tuple[PeerAddress, ...]
    """Every node of the cluster, this one included, by id."""
    bind_host: str
    bind_port: int
    secret_file: str
    """The path of the secret: at least 16 bytes, known only to the nodes of the cluster."""
    tls: TlsSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfDescription:
    """A node's description of itself besides its identity; requested at each hello."""

    release: str
    kafka_host: str
    kafka_port: int
    http_host: str
    http_port: int
    format_level_max: int
    """The highest format level that this release can read (`records.LATEST_FORMAT_LEVEL`)."""
    format_level: int
    """The finalised format level, as far as this node knows; a node that cannot read it may not join."""
    lineage_ports: tuple[int, ...] = ()
    """Ports of older group protocols: push, rewrite; 0 for one that is off. Empty from an older release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerInfo:
    """A peer's hello, and what is known about the link to it."""

    node_id: int
    incarnation: str
    is_replacement: bool
    starting_level: int
    boot_id: str
    release: str
    kafka_host: str
    kafka_port: int
    http_host: str
    http_port: int
    format_level_max: int
    format_level: int
    lineage_ports: tuple[int, ...]
    clock_skew_ms: float
    """The peer's wall clock minus ours, accurate to half a round trip; 0 until the first answer."""
    clock_offset_ms: float | None
    """The peer's wall clock minus our monotonic one, which never steps; None until the first answer."""
    since_ms: float
    """The time on our monotonic clock when the link came up."""


class LinkUser(Protocol):
    """The user of the links for one shard: its replica.  Called on the loop, one call after another."""

    def peer_up(self, node_id: int) -> None:
        """A link to `node_id` is up: `send` may be called, also from inside this call."""

    def peer_down(self, node_id: int) -> None:
        """The link is gone (closed, reset, superseded, silent too long); it delivers nothing more."""

    def peer_message(self, node_id: int, payload: bytes) -> None:
        """A payload that the peer's replica of the same shard passed to `send`; in the order of sending."""

    def peer_writable(self, node_id: int) -> None:
        """The send buffer fell below its bound again, after `can_send` had returned False."""
