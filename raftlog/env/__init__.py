"""The outside as the log sees it, and what every other package of the log rests on.

host             clock, timers, randomness, ids, threads, child processes and streams
files            the only way to the disk
object_stores    logs in S3 and its like, to read from
store_writing    the same to write to, whole files only
simulated_files  a disk in memory that knows what is durable, for tests and the simulator
settings         every bound and duration of the log
errors           what can be wrong with a node's files
state_machine    the interface between a replica and the projection that it drives
obstacles        what keeps a node from serving a shard if it led it
rate_limit       log lines that a peer or a client can cause at the speed of the network
"""
