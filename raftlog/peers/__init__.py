"""The links between the nodes of a cluster: one authenticated connection per pair, for all shards.

`raftlog.peers.links` has the links themselves; here is what is said about them, which settings and launchers
load without them.
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
