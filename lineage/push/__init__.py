"""The push protocol (seed 004): consumers register, and the coordinator pings, stops and starts them.

messages   the protocol's own wire schemas, with bounds
machines   the states of a consumer as tables: as its coordinator sees it, and as it sees itself
decisions  settings, events and decisions of the coordinator
protocol   the coordinator of one group
rounds     who owns what: the value of record 1011, and how partitions are divided
consumer   the consumer: events in, messages and commands to a fetcher out

docs/generations.md tells where the seed's text is silent, and what was chosen.
"""
