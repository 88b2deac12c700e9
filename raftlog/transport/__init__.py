"""Links between the nodes of a cluster: one authenticated connection for each pair, shared by all shards.

links      the links of one node: who dials, which connection counts, what goes out in one turn
link       one connection, from the handshake to its end
handshake  who speaks when, and the proof of the cluster's secret, without a socket
hello      what a node says of itself when a connection opens
claims     what one node can find wrong with another's hello
refusals   why a node does not talk to another, as codes that travel
boots      which starts of which disks were accepted, so that an old disk is found out
packets    messages of all shards to one peer: framed, counted, authenticated
peer       what is kept of one configured peer
shard_links  the links as the replica of one shard uses them
secret     the file with the cluster's secret
contract   what a user of links gives them and gets from them
"""

from raftlog.transport.contract import (
    LinkUser,
    PeerAddress,
    PeerInfo,
    PeersError,
    PeerSettings,
    SelfDescription,
)

__all__ = ["LinkUser", "PeerAddress", "PeerInfo", "PeerSettings", "PeersError", "SelfDescription"]
