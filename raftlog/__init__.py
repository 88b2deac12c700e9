"""The log: entries in segments, replicated by Raft, compacted into snapshots and archived.

A package imports only those below it, which an import contract holds. `catch_up` and `offline` do not know
each other, nor do `consensus` and `transport`.

    replica/    the replica of one shard: its states, leading and following, applying what is committed
    catch_up/   a follower that lacks entries: from the log, from the archive, or by snapshot
    offline/    reading and verifying directories without a node: never writing, also copies and damaged ones
    consensus/  elections, terms and commit index, without I/O; pysyncobj composed in one module
    transport/  links between nodes: one authenticated connection a pair, for all shards
    storage/    what is on disk: frames, segments, journal, snapshots, archive
    env/        the outside as the log sees it: clock, timers, files, errors, settings

Bodies of entries are opaque here except to the sealed index and the merge, which walk the records in them.
"""
