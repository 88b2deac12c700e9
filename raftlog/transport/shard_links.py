"""The links to the peers, as the replica of one shard uses them."""

from __future__ import annotations

from typing import Protocol


class PeerLinks(Protocol):
    """The part of `links.Links` that replicas need."""

    def send(self, node_id: int, shard: int, payload: bytes) -> bool: ...
    def can_send(self, node_id: int) -> bool: ...
    def flush(self) -> None: ...


class ShardLinks:
    """Sends the messages of one shard until it is closed."""

    def __init__(self, links: PeerLinks, shard: int) -> None:
        self._links = links
        self._shard = shard
        self._is_closed = False
        self.can_send = links.can_send
        """Whether there is room in the send buffer to a peer."""
        self.flush = links.flush
        """Sends what this turn has queued, before the turn ends."""

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True

    def send(self, node_id: int, payload: bytes) -> bool:
        """Queue a message for a peer's replica of the shard; False when there is no link."""
        return not self._is_closed and self._links.send(node_id, self._shard, payload)
