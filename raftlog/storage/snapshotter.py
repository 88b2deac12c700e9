"""Turning the live log into history: sealing, snapshots, the archive.

When the tail has grown past `snapshot_tail_records`, the segment is ended at the entry just appended, and its
state hash is read when exactly that entry is the last one applied: in the same turn on a leader, later on a
follower, which makes its snapshots from its own log.  Once it is committed, a child process indexes the ended
segments and merges them with the previous snapshot.  The node checks the child's hash chain against its own,
puts the files in place, and moves the segments to the archive.  The snapshot that is replaced is kept there
too, one of a bounded number.  Segments that ended by size alone are only indexed.

    idle --segments ended--> indexing/merging (child) --checked--> adopting (disk thread) --> idle
    idle, merging --hold--> held --released, installed--> idle

Invariants: one job at a time; indexes are in place before the snapshot, the snapshot before segments
move; a job that fails changes nothing and is tried again later; damage that it finds stops the node; while a
snapshot from the leader is put in place, the node makes none of its own.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass

from raftlog.env.errors import Corrupt
from raftlog.env.files import Files, join
from raftlog.env.host import ChildProcess, Host, Timer
from raftlog.env.settings import LogSettings
from raftlog.env.state_machine import StateMachine
from raftlog.storage.archive import ARCHIVE, apply_retention, archive_segments
from raftlog.storage.journal import Journal, Segment
from raftlog.storage.loader import read_sealed
from raftlog.storage.merge import aside, check_result, request_of
from raftlog.storage.retained_snapshots import kept_path, thin_out
from raftlog.storage.sealed_index import Sealed
from raftlog.storage.segments import index_name
from raftlog.storage.shipped_mark import shipped_to
from raftlog.storage.snapshots import SNAPSHOT_FILE

LOG = logging.getLogger("quorate.raftlog")
JOB_MODULE = "raftlog.storage.merge"
SEALING_HINT = (
    "the segment changed between writing and sealing: check the disk; `log verify` lists all damage"
)


@dataclass(slots=True)
class SealPoint:
    """The entry that the next snapshot ends with.

    Its state hash is set when it is applied, and its chain when it is committed.
    """

    index: int
    term: int
    timestamp_ms: int
    tail_records: int
    state_hash: int | None = None
    catalog_version: int = 0
    chain: bytes | None = None

    @property
    def is_known(self) -> bool:
        """Whether it is applied and committed, so that the snapshot's header can be written."""
        return self.chain is not None and self.state_hash is not None


