"""A running node with its shards and listeners, and the processes around it (docs/architecture.md).

The layers from top to bottom. No layer knows of one above it; an import contract enforces this.

main            the process of one node
collector       Python's garbage collector, timed
descriptors     file descriptors for every connection
launching/      node processes started, supervised and, on request, killed or suspended from outside
simulator/      whole clusters on virtual time
node            a node: its directory, its shards, its links, its listeners
http/           the HTTP listener
adaptive        measures the load and sets the heartbeat interval; interval_rule decides it
shipping        sends sealed segments to an object store, off by default
lineage/        listeners and consumers of the older group protocols, off by default
kafka/          the Kafka listener
routing         from a request to the shards that decide it
format_level    where a new cluster's format level begins, and how it rises
membership      which nodes are in contact, and which leads what
handover        transfers what this node leads when it stops
runtime/        one shard on one node: its life, requests, deadlines, held replies
faults/         faults that an operator sets on a node
settings/       every setting as a table
group_settings  the settings in force for a group
node_info       the identity of a node and of a client
scratchlog/     messages in memory, for tests of clients
children/       the code that child processes run
host/           the Host of a real process
assignors       installed assignors
log_lines       the node's own log: text, or JSON lines
supervisor_socket  commands to the launcher of a running cluster
interval_rule   how a node chooses its heartbeat interval
"""
