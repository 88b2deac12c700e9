"""The replica of one shard: loading, following, leading, and applying what is committed.

replica        one shard's replica, as its user sees it
replica_state  its states, and what changes them, as a table
leadership     what it proves about its lead, and what can be asked of it as leader
committed_log  reading what it has committed
disk_room      whether its disk has room
term_start     the first entry of a term
candidacy      its part in elections: votes, campaigns, what keeps it from them
peering        messages of peers and the timer: to elections, the leader's half or the follower's
leader         entries to followers, what their answers mean, proofs, hand-over
follower       entries of the leader, and when they are acknowledged
delivery       what follows from the commit index: the state machine applies, and is told
applier        the state machine kept level with the log, and rebuilt if applied entries were truncated
log_replay     applying what is on disk already
sliced_work    work that grows with the log, a slice in each turn
agreement      hashes of entries and state, compared between nodes
comparison     when they are sent, and what follows from a difference
balancing      which node should lead which shard
clock          the time that most nodes tell
"""
