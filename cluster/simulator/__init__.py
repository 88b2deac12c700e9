"""A world in which whole nodes run on virtual time: one seed, one history.

The simulator is a second implementation of `raftlog.env.host.Host`; its nodes, runtimes, listeners and
journals are the real ones. Nothing in it reads a clock, opens a socket or draws a random number of its own.

world    virtual time: a heap of events, and the only source of randomness
host     the Host on virtual time
network  streams in memory, with latency and faults
streams  one end of such a stream
machine  a disk that outlives its nodes, and one node at a time
cluster  several machines, and the questions that tests ask about them
client   a Kafka client at the level of frames
talking  a client's connection that never waits: answers come to callbacks

wiretap  an ear at a client's connections

virtual_consumer    the product's own consumer, both of its sides
client_connections  its connections
"""

from cluster.simulator.client import ConnectionGone, WireClient
from cluster.simulator.cluster import SimCluster
from cluster.simulator.host import VirtualHost
from cluster.simulator.machine import Machine
from cluster.simulator.network import Network
from cluster.simulator.streams import SimTransport
from cluster.simulator.world import World

__all__ = [
    "ConnectionGone",
    "Machine",
    "Network",
    "SimCluster",
    "SimTransport",
    "VirtualHost",
    "WireClient",
    "World",
]
