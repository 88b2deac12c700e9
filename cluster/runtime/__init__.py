"""One shard on one node, from the replica's calls to the replies of clients.

shard_replica    the shard as its replica drives it: loading, following, leading; its status
shard_runtime    requests in, decisions to the log, replies once they may be given
group_runtime    a group shard: also the work that is due at a time, where members' timers fire
catalog_runtime  the metadata shard: the committed catalog that the rest of the node reads
shard_state      Down, CatchUp, Ready, derived from the replica's state
shard_context    settings, and the interfaces of node and state machine
pending_replies  replies that wait for a commit and a proof of leadership
answers          the errors that the runtime itself answers
fanout           requests that concern several shards
slices           one budget per turn of the loop for all slow work
job_slots        child processes: a few of each kind at once
waiters          long polls that wait for a commit
heartbeat_gaps   the longest gaps between heartbeats, for the evidence file
refusal_notes    refused requests, for the evidence file
shard_counters   counters for the metrics
"""
