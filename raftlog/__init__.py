"""How the log is kept: frames in segments, replication, snapshots, archive, and reading all of it offline.

    host, files         the doors to the outside; `simfiles` is the simulated disk behind the second
    frames              one entry as bytes on disk
    metafile, directory identity, boot ids, term and vote; formatting and opening a node's directory
    segments, journal   the live log: append, group commit, load, torn tails, sealing, archive
    raft                pysyncobj with every override that makes it safe, each naming its defect
    replica, machine    one shard's replica, and the projection that it drives
    peers               links to the other nodes: handshake, sealed packets, accepted boots
    snapshots, merge    compaction of sealed segments by a child process
    reader, verify      offline: never writes, reads damaged and copied directories too
    evidence            what the log does not say: refusals and heartbeat gaps

Bodies of entries are opaque here except to the sealed index and the merge, which walk the records in them.
"""
