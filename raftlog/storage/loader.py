"""Opening a shard's live log: from the files that a stop or a crash left to a journal that takes entries.

Steps, each safe to repeat: remove files that were being written aside; complete an interrupted install or
archive move; walk the segments above the snapshot; cut the torn tail of the last one; rewrite and sync
entries that may never have been synced, as a follower acknowledges what it has loaded; remove the marker of a
clean stop.

A tail is cut only where that cannot lose acknowledged entries: the lost entry lies after the mark of what was
synced (`raftlog.storage.sync_mark`), no later whole frame proves that it was synced
(`segments.proof_of_loss`), and no clean stop followed.  Any other deviation from what was written is
Corrupt.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from raftlog.env.errors import RESTORE_HINT, Corrupt
from raftlog.env.files import TEMPORARY_SUFFIX, Files, join
from raftlog.env.state_machine import SnapshotHeader
from raftlog.storage.archive import ARCHIVE, archive_segments, finish_archiving
from raftlog.storage.journal import Journal, Segment
from raftlog.storage.metafile import read_meta, write_meta
from raftlog.storage.scan import Scan
from raftlog.storage.sealed_index import REBUILD_HINT, Sealed, decode_index
from raftlog.storage.segments import (
    HEADER_BYTES_MAX,
    LAGGING_GROUP_BYTES,
    check_header,
    decode_header,
    first_indexes,
    index_name,
    log_name,
    proof_of_loss,
)
from raftlog.storage.snapshot_install import finish_installing
from raftlog.storage.sync_mark import Synced, read_mark, way_out

CLEAN_FILE = "clean"
CLEAN_KIND = "clean stop"
CLEAN_HINT = "the log ends before its clean stop: " + RESTORE_HINT


def clean_up(files: Files, home: str) -> None:
    """Remove left-overs of interrupted writes, in `home` and in the archive."""
    archive = join(home, ARCHIVE)
    for directory in (home, archive):
        for name in files.listdir(directory):
            if name.endswith(TEMPORARY_SUFFIX):
                files.unlink(join(directory, name))
    finish_installing(files, home)
    finish_archiving(files, home)


def load_journal(files: Files, journal: Journal, snapshot: SnapshotHeader | None) -> Iterator[None]:
    """Fill `journal` from its directory; a generator, so that a long log is walked in slices.

    Raises Corrupt.
    """
    home = journal.home
    if snapshot is not None:
        journal.base_index, journal.base_term = snapshot.last_index, snapshot.last_term
        journal.base_timestamp_ms = journal.last_timestamp_ms = snapshot.last_timestamp_ms
        journal.base_chain = snapshot.chain_hash
        journal.chain = type(journal.chain)(snapshot.last_index, snapshot.chain_hash)
    live = _archive_rest(files, journal)
    mark = read_mark(files, home)
    for number, first in enumerate(live):
        yield from _load_segment(files, journal, first, mark, is_last=number == len(live) - 1)
    clean = join(home, CLEAN_FILE)
    if files.exists(clean):
        last_index, last_term = read_meta(files, clean, CLEAN_KIND)[:2]
        if (journal.last_index, journal.last_term) != (last_index, last_term):
            what = f"ends with entry {journal.last_index}, but the clean stop was at entry {last_index}"
            raise Corrupt(journal.segments[-1].path, journal.segments[-1].end, what, CLEAN_HINT)
        files.unlink(clean)
    journal.synced = Synced(files, home)
    journal.segments[-1].file.fdatasync()
    files.fsync_dir(home)
    journal.synced.fill(journal.last_index)
    journal.opened()


def mark_clean(files: Files, journal: Journal, commit_index: int | None = None) -> None:
    """Write the marker of a clean stop; everything is synced and nothing more will be appended.

    `commit_index` is the last entry known to be committed; None: the last one in the hash chain.
    """
    chain = journal.chain
    if journal.synced is not None:
        journal.synced.settle(journal.last_index)
    known = chain.index if commit_index is None else max(commit_index, chain.index)
    path = join(journal.home, CLEAN_FILE)
    ends = (journal.last_index, journal.last_term)
    write_meta(files, path, CLEAN_KIND, *ends, chain.index, chain.digest, min(known, journal.last_index))


def _archive_rest(files: Files, journal: Journal) -> list[int]:
    """The segments of the live log, after moving sealed ones below the snapshot to the archive."""
    home, base = journal.home, journal.base_index
    firsts = first_indexes(files.listdir(home))
    below = [first for first, following in pairwise(firsts) if following <= base + 1]
    sealed = [read_sealed(files, home, first) for first in below]
    known = [one for one in sealed if one is not None]
    if known and len(known) == len(below):
        archive_segments(files, home, known)
        firsts = firsts[len(below) :]
    elif below:
        path = join(home, index_name(below[0]))
        raise Corrupt(path, 0, "a segment below the snapshot has no index", RESTORE_HINT)
    if not firsts or firsts[0] != base + 1:
        path = join(home, log_name(base + 1))
        raise Corrupt(path, 0, "the segment that follows the snapshot is missing", RESTORE_HINT)
    return firsts


def read_sealed(files: Files, home: str, first_index: int) -> Sealed | None:
    """The header of a sealed segment's index, or None when it has no index; raises Corrupt."""
    path = join(home, index_name(first_index))
    if not files.exists(path):
        return None
    sealed = decode_index(files.read(path), path)
    log = join(home, log_name(first_index))
    if sealed.first_index != first_index or sealed.log_bytes != files.size(log):
        what = f"describes {sealed.log_bytes} bytes from entry {sealed.first_index}, not {log}"
        raise Corrupt(path, 0, what, REBUILD_HINT)
    return sealed


