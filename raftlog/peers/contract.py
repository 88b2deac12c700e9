"""What the links between nodes are told, and what they tell: addresses, settings, descriptions, the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from raftlog.errors import RaftlogError
from raftlog.host import TlsSettings


class PeersError(RaftlogError):
    """The links cannot start: what is wrong with secret, address or accepted boots, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAddress:
    """Where a node listens for its peers."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """How a node finds its peers and proves to them that it belongs to the cluster."""

    nodes: tuple[PeerAddress, ...]
    """Every node of the cluster, this one included, by id."""
    bind_host: str
    bind_port: int
    secret_file: str
    """At least 16 bytes that every node of the cluster has, and nobody else."""
    tls: TlsSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfDescription:
    """What a node tells its peers of itself beside its identity; asked for at each hello."""

    release: str
    kafka_host: str
    kafka_port: int
    http_host: str
    http_port: int
    format_level_max: int
    """The highest format level that this release can read (`records.LATEST_FORMAT_LEVEL`)."""
    format_level: int
    """The format level that is finalised, as far as this node knows; nobody may join who cannot read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerInfo:
    """What a peer said in its hello, and what is known of the link to it."""

    node_id: int
    incarnation: str
    is_replacement: bool
    boot_id: str
    release: str
    kafka_host: str
    kafka_port: int
    http_host: str
    http_port: int
    format_level_max: int
    format_level: int
    clock_skew_ms: float
    """The peer's wall clock minus ours, give or take half a round trip; 0 until the first answer, at once."""
    clock_offset_ms: float | None
    """The peer's wall clock minus our monotonic one, so that no step of ours moves it; None before that."""
    since_ms: float
    """On our monotonic clock: when the link came up."""


class LinkUser(Protocol):
    """Who uses the links on behalf of one shard: its replica. Called on the loop, one call after another."""

    def peer_up(self, node_id: int) -> None:
        """A link to `node_id` is up: `send` may be called, from inside this call too."""

    def peer_down(self, node_id: int) -> None:
        """It is not any more: closed, reset, superseded, silent too long. Nothing of it comes any more."""

    def peer_message(self, node_id: int, payload: bytes) -> None:
        """A payload that the replica of the same shard over there gave to `send`; in the order of sending."""

    def peer_writable(self, node_id: int) -> None:
        """What waits to be sent there fell below its bound again, after `can_send` had said no."""
