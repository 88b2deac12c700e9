"""One shard's replica: load, lead, take entries, make them durable, say when they are committed.

    Loading --journal open--> Campaigning --leads--> CatchUp --own term start applied--> Ready
                                        (any of them) --stop / failure--> Down

Entries proposed in one turn of the loop are one write and one sync at the turn's end; `committed` is called
when they are durable.  What must stay true:

- Nothing is committed that is not synced; nothing is applied here that the proposer has applied already.
- A failing write or sync, damage, or an exception while applying stops the node through `Host.fatal`; nothing
  is acknowledged after it.
- Work that grows with the log (restore, scan, apply) is done in slices of `load_slice_ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from raftlog.catchup import CatchUp
from raftlog.directory import TERM_FILE, TERM_KIND, NodeDirectory, shard_name
from raftlog.errors import RESTORE_HINT, Corrupt
from raftlog.files import join
from raftlog.frames import Frame
from raftlog.host import Host
from raftlog.journal import Journal
from raftlog.loading import clean_up, load_journal, mark_clean
from raftlog.machine import LogFull, NotLeader, SnapshotHeader, StateMachine
from raftlog.metafile import read_meta, write_meta
from raftlog.raft import Raft
from raftlog.reader import archived_frames
from raftlog.segments import LogIdentity
from raftlog.settings import CHAIN_STRIDE, LogSettings
from raftlog.snapshots import SNAPSHOT_FILE, SnapshotFile
from raftlog.snapshotting import Snapshotter
from records import (
    Cause,
    Record,
    TermStartKey,
    TermStartValue,
    TermWhy,
    Trigger,
    encode_entry,
    encode_record,
)

LOG = logging.getLogger("quorate.raftlog")
STATE_HINT = "the state does not follow from its records: replay the log with this release and the one before"
SYNC_AVERAGE_WEIGHT = 0.125
"""Of the newest sync in the running average: a single slow one moves syncs off the loop for a while."""
DISK_CHECK_MS = 1000
"""How often free space is looked at; a disk fills slowly compared to it."""


class Replica:
    """The replica of `shard` in an opened directory; all methods are for the loop."""

    def __init__(
        self, host: Host, directory: NodeDirectory, shard: int, machine: StateMachine, settings: LogSettings
    ) -> None:
        self._host = host
        self._directory = directory
        self._machine = machine
        self._settings = settings
        self.shard = shard
        self.home = directory.shard_path(shard)
        identity: LogIdentity = directory.identity.log(shard)
        self._journal = Journal(host.files, self.home, identity, settings)
        self._raft: Raft | None = None
        self._snapshotter: Snapshotter | None = None
        self._snapshot: SnapshotHeader | None = None
        self._catch_up: CatchUp | None = None
        self._loaded_index = 0
        self._term_start_index = 0
        self._flush_queued = False
        self._advance_queued = False
        self._sync_average_ms = 0.0
        self._sync_started_ms: float | None = None
        self._syncs = 0
        self._disk_checked_ms = float("-inf")
        self.is_disk_full = False
        self._stop_done: Callable[[], None] | None = None
        self._since_ms: dict[str, float] = {}
        self.state = "Down"
        self.is_ready = False
        self.term = 0
        self.vote: str | None = None

    # Life

    def start(self) -> None:
        """Begin to load, in slices; `StateMachine.ready` follows."""
        self._enter("Loading")
        self._host.call_soon(self._load_slice, self._load_steps())

    def stop(self, done: Callable[[], None]) -> None:
        """Sync what was proposed, mark a clean stop, close; then `done()`."""
        self._stop_done = done
        self.is_ready = False
        if self._snapshotter is not None:
            self._snapshotter.stop()
        self._finish_stop()

    def _enter(self, state: str) -> None:
        self.state = state
        self._since_ms[state] = self._host.monotonic_ms()

    @property
    def _is_over(self) -> bool:
        return self.state == "Down"

    def _fail(self, error: BaseException) -> None:
        """Stop the node; nothing that is not yet acknowledged will be."""
        if self._is_over:
            return
        self.is_ready = False
        self._enter("Down")
        if isinstance(error, FileNotFoundError):
            what = f"a file or folder is gone: {error}: {RESTORE_HINT}"
        elif isinstance(error, OSError):
            what = f"a file call failed: {error}: free space or replace the disk, then start again"
        else:
            what = f"{type(error).__name__}: {error}"
        self._host.fatal(f"{shard_name(self.shard)} of {self._directory.path}: {what}")

    def _finish_stop(self) -> None:
        """Go on with a stop when nothing is in flight."""
        done = self._stop_done
        if done is None:
            return
        adopting = self._snapshotter is not None and self._snapshotter.is_adopting
        if not self._is_over and (adopting or self._journal.is_flushing or self._journal.is_dirty):
            if adopting:
                self._host.call_later(1.0, self._finish_stop)
            return  # the flush comes back here
        try:
            if self._raft is not None and not self._is_over:
                mark_clean(self._host.files, self._journal)
        except OSError as error:
            LOG.warning("%s: no marker of a clean stop, the log itself is synced: %s", self.home, error)
        self._journal.close()
        self._enter("Down")
        self._stop_done = None
        done()

    # Load

    def _load_slice(self, steps: Iterator[None]) -> None:
        if self._is_over:
            return
        deadline_ms = self._host.monotonic_ms() + self._settings.load_slice_ms
        try:
            for _ in steps:
                if self._host.monotonic_ms() >= deadline_ms:
                    self._host.call_soon(self._load_slice, steps)
                    return
        except Exception as error:
            self._fail(error)
            return
        self._campaign()

    def _load_steps(self) -> Iterator[None]:
        files = self._host.files
        clean_up(files, self.home)
        self.term, self.vote = read_meta(files, join(self.home, TERM_FILE), TERM_KIND)[:2]
        if files.exists(join(self.home, SNAPSHOT_FILE)):
            yield from self._restore()
        yield from load_journal(files, self._journal, self._snapshot)
        if self.term < self._journal.last_term:
            what = f"the term is {self.term}, but the log has entries of term {self._journal.last_term}"
            raise Corrupt(join(self.home, TERM_FILE), 0, what, RESTORE_HINT)
        self._loaded_index = self._journal.last_index

    def _restore(self) -> Iterator[None]:
        path = join(self.home, SNAPSHOT_FILE)
        snapshot = SnapshotFile(self._host.files, path)
        header = snapshot.header
        self._snapshot = header
        identity = self._journal.identity
        ours = (identity.cluster_id, identity.shard, identity.num_shards)
        if (header.cluster_id, header.shard, header.num_shards) != ours:
            raise Corrupt(path, 0, f"belongs to shard {header.shard} of cluster {header.cluster_id}")
        for _, records in snapshot.blocks():
            self._machine.restore(records, header)
            yield
        snapshot.close()
        if (state_hash := self._machine.state_hash()) != header.state_hash:
            what = f"its records give the state hash {state_hash:016x}, it names {header.state_hash:016x}"
            raise Corrupt(path, 0, what, STATE_HINT)

    def _campaign(self) -> None:
        journal, settings = self._journal, self._settings
        self._enter("Campaigning")
        self._catch_up = CatchUp(self._host, journal, self._machine, settings.apply_batch_bytes)
        self._snapshotter = Snapshotter(self._host, journal, self._machine, settings, self._fail)
        self._raft = Raft(self._host, self._directory.identity.node_id, journal, self, settings)
        self._tick()

    def _tick(self) -> None:
        """Let the library act on its deadline, and come back at the next one."""
        if self._is_over or self._raft is None:
            return
        try:
            self._raft.tick()
        except Exception as error:
            self._fail(error)
            return
        if self._raft.is_leader and self.state == "Campaigning":
            self._enter("CatchUp")
        deadline_ms = self._raft.next_deadline_ms()
        if deadline_ms is not None:
            self._host.call_later(max(0.0, deadline_ms - self._host.monotonic_ms()), self._tick)

    # What the engine asks (raft.RaftOwner)

    def save_term(self, term: int, vote: str | None) -> None:
        """Sync term and vote before they count."""
        write_meta(self._host.files, join(self.home, TERM_FILE), TERM_KIND, term, vote)
        self.term, self.vote = term, vote

    def open_term(self, index: int, term: int) -> None:
        """Append the frame that opens a term of this node's: who leads, and why."""
        identity = self._directory.identity
        value = TermStartValue(
            term=term,
            node_id=identity.node_id,
            why=TermWhy.START,
            incarnation=identity.incarnation,
            boot_id=self._directory.boot_id,
        )
        body = encode_entry(
            Cause(trigger=Trigger.TERM_OPENED), [encode_record(Record(TermStartKey(), value))]
        )
        commit_index = min(self._journal.base_index, index - 1)
        timestamp_ms = max(self._host.wall_ms(), self._journal.last_timestamp_ms)
        self._term_start_index = self._journal.append(term, commit_index, timestamp_ms, 1, body)
        assert self._term_start_index == index
        self._queue_flush()

    def apply_committed(self, applied_index: int, commit_index: int) -> int:
        """Apply a slice: what was loaded and the own term start; the rest its proposer has applied."""
        assert self._catch_up is not None
        last = min(commit_index, self._term_start_index)
        if applied_index < last:
            deadline_ms = self._host.monotonic_ms() + self._settings.load_slice_ms
            applied_index = self._catch_up.step(applied_index, last, deadline_ms)
        return max(applied_index, commit_index) if applied_index >= last else applied_index

    # Propose

    @property
    def can_append(self) -> bool:
        """There is room for one more entry, in memory and on the disk; to be asked before the first record
        of a decision is applied, as `propose` must not fail after that."""
        now_ms = self._host.monotonic_ms()
        if now_ms - self._disk_checked_ms >= DISK_CHECK_MS:
            self._disk_checked_ms = now_ms
            self._check_disk()
        return self.is_ready and not self.is_disk_full and self._journal.has_room

    def _check_disk(self) -> None:
        try:
            free_bytes = self._host.files.free_bytes(self.home)
        except OSError as error:
            self._fail(error)
            return
        least, was_full = self._settings.disk_free_bytes_min, self.is_disk_full
        self.is_disk_full = free_bytes < least
        if self.is_disk_full and not was_full:
            what = "%d bytes are free on the disk of %s: writes are refused below %d; free some space"
            LOG.error(what, free_bytes, self.home, least)
        elif was_full and not self.is_disk_full:
            LOG.info("%d bytes are free on the disk of %s: writes are taken again", free_bytes, self.home)

    def propose(self, body: bytes, record_count: int, timestamp_ms: int) -> int:
        """Append an entry that the caller has applied already; its index, equal to `next_index` before.

        `timestamp_ms` is raised to the newest entry's when it lies before.  Raises NotLeader and LogFull;
        then nothing was appended.
        """
        raft = self._raft
        if not self.is_ready or raft is None:
            raise NotLeader(f"shard {self.shard} is {self.state}")
        journal = self._journal
        if not journal.has_room:
            raise LogFull(f"{journal.uncommitted_bytes} bytes wait to be committed (uncommitted_bytes_max)")
        term = raft.term
        time_ms = max(timestamp_ms, journal.last_timestamp_ms)
        index = journal.append(term, raft.commit_index, time_ms, record_count, body)
        if not index % CHAIN_STRIDE and self._snapshotter is not None:
            self._snapshotter.after_apply(index)
        if not self._flush_queued:
            self._queue_flush()
        return index

    # Group commit

    def _queue_flush(self) -> None:
        if not self._flush_queued:
            self._flush_queued = True
            self._host.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_queued = False
        if self._is_over or not self._journal.is_dirty:
            return
        try:
            work = self._journal.begin_flush()
        except Exception as error:
            self._fail(error)
            return
        self._sync_started_ms = self._host.monotonic_ms()
        if self._sync_average_ms >= self._settings.inline_sync_ms_max:
            self._host.run_on_disk(lambda: self._timed(work), self._flushed)
            return
        try:
            took_ms: object = self._timed(work)
        except Exception as error:
            self._flushed(None, error)
        else:
            self._flushed(took_ms, None)

    def _timed(self, work: Callable[[], None]) -> float:
        """Do the work of a group; how long it took, in ms.  On the loop or the disk thread."""
        started_ms = self._host.monotonic_ms()
        work()
        return self._host.monotonic_ms() - started_ms

    def _flushed(self, took_ms: object, error: BaseException | None) -> None:
        if self._is_over:
            return
        if error is not None:
            self._fail(error)
            return
        assert isinstance(took_ms, float | int)
        self._sync_average_ms += SYNC_AVERAGE_WEIGHT * (took_ms - self._sync_average_ms)
        self._sync_started_ms = None
        self._syncs += 1
        self._journal.end_flush()
        if self._journal.is_dirty:
            self._queue_flush()
        self._advance()
        if self._stop_done is not None:
            self._finish_stop()

    def _advance(self) -> None:
        """Commit what is synced, apply a slice, tell the machine."""
        self._advance_queued = False
        raft, snapshotter = self._raft, self._snapshotter
        if self._is_over or raft is None or snapshotter is None:
            return
        try:
            raft.advance()
            applied = raft.applied_index
            if applied > self._loaded_index:
                snapshotter.take_committed(applied)
            self._machine.committed(applied)
            if raft.is_serving and not self.is_ready and self._stop_done is None:
                self.is_ready = True
                self._enter("Ready")
                self._machine.ready(raft.term)
        except Exception as error:
            self._fail(error)
            return
        if applied < raft.commit_index and not self._advance_queued:
            self._advance_queued = True
            self._host.call_soon(self._advance)

    # What others ask

    @property
    def next_index(self) -> int:
        """The index that the next proposal gets."""
        return self._journal.last_index + 1

    @property
    def last_index(self) -> int:
        """The newest entry, committed or not."""
        return self._journal.last_index

    @property
    def commit_index(self) -> int:
        """The last committed entry."""
        return self._journal.base_index if self._raft is None else self._raft.commit_index

    @property
    def is_leader(self) -> bool:
        """This node leads the shard; it may still be catching up."""
        return self._raft is not None and self._raft.is_leader and not self._is_over

    @property
    def last_timestamp_ms(self) -> int:
        """The newest entry's timestamp: the log's own clock."""
        return self._journal.last_timestamp_ms

    @property
    def chain_hash(self) -> bytes:
        """16 bytes over all committed frames up to `chain_index`."""
        return self._journal.chain.digest

    @property
    def chain_index(self) -> int:
        """The entry that `chain_hash` ends with."""
        return self._journal.chain.index

    def read_committed(self, from_index: int, max_bytes: int) -> list[Frame]:
        """Committed entries from `from_index` on, about `max_bytes`; [] when there are none (yet).

        Entries below the snapshot come from the archive.  Raises Corrupt, and KeyError when retention has
        removed the entry.
        """
        commit_index = self.commit_index
        if from_index > commit_index:
            return []
        if from_index <= self._journal.base_index:
            return archived_frames(self._host.files, self.home, from_index, max_bytes)
        found: list[Frame] = []
        room = max_bytes
        while room > 0 and from_index <= commit_index:
            batch = self._journal.read(from_index, commit_index, room)
            found.extend(batch)
            room -= sum(frame.size for frame in batch)
            from_index += len(batch)
        return found

    def status(self) -> dict[str, Any]:
        """What an operator asks first; JSON-ready."""
        journal, snapshotter = self._journal, self._snapshotter
        waiting_since = self._sync_started_ms
        return {
            "shard": self.shard,
            "state": self.state,
            "state_since_ms": dict(self._since_ms),
            "is_leader": self.is_leader,
            "term": self.term,
            "last_index": self.last_index,
            "durable_index": journal.durable_index,
            "commit_index": self.commit_index,
            "last_timestamp_ms": journal.last_timestamp_ms,
            "is_disk_full": self.is_disk_full,
            "uncommitted_bytes": journal.uncommitted_bytes,
            "tail_records": journal.tail_records,
            "torn_bytes_cut": journal.torn_bytes,
            "segments": len(journal.segments),
            "snapshot_index": journal.base_index,
            "snapshots_made": 0 if snapshotter is None else snapshotter.snapshots_made,
            "chain_index": journal.chain.index,
            "chain_hash": journal.chain.digest.hex(),
            "syncs": self._syncs,
            "sync_average_ms": round(self._sync_average_ms, 3),
            "sync_outstanding_ms": 0.0
            if waiting_since is None
            else self._host.monotonic_ms() - waiting_since,
        }
