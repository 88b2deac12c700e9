"""One shard on one node, from the replica's calls to the replies of clients.

shard_runtime       the shard as its replica drives it: loading, leading, held replies, status
requests            requests in, decisions to the log
group_duties        what a node does for a group shard besides requests: catalog, due work, jobs, heartbeats
due_work            the work that is due at a time, where members' timers fire
group_jobs          the child processes that decisions start, and what is decided on their results
catalog_duties      what it does for the metadata shard besides requests: what waits for the other nodes
transaction_waits   EndTxn until the transaction is complete, TxnOffsetCommit until the catalog has it
resolved_decisions  how far a group shard has followed the ends of transactions
committed_catalog   the committed catalog that the rest of the node reads, and its age
shard_state         Down, CatchUp, Ready, derived from the replica's state
shard_context       settings, and the interfaces of node and state machine
pending_replies     replies that wait for a commit and a proof of leadership
answers             the errors that the runtime itself answers
fanout              requests that concern several shards
slices              one budget per turn of the loop for all slow work
job_slots           child processes: a few of each kind at once
waiters             long polls that wait for a commit
heartbeat_gaps      the longest gaps between heartbeats, for the evidence file
refusal_notes       refused requests, for the evidence file
shard_counters      counters for the metrics
"""
