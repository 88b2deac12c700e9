"""The links between the nodes of a cluster: one authenticated connection per pair, for all shards."""

from raftlog.peers.contract import LinkUser, PeerAddress, PeerInfo, PeersError, PeerSettings, SelfDescription
from raftlog.peers.links import Links

__all__ = [
    "LinkUser",
    "Links",
    "PeerAddress",
    "PeerInfo",
    "PeerSettings",
    "PeersError",
    "SelfDescription",
]
