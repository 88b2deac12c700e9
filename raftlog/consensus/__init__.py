"""Elections, terms and the commit index: pysyncobj as the Raft engine.

raft               the engine, with every override that makes it safe
pysyncobj_adapter  pysyncobj of one release on our clock, journal and links
election           when a node may campaign, and for whom it may vote: the pre-vote
progress           how far each follower is, and when it last answered
messages           what replicas of a shard send each other, as msgpack arrays
"""
