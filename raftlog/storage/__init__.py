"""Files on disk: the live log of a shard, its history, and the files of a node.

frames              one entry as bytes
segments            a file of frames, with a header that names its log
scan                walking a segment to find where each entry is
hash_chain          two logs with equal chains hold equal entries
append_validation   the frames of a leader, checked before they are appended
journal             the live log: append, read, cut, seal
group_commit        what one turn of the loop appended is one write and one sync
sync_mark           up to where a log was once synced here
loader              from the files that a stop or a crash left to a journal
sealed_index        one row per record of a segment that will not change any more
index_build         that index made from a segment's bytes
snapshots           a shard's state up to an entry, as records
snapshotter         when and how the live log becomes history
merge               the child process that writes a snapshot from sealed segments and the snapshot before
snapshot_install    a snapshot that comes from another node, put in place
archive             segments below the snapshot, and their retention
shipping            the child process that ships sealed segments to an object store
shipped_mark        up to which entry the store has them
retained_snapshots  a few earlier snapshots, so that a look into the past need not replay all
directory           formatting and opening a node's directory
metafile            small files that hold one value
evidence            what the log does not say: refusals and heartbeat gaps
"""
