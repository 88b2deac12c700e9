"""Group protocols that came before Kafka's: each complete in a package of its own, pure, over the same log.

A package has its wire schemas, its coordinator and its consumer, none of which knows a socket or a clock.

shard     what both see of the shard around a group: topics, and groups of other protocols
push/     the coordinator calls the consumers: Register, Ping, Stop, Start (seed 004)
rewrite/  generations given by the coordinator: JoinGroup, Heartbeat, in two variants (seed 000)
"""
