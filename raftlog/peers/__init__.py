"""The links between the nodes of a cluster: one authenticated connection per pair, for all shards.

`raftlog.peers.links` holds the links themselves; this package exports only their contract, so that settings
and launchers need not load them.
"""

from raftlog.peers.contract import LinkUser, PeerAddress, PeerInfo, PeersError, PeerSettings, SelfDescription

__all__ = [
    "LinkUser",
    "PeerAddress",
    "PeerInfo",
    "PeerSettings",
    "PeersError",
    "SelfDescription",
]
