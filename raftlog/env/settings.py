"""Every bound and duration of the log, with its default and its reason, in one table."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
HOUR_MS = 3_600_000

CHAIN_STRIDE = 64
"""Frames per stride of the hash chain.  Part of the format: nodes compare chains, so all must use the same.

Segments and snapshots end at multiples of it, so that a chain can be continued from a digest alone.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Settings of one node's log; the comment beside each gives the reason for its default."""

    segment_bytes: int = 64 * MIB  # a segment is read, checked and archived whole; few files, short reads
    snapshot_tail_records: int = 200_000  # a restart replays at most about this: under a second
    delete_retention_ms: int = 24 * HOUR_MS  # tombstones stay visible to readers this long, as in Kafka
    log_archive_retention_bytes: int = -1  # per shard; -1 keeps all: history is the product
    log_archive_retention_ms: int = -1  # age by time that certainly passed; -1 keeps all
    log_archive_url: str = ""  # where sealed segments are shipped to; "": nowhere
    snapshots_kept: int = 16  # earlier ones: reading a past state replays a seventeenth of the log at most
    entry_bytes_max: int = (
        16 * MIB
    )  # one decision; far above the largest group, far below a segment's offsets
    uncommitted_bytes_max: int = 64 * MIB  # what a stalled disk may pile up in memory
    flush_bytes_max: int = 8 * MIB  # of a backlog at once: its chain and replies are one turn of the loop
    disk_free_bytes_min: int = 64 * MIB  # stop taking writes while there is room to stop cleanly
    inline_sync_ms_max: float = 1.0  # slower syncs move to the disk thread: the loop must not stall
    load_slice_ms: float = 5.0  # the node answers "loading" after each of its shards has had a slice
    apply_batch_bytes: int = 1 * MIB  # read ahead while applying from disk
    snapshot_deadline_ms: int = 300_000  # a merge of millions of records on a busy core
    snapshot_retry_ms: int = 30_000  # a failed merge is retried, but not at once
    raft_min_timeout_ms: int = 300  # election timeout; several missed heartbeats
    raft_max_timeout_ms: int = 600  # spread, so that two rarely campaign at once
    raft_heartbeat_ms: int = 50  # at most a sixth of the shortest election timeout
    leader_balance_delay_ms: int = 10_000  # a node that has just come back is left to catch up first
    replicate_batch_bytes: int = 1 * MIB  # one message to a peer: a few milliseconds of its loop
    replicate_window_bytes: int = (
        8 * MIB
    )  # in flight to one peer: covers a fast network's delay, bounds memory
    sync_stall_ms: int = 1000  # a leader whose disk stalls this long hands over and falls silent
    evidence_bytes_max: int = 8 * MIB  # per node; about 50,000 findings
