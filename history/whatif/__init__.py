"""What if: a group's recorded membership, decided once more under other settings.

The log tells what members did: who joined with which subscription, who left, when topics changed, how long
each took until its next heartbeat and until it gave up what it had to. The coordinator's own code decides
what becomes of that. So what members did can be played to it again, with another assignor or other timeouts,
and both courses be measured with the same measures.

    settings    what is to be different, and assignors by name or as ``module:Class``
    recorded    `Recorded`: what the members of one group did, as plain data
    due         who could get on by a heartbeat, and since when; the same rule for both courses
    extract     from a group's entries to `Recorded`
    conduct     how members would have behaved: their delays, silences, returns; known or assumed
    surroundings
                bounds, settings and requests that a replay makes up
    replay      plays it to `coordinator.shard.GroupShard` on virtual time
    measures    what both courses are measured by, from facts
    answer      `whatif`, the pure function over one group; and over a log
    telling     the answer in words
"""
