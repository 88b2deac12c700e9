"""Elections, terms and the commit index, without I/O.

core              Raft's rules: the only writer of term, commit index and match indexes
pysyncobj_engine  pysyncobj, which decides terms and votes: the only module with its private names
election          when a node may campaign, and for whom it may vote: the pre-vote
progress          how far each follower is, and when it last answered
messages          what replicas of a shard send each other, as msgpack arrays
"""
