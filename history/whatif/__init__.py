"""A group's recorded membership, decided again under other settings.

The log records what members did: joins with their subscriptions, leaves, topic changes, how long each member
took until its next heartbeat and until it gave up revoked partitions. The coordinator's own code decides the
consequences. So the recorded actions can be replayed with another assignor or other timeouts, and both
courses be measured with the same measures.

    settings        what is to be different, and assignors by name or as ``module:Class``
    recorded        `Recorded`: what the members of one group did, as plain data
    due             members that could progress by a heartbeat, and since when; the same rule for both courses
    extract         from a group's entries to `Recorded`
    member_model    how members would have behaved: their delays, silences, returns; known or assumed
    replay_harness  bounds, settings and requests that a replay makes up
    replay          replays it with `coordinator.shard.GroupShard` on virtual time
    measures        the measures of both courses, from facts
    answer          `whatif`, the pure function over one group; and over a log
    verdict         whether the other course is better or worse, and by how much, in a sentence
    telling         the answer in words
"""
