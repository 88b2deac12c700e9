"""The sans-IO core of the consumer: no asyncio, no socket, no clock of its own.

types           partitions, offsets, records
errors          the errors that a consumer raises
settings        the table of a consumer's settings
setting_kinds   what a setting accepts
env             the clock, chance and connections, which come from outside
events          the two queues between the application side and the background side

assembly        both sides of a consumer, built from its settings
application     the application side: the calls of a consumer
leases          the application side of leases: what is held, and what has changed
lease_assembly  a member without messages, built from its settings
subscription    what it subscribes to
effects         what the application side asks of the flavour that drives it
rebalance       the application side of a rebalance, with its callbacks
consumed        records on their way to the user, and the positions after them
unraised        errors that wait for the poll() that raises them
offset_commits  which offsets are committed when, and who is told
inquiries       calls that only ask the cluster something
assignors       client-side assignors

background      one pass of the background side
requests        requests, answers, request managers
backoff         waits after failures in a row
futures         completing the futures of calls
network/        the network delegate: connections, versions, authentication, deadlines
cluster_view    nodes, topics, partitions and leaders
metadata        keeps the newest view of the cluster
coordinator     finds the group's coordinator, again and again
member/         the member of a group: states, heartbeats, assignments
calls           calls that may take several requests, with their deadlines
topic_ids       topics by name and by id, as requests name them
commits         commits of offsets, one after the other
committed       the group's committed offsets
list_offsets    offsets by time, the first and the last ones
positions       the partitions that are fetched, and where they begin
fetch/          records of partitions, from the log to the application
"""
