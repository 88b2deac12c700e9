"""The entries that can be read, found before anything is written: every byte is checked, no record decoded.

A sealed segment is checked with one CRC of the whole file, the fastest check there is; others frame by frame.
What one node's file lacks is looked for on the other nodes, exactly as a read does it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crc32c import crc32c

from history.reading.source import LogGap
from history.words import shard_name
from raftlog.env.errors import Damaged
from raftlog.env.files import Files, join
from raftlog.env.object_stores import StoreError, files_at
from raftlog.storage.archive import places_of, segment_by
from raftlog.storage.directory import shard_name as shard_dir
from raftlog.storage.segments import log_name

from .buffer_pool import PooledBuffer, pooled_buffer
from .inputs import InputLog, of_store
from .loading import RepairNote, foreign, load, lost_range
from .plan import Piece, Task, plan_records
from .sealed import SealedIndex, sealed_header


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableEntries:
    """Entries that no node can read, by both ends; ``offset`` is the place in one node's ``file``.

    ``hint`` says what to do.
    """

    shard: int
    first_index: int
    last_index: int
    file: str
    offset: int
    words: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The outcome of reading a task: bytes, repairs from other nodes, and what is lost for good."""

    size: int
    notes: tuple[RepairNote, ...]
    lost: tuple[UnreadableEntries, ...]


def verify(task: Task) -> Verified:
    """Read and check everything of a task, as far as necessary from several nodes; decodes no record.

    An entry whose frame is whole but whose records are of an unknown format is not lost here. Raises
    `InputError` for files of a newer format, or of another cluster.
    """
    try:
        return _verified(files_at(task.path), task)
    except StoreError as error:
        raise of_store(error) from None


def _verified(files: Files, task: Task) -> Verified:
    size, notes, lost = 0, list[RepairNote](), list[UnreadableEntries]()
    with pooled_buffer(files) as memory:
        for piece in task.pieces():
            size += piece.size
            if _is_sealed_whole(files, memory, piece):
                continue
            index = SealedIndex.of(files, piece.home, piece.bounds, piece.selection)
            if index is not None and not index.is_wanted:
                continue
            found = load(files, memory.read, piece, index)
            notes += found.notes
            lost += (_unreadable(piece, one, found.hint) for one in found.lost)
    return Verified(size=size, notes=tuple(notes), lost=tuple(lost))


def readable(log: InputLog, shard: int, first: int, last: int) -> tuple[tuple[int, int], ...]:
    """The ranges of entries from ``first`` to ``last`` that any node can read, both ends included.

    If the last call for the same entries found none, and no file that may hold them has changed since (by an
    input that was remembered), nothing is read again.
    """
    asked = f"{shard}:{first}-{last}"
    tasks = [] if shard not in log.shards else plan_records(log, {shard: (first, last)})
    state = _state(log, tasks)
    if log.looked.get(asked) == state:
        return ()
    begins = log.shards[shard].begins_index if shard in log.shards else last + 1
    ends = log.shards[shard].decided_index if shard in log.shards else 0
    gone = [(one.first_index, one.last_index) for task in tasks for one in verify(task).lost]
    found = tuple(_without(max(first, begins), min(last, ends), gone))
    if found:
        log.looked.pop(asked, None)
    else:
        log.looked[asked] = state
    return found


def _is_sealed_whole(files: Files, memory: PooledBuffer, piece: Piece) -> bool:
    """Whether the segment is byte for byte what its index was made from."""
    sealed = sealed_header(files, piece.home, piece.bounds)
    if sealed is None:
        return False
    try:
        path, data = segment_by(memory.read, piece.home, piece.bounds.first)
    except Damaged:
        return False
    is_whole = len(data) == sealed.log_bytes and crc32c(data) == sealed.log_crc
    return is_whole and not foreign(piece, path, data)


def _unreadable(piece: Piece, gap: LogGap, hint: str) -> UnreadableEntries:
    first, last = lost_range(piece, gap)
    return UnreadableEntries(
        shard=piece.shard,
        first_index=first,
        last_index=last,
        file=gap.file,
        offset=gap.offset,
        words=f"{shard_name(piece.shard)}: {gap.words()}",
        hint=hint,
    )


def _without(first: int, last: int, gone: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The parts of a range outside other ranges."""
    for begin, end in sorted(gone):
        if first < begin:
            yield first, min(begin - 1, last)
        first = max(first, end + 1)
    if first <= last:
        yield first, last


def _state(log: InputLog, tasks: Iterable[Task]) -> str:
    """A digest of the state of all files, on all nodes, that may hold the entries of tasks."""
    wanted = {
        (piece.shard, piece.bounds.first, piece.bounds.following) for t in tasks for piece in t.pieces()
    }
    if not wanted:
        return ""
    told = hashlib.blake2b(digest_size=16)
    for shard, first, following in sorted(wanted, key=lambda one: one[:2]):
        for copy in log.shards[shard].copies:
            home, firsts = join(copy.directory, shard_dir(shard)), copy.firsts
            begin = max(0, bisect_left(firsts, first) - 1)
            end = len(firsts) if following is None else bisect_left(firsts, following)
            for name in map(log_name, firsts[begin:end]):
                for path in places_of(home, name):
                    told.update(repr((path, log.files.state(path))).encode())
    return told.hexdigest()
