"""Loads a segment's checked frames on an executor, from other nodes' copies where its file is damaged.

This trusts nothing: the file may have moved or vanished, and its header, index and lengths may be wrong.
Exactly the entries that it lacks are read from another node's sound and decided copy (`raftlog.offline.
replicas` says which are). The invariant: an entry is what the cluster decided, or it is reported as lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from history.reading.source import LogGap
from history.words import shard_name
from quorate.spark.errors import InputError
from raftlog.env.errors import RESTORE_HINT, Corrupt, Damaged
from raftlog.env.files import Files
from raftlog.offline.replicas import BrokenSegment, MendedSegment, TakenEntries, mended_segment
from raftlog.storage.archive import segment_by
from raftlog.storage.segments import HEADER_BYTES_MAX, NewerFormat, decode_header

from .frames import Data, Frames, gap, scan
from .inputs import two_clusters
from .plan import Piece
from .sealed import SealedIndex

FOREIGN_HINT = "the file was copied here from another node or shard; remove it"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairNote:
    """Entries that were read from another node, because one node's copy of them is damaged or missing.

    ``offset`` is the first damaged byte of ``file``; ``from_ms`` and ``to_ms`` are the times of the first and
    last entry in ms since 1970. ``words`` are a sentence for people.
    """

    shard: int
    first_index: int
    last_index: int
    from_ms: int
    to_ms: int
    file: str
    offset: int
    read_from: str
    words: str


class ReadFile(Protocol):
    """`PooledBuffer.read`."""

    def __call__(self, path: str, head: int = 0, begin: int = 0) -> Data: ...


OnNote = Callable[[RepairNote], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSegment:
    """The wanted frames of a segment in ``data``, wanted entries that no node has, and repairs."""

    path: str
    data: Data
    frames: Frames
    lost: tuple[LogGap, ...] = ()
    hint: str = RESTORE_HINT
    notes: tuple[RepairNote, ...] = ()


def load(files: Files, read: ReadFile, piece: Piece, index: SealedIndex | None) -> LoadedSegment:
    """The wanted frames of a segment; ``read`` reads a file, ``index`` is the segment's, if it is sound.

    Raises `InputError` for files of a newer format, or of another cluster.
    """
    if piece.begin is not None and index is None and (newest := _newest(read, piece, piece.begin)):
        return newest
    bounds, hint, frames = piece.bounds, RESTORE_HINT, Frames.none()
    try:
        path, data = segment_by(read, piece.home, bounds.first)
    except Damaged as damage:
        path, data, hint = damage.file, b"", damage.hint or RESTORE_HINT
        gaps = [gap(path, damage.offset, bounds.first, damage.what, bounds.following)]
    else:
        if of_another := foreign(piece, path, data):
            data, hint = b"", FOREIGN_HINT
            gaps = [gap(path, 0, bounds.first, of_another, bounds.following)]
        elif index is not None and (chosen := index.frames(data, path)) is not None:
            return LoadedSegment(path=path, data=data, frames=chosen)
        else:
            frames, gaps = scan(data, path, bounds, unchecked_before=piece.selection.span.from_index or 0)
            frames = wanted_frames(frames, piece)
            if not (gaps := _wanted_gaps(piece, gaps)):
                return LoadedSegment(path=path, data=data, frames=frames)
    gaps = _wanted_gaps(piece, gaps)
    mended = _mended(files, piece, data, index) if gaps and piece.replicas else None
    if mended is not None:
        whole = None if index is None else index.frames(mended.data, path)
        data = mended.data
        frames = wanted_frames(scan(data, path, bounds)[0], piece) if whole is None else whole
        pieces = [one for each in gaps for one in _divided(piece, each, mended)]
        lost = tuple(one for one in pieces if isinstance(one, LogGap))
        notes = tuple(one for one in pieces if isinstance(one, RepairNote))
        return LoadedSegment(path=path, data=data, frames=frames, lost=lost, hint=hint, notes=notes)
    return LoadedSegment(path=path, data=data, frames=frames, lost=tuple(gaps), hint=hint)


def _newest(read: ReadFile, piece: Piece, begin: int) -> LoadedSegment | None:
    """The wanted frames, found from where the first one should begin; ``None`` if they are not all there."""
    wanted = partial(read, head=HEADER_BYTES_MAX, begin=begin)
    start = (begin, piece.selection.span.from_index or piece.bounds.first)
    try:
        path, data = segment_by(wanted, piece.home, piece.bounds.first)
    except Damaged:
        return None
    frames, gaps = scan(data, path, piece.bounds, start=start)
    if gaps or foreign(piece, path, data):
        return None
    return LoadedSegment(path=path, data=data, frames=wanted_frames(frames, piece))


def foreign(piece: Piece, path: str, data: Data) -> str:
    """The reason why a sound header is of another log, or ""; raises `InputError` for a newer format."""
    try:
        header = decode_header(memoryview(data)[:HEADER_BYTES_MAX], path)
    except NewerFormat as newer:
        raise InputError(f"{path}: byte {newer.offset}: {newer.what}", newer.hint) from None
    except Corrupt:
        return ""  # damage: `scan` reports it and checks each frame
    identity = header.identity
    if identity.cluster_id != piece.cluster_id:
        raise two_clusters(piece.path, {piece.cluster_id: piece.path, identity.cluster_id: path})
    said = (identity.cluster_id, identity.shard, header.first_index)
    is_ours = said == (piece.cluster_id, piece.shard, piece.bounds.first)
    return "" if is_ours else "belongs to cluster {}, shard {}, from entry {} on".format(*said)


def wanted_frames(frames: Frames, piece: Piece) -> Frames:
    """The frames within the span that is wanted."""
    span, following = piece.selection.span, piece.bounds.following
    for low, high, field in (
        (span.from_index, span.to_index, "index"),
        (None, None if following is None else following - 1, "index"),
        (span.from_ms, span.to_ms, "timestamp_ms"),
    ):
        if low is not None:
            frames = frames.of(getattr(frames, field) >= low)
        if high is not None:
            frames = frames.of(getattr(frames, field) <= high)
    return frames


def _wanted_gaps(piece: Piece, gaps: Sequence[LogGap]) -> list[LogGap]:
    """The gaps that hold any wanted entry."""
    span = piece.selection.span
    return [
        one
        for one in gaps
        if (span.to_index is None or one.after_index < span.to_index)
        and (span.from_index is None or one.goes_on_at is None or one.goes_on_at > span.from_index)
    ]


def _mended(files: Files, piece: Piece, data: Data, index: SealedIndex | None) -> MendedSegment | None:
    """The segment with what other nodes have of it."""
    bounds = piece.bounds
    last = bounds.decided if bounds.following is None else bounds.following - 1
    if last is None:
        return None
    broken = BrokenSegment(
        cluster_id=piece.cluster_id,
        shard=piece.shard,
        first_index=bounds.first,
        last_index=last if bounds.decided is None else min(last, bounds.decided),
        data=data,
        sealed=None if index is None else index.sealed,
    )
    return mended_segment(files, broken, piece.replicas)


def lost_range(piece: Piece, each: LogGap) -> tuple[int, int]:
    """First and last index of a gap's entries that this piece should hold."""
    bounds = piece.bounds
    ends = [one - 1 for one in (each.goes_on_at, bounds.following) if one is not None]
    return each.after_index + 1, min([*ends, *([] if bounds.decided is None else [bounds.decided])])


def _divided(piece: Piece, each: LogGap, mended: MendedSegment) -> Iterator[RepairNote | LogGap]:
    """A gap's entries that another node has, and those that none has."""
    at, last = lost_range(piece, each)
    why = "".join(f"; {words}" for words in mended.unused)
    taken = [one for one in mended.taken if one.last_index >= at and one.first_index <= last]
    for one in taken:
        if at < one.first_index:
            yield replace(each, after_index=at - 1, goes_on_at=one.first_index, what=each.what + why)
        yield _note(piece, each, one)
        at = one.last_index + 1
    if at <= last:
        yield replace(each, after_index=at - 1, what=each.what + why)


def _note(piece: Piece, each: LogGap, taken: TakenEntries) -> RepairNote:
    first, last = taken.first_index, taken.last_index
    named = f"entry {first}" if first == last else f"entries {first} to {last}"
    return RepairNote(
        shard=piece.shard,
        first_index=first,
        last_index=last,
        from_ms=taken.first_ms,
        to_ms=taken.last_ms,
        file=each.file,
        offset=each.offset,
        read_from=taken.name,
        words=f"{shard_name(piece.shard)}: {each.file}: byte {each.offset}: {each.what}; {named} "
        f"read from {taken.name} instead",
    )