def _load_segment(files: Files, journal: Journal, first: int, mark: int, *, is_last: bool) -> Iterator[None]:
    path = join(journal.home, log_name(first))
    file = files.open(path, "w")
    size = file.size()
    header = decode_header(file.pread(HEADER_BYTES_MAX, 0), path)
    check_header(header, path, journal.identity, first)
    if first != journal.last_index + 1:
        what = f"begins with entry {first}, but the entry before it is {journal.last_index}"
        raise Corrupt(path, 0, what, RESTORE_HINT)
    sealed = read_sealed(files, journal.home, first)
    if is_last and sealed is not None:  # the next segment is made before this one is sealed
        missing = join(journal.home, log_name(sealed.last_index + 1))
        raise Corrupt(missing, 0, "the newest segment is missing", RESTORE_HINT)
    segment = Segment(first, path, file, header.frames_offset, sealed)
    journal.segments.append(segment)
    scan = Scan(
        file, path, index=journal.last_index, term=journal.last_term, timestamp_ms=journal.last_timestamp_ms
    )
    yield from scan.steps(header.frames_offset, size, journal.offsets, journal.terms)
    segment.end = scan.end
    journal.last_timestamp_ms = scan.timestamp_ms
    journal.tail_records += scan.records
    if is_last and journal.last_index < mark:
        what = (
            f"no complete frame where entry {journal.last_index + 1} should be, though entries up to {mark} "
            "were synced here and may be acknowledged"
        )
        raise Corrupt(path, scan.end, what, way_out(is_alone=journal.is_alone))
    if scan.end < size:
        _cut_torn_tail(journal, segment, size, is_last=is_last)
    if is_last:
        _write_again(journal, segment, scan.commit_index + 1)


def _write_again(journal: Journal, segment: Segment, from_index: int) -> None:
    """Rewrite entries that may never have been synced, so that the next sync covers them.

    After a failed sync in an earlier run, entries that no later frame names as committed may be in the page
    cache only, and no sync would write them again.  On a follower the same holds for committed entries of the
    last group.
    """
    first = max(from_index, segment.first_index)
    if not journal.is_alone and journal.last_index >= segment.first_index:
        last_start = journal.offsets[-1]
        while first > segment.first_index and (
            last_start - journal.offsets[first - journal.base_index - 2] < LAGGING_GROUP_BYTES
        ):
            first -= 1
    if first <= journal.last_index:
        start = journal.offsets[first - journal.base_index - 1]
        segment.file.pwrite(segment.file.pread(segment.end - start, start), start)


def _cut_torn_tail(journal: Journal, segment: Segment, size: int, *, is_last: bool) -> None:
    """Cut off the bytes after `segment.end` if they are a torn tail; raises Corrupt if they are damage."""
    lost = journal.last_index + 1
    if not is_last:
        what = f"no complete frame where entry {lost} should be, and more segments follow"
        raise Corrupt(segment.path, segment.end, what, RESTORE_HINT)
    rest = segment.file.pread(size - segment.end, segment.end)
    proof = proof_of_loss(rest, lost, is_alone=journal.is_alone)
    if proof is not None:
        what = (
            f"no complete frame where entry {lost} should be; byte {segment.end + proof} shows it was "
            "committed"
        )
        raise Corrupt(segment.path, segment.end, what, RESTORE_HINT)
    segment.file.truncate(segment.end)
    segment.file.fdatasync()
    journal.torn_bytes = size - segment.end
