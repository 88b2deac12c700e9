"""A running node with its shards and listeners, and the processes around it (docs/architecture.md).

The layers from top to bottom. No layer knows of one above it; an import contract enforces this.

main             the process of one node
launching/       node processes started, supervised and, on request, killed or suspended from outside
simulator/       whole clusters on virtual time
node             a node: its directory, its shards, its links, its listeners
http/            the HTTP listener
adaptive         measures the load and sets the heartbeat interval that members are given
kafka/           the Kafka listener
membership       which nodes are in contact and which leads what; handover transfers what this node leads
runtime/         one shard on one node: its life, requests, deadlines, held replies
settings/        every setting as a table; group_settings: the ones in force for a group
children/        the code that child processes run
host/            the Host of a real process
"""
