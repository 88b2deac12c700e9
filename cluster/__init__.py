"""How it runs: a node with its shards and listeners, and the processes around it (docs/architecture.md).

From the top floor down; what is below knows nothing of what is above, and a contract holds it:

main             the process of one node
launching/       node processes started from outside, held, and ill-treated on request
simulator/       whole clusters on virtual time
node             a node: its directory, its shards, its links, its listeners
http/            the HTTP listener
adaptive         looks at the load, for the interval that members are told
kafka/           the Kafka listener
membership       who is in contact, and who leads what; handover gives away what this node leads
runtime/         one shard on one node: its life, requests, deadlines, replies that wait
settings/        every setting as a table; group_settings: those in force for a group
children/        what child processes run
host/            the Host of a real process
"""