class Snapshotter:
    """Seals, merges and archives one shard's segments in the background."""

    def __init__(
        self,
        host: Host,
        journal: Journal,
        machine: StateMachine,
        settings: LogSettings,
        past_ms: Callable[[], int],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._host = host
        self._journal = journal
        self._machine = machine
        self._settings = settings
        self._past_ms = past_ms
        self._fail = fail
        self._point: SealPoint | None = None
        self._is_busy = False
        self._job: ChildProcess | None = None
        self._token = ""
        self._retry: Timer | None = None
        self._stopped = False
        self._held = False
        self.snapshots_made = 0
        self.snapshot_index = journal.base_index
        journal.at_stride_end = self._after_append

    def stop(self) -> None:
        """Start no more jobs; a running child is killed."""
        self._stopped = True
        if self._job is not None:
            self._job.cancel()
        if self._retry is not None:
            self._retry.cancel()

    @property
    def is_adopting(self) -> bool:
        """Whether files are being put in place on the disk thread."""
        return self._is_busy and self._job is None

    def hold(self) -> bool:
        """Make no snapshot until `installed` or `release`: one from the leader is about to be put in place.

        A running child is killed.  Returns False while files are being put in place; the caller tries again
        later.
        """
        if self.is_adopting:
            return False
        self._held = True
        self._is_busy = False
        self._token = ""
        if self._job is not None:
            self._job.cancel()
            self._job = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        return True

    def release(self) -> None:
        """Resume: the leader's snapshot was not installed after all."""
        self._held = False
        self.start_if_due(self._journal.chain.index)

    def installed(self) -> None:
        """Resume after the journal has adopted a snapshot from the leader."""
        self._held = False
        self._point = None
        self.snapshot_index = self._journal.base_index

    def _after_append(self, index: int, term: int) -> None:
        """End the segment at an entry just appended, which ends a stride, if a snapshot is due."""
        journal = self._journal
        due = journal.tail_records >= self._settings.snapshot_tail_records
        if not due or self._point is not None or self._stopped or self._held:
            return
        self._point = SealPoint(
            index=index, term=term, timestamp_ms=journal.last_timestamp_ms, tail_records=journal.tail_records
        )
        journal.cut_here()

    # Observing the log (raftlog.replica.applier.ChainObserver)

    def applied(self, index: int, state_hash: int) -> None:
        """Note the state hash if the next snapshot ends with this entry."""
        point = self._point
        if point is None or index != point.index:
            return
        applied = self._machine.applied_index()
        if applied != index:
            raise AssertionError(f"entry {index} was just applied, but the state machine is at {applied}")
        point.state_hash = state_hash
        point.catalog_version = self._machine.catalog_version()

    def chained(self, index: int, chain: bytes) -> None:
        """Note the hash chain if the next snapshot ends with this entry, which is committed."""
        if self._point is not None and self._point.index == index:
            self._point.chain = chain

    def truncated(self, index: int) -> None:
        """Entries after `index` were removed: no snapshot ends with one of them."""
        if self._point is not None and self._point.index > index:
            self._point = None

    def start_if_due(self, commit_index: int) -> None:
        """Start the job when committed segments have ended and none is running."""
        if self._is_busy or self._stopped or self._held or self._retry is not None:
            return
        journal, point = self._journal, self._point
        ended = [one for one in self._ended() if one.last_index <= commit_index]
        if point is not None and not (point.is_known and ended and ended[-1].last_index >= point.index):
            point = None
        if point is not None:
            merged = [one.segment for one in ended if one.last_index <= point.index]
            self._start(merged, journal.base_chain, point)
        elif unsealed := [one.segment for one in ended if one.segment.sealed is None]:
            place = journal.segments.index(unsealed[0])
            before = journal.segments[place - 1].sealed if place else None
            self._start(unsealed, journal.base_chain if before is None else before.chain_after, None)

    def _ended(self) -> list[_Ended]:
        segments = self._journal.segments
        return [_Ended(segments[i], segments[i + 1].first_index - 1) for i in range(len(segments) - 1)]

    def _start(self, segments: list[Segment], chain: bytes, point: SealPoint | None) -> None:
        self._is_busy = True
        firsts = [segment.first_index for segment in segments]
        token = self._token = self._host.fresh_id()
        snapshot = keep = None
        if point is not None:
            keep = self._previous()
            identity = asdict(self._journal.identity)
            del identity["origin"]
            snapshot = identity | {
                "last_index": point.index,
                "last_term": point.term,
                "last_timestamp_ms": point.timestamp_ms,
                "state_hash": point.state_hash,
                "catalog_version": point.catalog_version,
                "now_ms": self._now_ms(point),
                "delete_retention_ms": self._settings.delete_retention_ms,
            }
        self._job = self._host.spawn_job(
            JOB_MODULE,
            request_of(self._journal.home, token, firsts, chain, snapshot, keep),
            lambda result, error: self._job_done(firsts, token, point, result, error),
            low_priority=True,
            deadline_ms=self._settings.snapshot_deadline_ms,
        )

    def _now_ms(self, point: SealPoint) -> int:
        """The time by which ages are judged: the log's own, as far as it has certainly passed."""
        return min(point.timestamp_ms, self._past_ms())

    def _previous(self) -> int | None:
        """The last entry of the snapshot that the next one replaces, if it is to be kept."""
        return self.snapshot_index if self.snapshot_index and self._settings.snapshots_kept else None

    def _job_done(
        self,
        firsts: list[int],
        token: str,
        point: SealPoint | None,
        result: object | None,
        error: BaseException | None,
    ) -> None:
        if token != self._token:  # killed by `hold`
            self._remove_asides(firsts, token)
            return
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
                    path, 0, "the hash chain of the file differs from that of what was written", SEALING_HINT
                )
        except (Corrupt, TypeError) as damage:
            self._fail(damage)
            return
        self._host.run_on_disk(
            _Adoption(
                self._host.files,
                self._journal.home,
                firsts,
                token,
                point,
                0 if point is None else self._now_ms(point),
                self._previous(),
                self._settings,
            ),
            lambda sealed, failure: self._adopted(point, sealed, failure),
        )

    def _try_again(self, error: BaseException, firsts: list[int], token: str) -> None:
        LOG.warning("sealing or snapshot of %s failed and will be tried again: %s", self._journal.home, error)
        self._remove_asides(firsts, token)
        self._retry = self._host.call_later(self._settings.snapshot_retry_ms, self._retry_now)
        self._is_busy = False

    def _remove_asides(self, firsts: list[int], token: str) -> None:
        for path in _asides(self._journal.home, firsts, self.snapshot_index, token):
            with contextlib.suppress(OSError):  # the next start removes the rest
                self._host.files.unlink(path)

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
            self._journal.drop_below(point.index, point.timestamp_ms, point.chain, point.tail_records)
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
    """Puts a job's files in place; runs on the disk thread and touches files only."""

    files: Files
    home: str
    firsts: list[int]
    token: str
    point: SealPoint | None
    now_ms: int
    keep: int | None
    settings: LogSettings

    def __call__(self) -> list[Sealed]:
        files, home = self.files, self.home
        for first in self.firsts:
            path = join(home, index_name(first))
            files.rename(aside(path, self.token), path)
        files.fsync_dir(home)
        sealed = [one for first in self.firsts if (one := read_sealed(files, home, first)) is not None]
        if self.point is not None:
            if self.keep is not None:
                path = kept_path(home, self.keep)
                files.rename(aside(path, self.token), path)
                files.fsync_dir(join(home, ARCHIVE))
            path = join(home, SNAPSHOT_FILE)
            files.rename(aside(path, self.token), path)
            files.fsync_dir(home)
            archive_segments(files, home, sealed)
            apply_retention(
                files,
                home,
                self.settings.log_archive_retention_bytes,
                self.settings.log_archive_retention_ms,
                self.now_ms,
                shipped_to(files, home) if self.settings.log_archive_url else None,
            )
            thin_out(files, home, self.point.index, self.settings.snapshots_kept)
        return sealed


def _asides(home: str, firsts: list[int], previous: int, token: str) -> list[str]:
    paths = [join(home, name) for name in (*map(index_name, firsts), SNAPSHOT_FILE)]
    return [aside(path, token) for path in (*paths, kept_path(home, previous))]
