"""The older group protocols of `lineage` on ports of their own, over the node's shards; off by default.

Nothing here is imported by a node that serves neither.

serving      both protocols of one node: their listeners, and what they are told of the node
connections  a listener of frames and its connections, with the bounds of the Kafka port
shard_door   one group shard: whether it may decide, entries, and what waits for them
push         seed 004: connections that look up, register and commit
push_shard   seed 004: the groups of one shard
rewrite      seed 000: a coordinator for each shard
rewrite_settings  the node's settings of seed 000, as its coordinator has them
strategy_jobs  users' strategies of seed 000, as child processes
push_client, rewrite_client  a consumer of each protocol, with connections and time from a Host
rewrite_fetcher  what a consumer of seed 000 fetches from Kafka ports
client_line  a connection of such a consumer
"""
