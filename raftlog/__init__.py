"""The replicated log: frames in segments, replication, snapshots, archive, and offline reading of all of it.

    host, files         the only access to the outside; `simfiles` is the simulated disk
    frames              one entry as bytes on disk
    metafile, directory identity, boot ids, term and vote; formatting and opening a node's directory
    segments, journal   the live log: append, group commit, load, torn tails, sealing, archive
    raft                pysyncobj with every override that makes it safe, each naming its defect
    replica, machine    one shard's replica, and the projection that it drives
    peers               links to the other nodes: handshake, sealed packets, accepted boots
    snapshots, merge    compaction of sealed segments by a child process
    reader, verify      offline: never writes, reads damaged and copied directories too
    evidence            facts that the log does not record: refusals and heartbeat gaps

Bodies of entries are opaque here except to the sealed index and the merge, which read the records in them.
"""
