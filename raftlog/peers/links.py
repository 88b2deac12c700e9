"""The links of one node to its peers (signatures)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from raftlog.directory import NodeDirectory
from raftlog.host import Host
from raftlog.peers.contract import LinkUser, PeerInfo, PeerSettings, SelfDescription


class Links:
    """One connection per pair of nodes, shared by all shards."""

    on_change: Callable[[], None]
    """Called after a link went up or down."""

    def __init__(
        self,
        host: Host,
        directory: NodeDirectory,
        settings: PeerSettings,
        describe: Callable[[], SelfDescription],
    ) -> None:
        raise NotImplementedError

    def attach(self, shard: int, user: LinkUser) -> None:
        """Before `start`: `user` sends and receives for `shard`."""

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        """Listens and dials; `done(None)` when listening. PeersError or OSError come through `done`."""

    def stop(self) -> None:
        """Closes everything; users hear `peer_down` of what was up."""

    def send(self, node_id: int, shard: int, payload: bytes) -> bool:
        """Queues `payload` for the end of this turn; False: there is no link."""
        raise NotImplementedError

    def can_send(self, node_id: int) -> bool:
        """Whether the link is up and what waits on it is below its bound."""
        raise NotImplementedError

    def flush(self) -> None:
        """Writes what is queued now (before a sync that blocks the loop)."""

    @property
    def peers(self) -> Mapping[int, PeerInfo]:
        """The links that are up, by node id."""
        raise NotImplementedError

    def status(self) -> list[dict[str, Any]]:
        """JSON-ready, one per configured peer."""
        raise NotImplementedError
