"""A follower's log without a replica: opened, fed with a leader's frames, read back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from raftlog.env.files import Files, join
from raftlog.env.settings import LogSettings
from raftlog.env.simulated_files import SimFiles
from raftlog.env.state_machine import SnapshotHeader
from raftlog.replica.applier import Applier
from raftlog.storage.directory import NodeIdentity, format_node
from raftlog.storage.frames import encode_frame
from raftlog.storage.hash_chain import Chain
from raftlog.storage.journal import Journal
from raftlog.storage.loader import clean_up, load_journal
from raftlog.storage.metafile import write_meta
from raftlog.storage.snapshots import SNAPSHOT_FILE, SnapshotFile, write_snapshot
from raftlog.storage.snapshotter import Snapshotter
from records import Stamped
from tests.support.manual_host import ManualHost
from tests.support.single_replica import PATH, SETTINGS, KeyValues, entry, record

HOME = f"{PATH}/shard-0"
MEMBER = NodeIdentity(cluster_id="cluster-a", node_id=1, incarnation="first", num_shards=1, voters=(1, 2, 3))
SMALL = dataclasses.replace(SETTINGS, segment_bytes=6_000)
"""About 64 entries of these tests to a segment."""
TERM_MAX = 1_000


def member_disk(files: Files, identity: NodeIdentity = MEMBER) -> None:
    """Format a member of three; its term is far above what these tests write."""
    format_node(files, PATH, identity)
    write_meta(files, join(HOME, "term"), "term", TERM_MAX, None)


def open_log(files: Files, settings: LogSettings = SMALL, *, is_alone: bool = False) -> Journal:
    """Open the shard's log as a replica does at a start."""
    clean_up(files, HOME)
    snapshot, path = None, join(HOME, SNAPSHOT_FILE)
    if files.exists(path):
        file = SnapshotFile(files, path)
        snapshot = file.header
        file.close()
    journal = Journal(files, HOME, MEMBER.log(0), settings, is_alone=is_alone)
    for _ in load_journal(files, journal, snapshot):
        pass
    return journal


def frame(index: int, term: int, commit_index: int = 0, time_ms: int = 1000, text: str = "") -> bytes:
    """Return a leader's frame with one record."""
    body = entry((f"key-{index}", text or f"value-{term}-{index}"))
    return encode_frame(index, term, max(0, min(commit_index, index - 1)), time_ms, 1, body)


def frames(first: int, last: int, term: int, commit_index: int = 0) -> bytes:
    """Return the leader's frames from `first` to `last`, of one term."""
    return b"".join(frame(index, term, commit_index) for index in range(first, last + 1))


def flush(journal: Journal) -> None:
    """Write and sync everything that is queued."""
    while journal.is_dirty:
        work = journal.begin_flush()
        work()
        journal.end_flush()


def terms_of(journal: Journal) -> list[int]:
    """Return the terms of all entries above the snapshot."""
    return list(journal.terms)


def on_disk(journal: Journal) -> list[bytes]:
    """Read back the frames of all synced entries."""
    found: list[bytes] = []
    index = journal.base_index + 1
    while index <= journal.durable_index:
        read = journal.read(index, journal.durable_index, 5_000)
        found += [one.encode() for one in read]
        index += len(read)
    return found


def chain_of(parts: Iterable[bytes]) -> bytes:
    """Return the hash chain over frames from the first one on."""
    chain = Chain()
    for number, part in enumerate(parts, 1):
        chain.add(part, number)
    return chain.digest


def snapshot_file(files: Files, path: str, last_index: int, term: int, records: int = 3) -> SnapshotHeader:
    """Write a leader's snapshot at `path`."""
    header = SnapshotHeader(
        cluster_id=MEMBER.cluster_id,
        shard=0,
        num_shards=MEMBER.num_shards,
        last_index=last_index,
        last_term=term,
        last_timestamp_ms=1000,
        chain_hash=bytes(range(16)),
        state_hash=7,
        catalog_version=5,
        record_count=records,
    )
    stamped = [Stamped(number + 1, 900, record(f"k{number}", "v")) for number in range(records)]
    write_snapshot(files, path, header, stamped)
    return header


SNAPPING = dataclasses.replace(SMALL, snapshot_tail_records=100)


class Follower:
    """Journal, applier, snapshotter and machine, driven as a replica that follows drives them."""

    def __init__(self, settings: LogSettings = SNAPPING, disk: SimFiles | None = None) -> None:
        self.disk = SimFiles() if disk is None else disk
        if disk is None:
            member_disk(self.disk)
        self.host = ManualHost(self.disk)
        self.machine = KeyValues()
        self.failures: list[BaseException] = []
        self.journal: Journal = open_log(self.disk, settings)
        self.snapshotter = Snapshotter(
            self.host, self.journal, self.machine, settings, lambda: 0, self.failures.append
        )
        self.applier = Applier(self.host, self.journal, self.machine, settings)
        self.applier.loaded()
        self.applier.observers.append(self.snapshotter)

    def take(self, data: bytes) -> None:
        """Append frames from the leader, and sync them."""
        self.journal.append_frames(data)
        flush(self.journal)

    def commit(self, index: int) -> None:
        """Advance the commit index as the leader does, and apply."""
        self.applier.apply(index)
        self.snapshotter.start_if_due(index)
        self.host.run()
        assert self.failures == []

    def truncate(self, index: int) -> None:
        """Cut the tail that another leader's log does not have."""
        self.journal.truncate_after(index)
        self.applier.truncated(index)
