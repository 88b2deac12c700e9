"""When and how the live log becomes history: sealing, snapshots, the archive.

When the tail has grown past `snapshot_tail_records`, the segment is ended at an entry whose state hash was
read at that moment; once it is committed, a child process indexes the ended segments and merges them with
the previous snapshot.  This side checks the child's hash chain against its own, puts the files in place,
and moves the segments to the archive.  Segments that ended by size alone are only indexed.

    idle --segments ended--> indexing/merging (child) --checked--> adopting (disk thread) --> idle

What must stay true: one job at a time; indexes are in place before the snapshot, the snapshot before
segments move; a job that fails changes nothing and is tried again later; damage that it finds stops the
node.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass

from raftlog.archive import apply_retention, archive_segments
from raftlog.errors import Corrupt
from raftlog.files import Files, join
from raftlog.host import Host, Job, Timer
from raftlog.journal import Journal, Segment
from raftlog.loading import read_sealed
from raftlog.machine import StateMachine
from raftlog.merge import aside, check_result, request_of
from raftlog.sealed import Sealed
from raftlog.segments import index_name
from raftlog.settings import CHAIN_STRIDE, LogSettings
from raftlog.snapshots import SNAPSHOT_FILE

LOG = logging.getLogger("quorate.raftlog")
JOB_MODULE = "raftlog.merge"
SEALING_HINT = (
    "the segment changed between writing and sealing: check the disk; `log verify` lists all damage"
)


@dataclass(slots=True)
class SealPoint:
    """The entry that the next snapshot ends with, and what was true when it was appended."""

    index: int
    term: int
    timestamp_ms: int
    tail_records: int
    state_hash: int
    catalog_version: int
    chain: bytes | None = None


class Snapshotter:
    """Seals, merges and archives one shard's segments in the background."""

    def __init__(
        self,
        host: Host,
        journal: Journal,
        machine: StateMachine,
        settings: LogSettings,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._host = host
        self._journal = journal
        self._machine = machine
        self._settings = settings
        self._fail = fail
        self._point: SealPoint | None = None
        self._is_busy = False
        self._job: Job | None = None
        self._retry: Timer | None = None
        self._stopped = False
        self.base_chain = journal.chain.digest
        self.snapshots_made = 0
        self.snapshot_index = journal.base_index

    def stop(self) -> None:
        """Start nothing more; a running child is killed."""
        self._stopped = True
        if self._job is not None:
            self._job.cancel()
        if self._retry is not None:
            self._retry.cancel()

    @property
    def is_adopting(self) -> bool:
        """Files are being put in place on the disk thread."""
        return self._is_busy and self._job is None

    def after_append(self, index: int, term: int) -> None:
        """An entry was appended and is applied: end the segment here when a snapshot is due."""
        journal = self._journal
        due = journal.tail_records >= self._settings.snapshot_tail_records
        if not due or index % CHAIN_STRIDE or self._point is not None or self._stopped:
            return
        applied = self._machine.applied_index()
        if applied != index:
            raise AssertionError(f"entry {index} was appended, but the machine has applied {applied}")
        self._point = SealPoint(
            index=index,
            term=term,
            timestamp_ms=journal.last_timestamp_ms,
            tail_records=journal.tail_records,
            state_hash=self._machine.state_hash(),
            catalog_version=self._machine.catalog_version(),
        )
        journal.cut_here()

    def take_committed(self, commit_index: int) -> None:
        """Entries of this run are committed: chain them, and see whether a job is due."""
        point = self._point
        if point is not None and point.chain is None and commit_index >= point.index:
            self._journal.take_committed(point.index)
            point.chain = self._journal.chain.digest
        self._journal.take_committed(commit_index)
        self.start_if_due(commit_index)

    def start_if_due(self, commit_index: int) -> None:
        """Start the job when committed segments have ended and none is running."""
        if self._is_busy or self._stopped or self._retry is not None:
            return
        ended = [one for one in self._ended() if one.last_index <= commit_index]
        point = self._point
        if point is not None and (point.chain is None or not ended or ended[-1].last_index < point.index):
            point = None
        if point is not None:
            self._start(
                [one.segment for one in ended if one.last_index <= point.index], self.base_chain, point
            )
        elif unsealed := [one.segment for one in ended if one.segment.sealed is None]:
            place = self._journal.segments.index(unsealed[0])
            before = self._journal.segments[place - 1].sealed if place else None
            self._start(unsealed, self.base_chain if before is None else before.chain_after, None)

    def _ended(self) -> list[_Ended]:
        segments = self._journal.segments
        return [_Ended(segments[i], segments[i + 1].first_index - 1) for i in range(len(segments) - 1)]

    def _start(self, segments: list[Segment], chain: bytes, point: SealPoint | None) -> None:
        self._is_busy = True
        firsts = [segment.first_index for segment in segments]
        token = self._host.fresh_id()
        snapshot = None
        if point is not None:
            identity = asdict(self._journal.identity)
            del identity["origin"]
            snapshot = identity | {
                "last_index": point.index,
                "last_term": point.term,
                "last_timestamp_ms": point.timestamp_ms,
                "state_hash": point.state_hash,
                "catalog_version": point.catalog_version,
                "delete_retention_ms": self._settings.delete_retention_ms,
            }
        self._job = self._host.spawn_job(
            JOB_MODULE,
            request_of(self._journal.home, token, firsts, chain, snapshot),
            lambda result, error: self._job_done(firsts, token, point, result, error),
            low_priority=True,
            deadline_ms=self._settings.snapshot_deadline_ms,
        )

    def _job_done(
        self,
        firsts: list[int],
        token: str,
        point: SealPoint | None,
        result: object | None,
        error: BaseException | None,
    ) -> None:
        self._job = None
        if self._stopped:
            self._is_busy = False
            return
        if error is not None:
            self._try_again(error, firsts, token)
            return
        try:
            chain = check_result(result)["chain"]
            if point is not None and chain != point.chain:
                path = join(self._journal.home, index_name(firsts[-1]))
                raise Corrupt(
                    path, 0, "the hash chain of the file is not the chain of what was written", SEALING_HINT
                )
        except (Corrupt, TypeError) as damage:
            self._fail(damage)
            return
        self._host.run_on_disk(
            _Adoption(self._host.files, self._journal.home, firsts, token, point, self._settings),
            lambda sealed, failure: self._adopted(point, sealed, failure),
        )

    def _try_again(self, error: BaseException, firsts: list[int], token: str) -> None:
        LOG.warning("sealing or snapshot of %s failed, will be tried again: %s", self._journal.home, error)
        for path in _asides(self._journal.home, firsts, token):
            with contextlib.suppress(OSError):  # what stays is removed by the next start
                self._host.files.unlink(path)
        self._retry = self._host.call_later(self._settings.snapshot_retry_ms, self._retry_now)
        self._is_busy = False

    def _retry_now(self) -> None:
        self._retry = None
        self.start_if_due(self._journal.chain.index)

    def _adopted(self, point: SealPoint | None, sealed: object | None, failure: BaseException | None) -> None:
        self._is_busy = False
        if failure is not None:
            self._fail(failure)
            return
        assert isinstance(sealed, list)
        by_first = {one.first_index: one for one in sealed}
        for segment in self._journal.segments:
            segment.sealed = by_first.get(segment.first_index, segment.sealed)
        if point is not None:
            assert point.chain is not None
            self._journal.drop_below(point.index, point.term, point.tail_records)
            self.base_chain = point.chain
            self.snapshot_index = point.index
            self.snapshots_made += 1
            self._point = None
        self.start_if_due(self._journal.chain.index)


@dataclass(frozen=True, slots=True)
class _Ended:
    segment: Segment
    last_index: int


@dataclass(frozen=True, slots=True)
class _Adoption:
    """Put a job's files in place; runs on the disk thread and touches files only."""

    files: Files
    home: str
    firsts: list[int]
    token: str
    point: SealPoint | None
    settings: LogSettings

    def __call__(self) -> list[Sealed]:
        files, home = self.files, self.home
        for first in self.firsts:
            path = join(home, index_name(first))
            files.rename(aside(path, self.token), path)
        files.fsync_dir(home)
        sealed = [one for first in self.firsts if (one := read_sealed(files, home, first)) is not None]
        if self.point is not None:
            path = join(home, SNAPSHOT_FILE)
            files.rename(aside(path, self.token), path)
            files.fsync_dir(home)
            archive_segments(files, home, sealed)
            apply_retention(
                files,
                home,
                self.settings.log_archive_retention_bytes,
                self.settings.log_archive_retention_ms,
                self.point.timestamp_ms,
            )
        return sealed


def _asides(home: str, firsts: list[int], token: str) -> list[str]:
    names = [*map(index_name, firsts), SNAPSHOT_FILE]
    return [aside(join(home, name), token) for name in names]
