"""The entries that one node's copy of a segment lacks, read from the copies of other nodes.

Followers store the leader's frames byte for byte, but each node begins its segments where it likes.  So a
copy of a segment is "these entries, from whichever files of another node hold them".  An entry is taken only
where it is certain to be the one that the cluster decided:

- Its frame is whole, in a file of the same cluster and shard.
- The other log is decided up to it: by that node's own files, or because the two logs hold an equal entry at
  or after it (Raft: logs that agree on an entry agree on all before it).
- No entry that both hold differs.  A different term begins an undecided tail, which is not used; a different
  entry of one term means that a file was altered, and nothing of that log is used.
- Two other logs do not contradict each other about it.
- A segment that is complete again matches the CRC in its sealed index, if it has a sound one.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

from raftlog.env.errors import Corrupt, Damaged
from raftlog.env.files import Files
from raftlog.storage.archive import all_segments, read_segment
from raftlog.storage.frames import HEADER, HEADER_BYTES, frame_at
from raftlog.storage.sealed_index import Sealed
from raftlog.storage.segments import (
    HEADER_BYTES_MAX,
    LogIdentity,
    decode_header,
    encode_header,
    next_frame,
)
from raftlog.storage.snapshot_install import valid_segments


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFiles:
    """Another node's log of a shard: its entries up to `decided_index` are certainly the decided ones."""

    name: str
    home: str
    decided_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenSegment:
    """A segment that lacks entries: its bytes (b"": none are usable) and the entries that it should hold.

    `sealed` is the header of its index, if that is sound.
    """

    cluster_id: str
    shard: int
    first_index: int
    last_index: int
    data: bytes | memoryview
    sealed: Sealed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenEntries:
    """Consecutive entries that were read from another node's file; timestamps are those of both ends."""

    first_index: int
    last_index: int
    first_ms: int
    last_ms: int
    name: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MendedSegment:
    """A segment's header and all its entries that any node holds, in order.

    `unused` says why other nodes' entries were not taken, in words.
    """

    data: bytes
    taken: tuple[TakenEntries, ...]
    unused: tuple[str, ...]


def mended_segment(
    files: Files, broken: BrokenSegment, replicas: Sequence[ReplicaFiles]
) -> MendedSegment | None:
    """The segment with the entries that it lacks, as far as other nodes have them; None if they have none.

    A file that cannot be read is passed over.  Costs reading the other nodes' copies of the segment.
    """
    own = _Copy("", limit=broken.last_index + 1)
    own.add("", broken.data, broken.first_index - 1, is_header_needed=True)
    copies = [_read_copy(files, replica, broken) for replica in replicas]
    copies = [copy for copy in copies if copy.pieces]
    unused: list[str] = []
    for _ in range(len(copies)):  # a copy that is certain now may make another one certain
        for copy in list(copies):
            others = (other for other in copies if other is not copy)
            if why := next((why for one in (own, *others) if (why := copy.compare(one, own))), ""):
                unused.append(why)
                copies.remove(copy)
    return _Mending(broken, own, copies, unused).result() if copies or unused else None


@dataclass(slots=True)
class _Piece:
    """Consecutive whole frames in one file, by their offsets."""

    path: str
    data: bytes | memoryview
    first: int
    offsets: array[int]


@dataclass(slots=True)
class _Copy:
    """The whole frames of one log about a segment; those before `limit` may be taken."""

    name: str
    limit: int
    pieces: list[_Piece] = field(default_factory=list)
    identity: LogIdentity | None = None

    def add(self, path: str, data: bytes | memoryview, after: int, *, is_header_needed: bool = False) -> None:
        """Add the whole frames of a file with rising indexes above `after`.

        With a damaged header they are looked for, and the first entry counts as lost if the header is needed.
        """
        view, at, index = memoryview(data), 0, after
        try:
            header = decode_header(view[:HEADER_BYTES_MAX], path)
            at, self.identity = header.frames_offset, header.identity
        except Corrupt:
            index += is_header_needed
        searchable: bytes | None = None
        while at < len(view):
            found = frame_at(view, at)
            if found is None or found[1] <= index:
                searchable = bytes(data) if searchable is None else searchable
                again = next_frame(searchable, at + 1, index)
                if again is None:
                    return
                at = again[0]
                continue
            end, following = found[0], found[1]
            last = self.pieces[-1] if self.pieces and self.pieces[-1].data is data else None
            if last is not None and following == index + 1:
                last.offsets.append(at)
            else:
                self.pieces.append(_Piece(path, data, following, array("q", (at,))))
            at, index = end, following

    def place(self, index: int) -> tuple[_Piece, int] | None:
        """The piece and offset of an entry."""
        at = bisect_right(self.pieces, index, key=lambda piece: piece.first) - 1
        if at < 0:
            return None
        piece = self.pieces[at]
        within = index - piece.first
        return (piece, piece.offsets[within]) if within < len(piece.offsets) else None

    def indexes(self, broken: BrokenSegment, before: int | None = None) -> Iterator[int]:
        """The entries among those that a segment should hold, and before an index."""
        end = broken.last_index + 1 if before is None else min(before, broken.last_index + 1)
        for piece in self.pieces:
            yield from range(max(piece.first, broken.first_index), min(piece.first + len(piece.offsets), end))

    def compare(self, other: _Copy, own: _Copy) -> str:
        """Determine which entries are decided by those of another copy; the reason, in words, if none are.

        Only the damaged copy's own entries can show that a file was altered.
        """
        equal = 0
        for piece in self.pieces:
            for index, offset in enumerate(piece.offsets, piece.first):
                if index >= other.limit or (place := other.place(index)) is None:
                    continue
                mine, theirs = _head((piece, offset)), _head(place)
                if mine == theirs:
                    equal = index
                elif index >= self.limit and HEADER.unpack(mine)[5] != HEADER.unpack(theirs)[5]:
                    self.limit = max(self.limit, equal + 1)
                    return ""  # an undecided tail begins
                elif other is own:
                    return f"the copy of {self.name} differs at entry {index}"
        self.limit = max(self.limit, equal + 1)
        return ""


def _head(place: tuple[_Piece, int]) -> bytes:
    """A frame's header; it contains the CRC, so that frames with equal headers are equal."""
    piece, offset = place
    return bytes(piece.data[offset : offset + HEADER_BYTES])


def _frame(place: tuple[_Piece, int]) -> bytes | memoryview:
    piece, offset = place
    length = HEADER.unpack_from(piece.data, offset)[2]
    return piece.data[offset : offset + HEADER_BYTES + length]


def _time(place: tuple[_Piece, int]) -> int:
    piece, offset = place
    return int(HEADER.unpack_from(piece.data, offset)[7])


def _read_copy(files: Files, replica: ReplicaFiles, broken: BrokenSegment) -> _Copy:
    """A replica's frames of the segment, and the ones beside it, from all files that hold any."""
    copy = _Copy(replica.name, limit=replica.decided_index + 1)
    before = broken.first_index - 1
    for first in _holding(files, replica.home, before, broken.last_index + 1):
        with contextlib.suppress(Damaged):  # never a store that is away: it may have what is looked for
            path, data = read_segment(files, replica.home, first)
            if _is_ours(data, path, broken, first):
                known = copy.pieces[-1] if copy.pieces else None
                done = known.first + len(known.offsets) - 1 if known is not None else 0
                copy.add(path, data, max(first - 1, done))
    return copy


def _holding(files: Files, home: str, first: int, last: int) -> Iterator[int]:
    """First indexes of the segments that may hold entries from `first` to `last`."""
    try:
        firsts = valid_segments(files, home)
    except Damaged:
        firsts = all_segments(files, home)
    except (FileNotFoundError, NotADirectoryError):
        return
    for place, begins in enumerate(firsts):
        following = firsts[place + 1] if place + 1 < len(firsts) else None
        if begins <= last and (following is None or following > first):
            yield begins


def _is_ours(data: bytes, path: str, broken: BrokenSegment, first: int) -> bool:
    """Whether a file's header does not say that it is of another log."""
    try:
        header = decode_header(data[:HEADER_BYTES_MAX], path)
    except Corrupt:
        return True
    identity = header.identity
    return (identity.cluster_id, identity.shard, header.first_index) == (
        broken.cluster_id,
        broken.shard,
        first,
    )


def _header(broken: BrokenSegment, copies: Sequence[_Copy]) -> bytes:
    """The bytes of the segment's header, its own or made anew."""
    with contextlib.suppress(Corrupt):
        end = decode_header(memoryview(broken.data)[:HEADER_BYTES_MAX], "").frames_offset
        return bytes(broken.data[:end])
    said = next((copy.identity for copy in copies if copy.identity is not None), None)
    none = LogIdentity(cluster_id=broken.cluster_id, shard=broken.shard, num_shards=0)
    return encode_header(said or none, broken.first_index)


class _Mending:
    """The choice of a copy for each entry that is lacking."""

    def __init__(self, broken: BrokenSegment, own: _Copy, copies: Sequence[_Copy], unused: list[str]) -> None:
        self._broken = broken
        self._own = own
        self._copies = copies
        self._header = _header(broken, copies)
        self._unused = unused

    def result(self) -> MendedSegment:
        chosen = self._chosen()
        data = self._composed(chosen)
        return MendedSegment(data=data, taken=tuple(self._taken(chosen)), unused=tuple(self._unused))

    def _chosen(self) -> dict[int, _Copy]:
        """The copy to take each entry from; entries that no copy has, or copies contradict, are absent."""
        orders = [[*self._copies[at:], *self._copies[:at]] for at in range(len(self._copies))]
        sealed = self._broken.sealed
        is_checkable = False
        for copies in orders:
            chosen = self._by_order(copies)
            is_same = None if sealed is None else self._is_sealed(chosen, sealed)
            if is_same:
                return chosen
            is_checkable = is_checkable or is_same is False
        if is_checkable:
            self._unused.append("no other node's copy matches the checksum in the segment's index")
            assert sealed is not None
            agreed = self._agreed()
            return {index: copy for index, copy in agreed.items() if index > sealed.last_index}
        return self._agreed()

    def _by_order(self, copies: Sequence[_Copy]) -> dict[int, _Copy]:
        chosen: dict[int, _Copy] = {}
        for copy in copies:
            for index in copy.indexes(self._broken, before=copy.limit):
                if self._own.place(index) is None:
                    chosen.setdefault(index, copy)
        return chosen

    def _agreed(self) -> dict[int, _Copy]:
        chosen = self._by_order(self._copies)
        disputed = [index for index, copy in chosen.items() if not self._is_undisputed(index, copy)]
        if disputed:
            named = " and ".join(copy.name for copy in self._copies)
            self._unused.append(f"the copies of {named} differ at entry {min(disputed)}")
        return {index: copy for index, copy in chosen.items() if index not in set(disputed)}

    def _is_undisputed(self, index: int, copy: _Copy) -> bool:
        place = copy.place(index)
        assert place is not None
        head = _head(place)
        others = (other for other in self._copies if other is not copy and index < other.limit)
        there = (other.place(index) for other in others)
        return all(_head(other) == head for other in there if other is not None)

    def _is_sealed(self, chosen: dict[int, _Copy], sealed: Sealed) -> bool | None:
        """Whether the segment, as far as it is sealed, is what was indexed; None: it is not complete."""
        crc, size = crc32c(self._header), len(self._header)
        for index in range(sealed.first_index, sealed.last_index + 1):
            place = chosen.get(index, self._own).place(index)
            if place is None:
                return None
            frame = _frame(place)
            crc, size = crc32c(frame, crc), size + len(frame)
        return (crc, size) == (sealed.log_crc, sealed.log_bytes)

    def _composed(self, chosen: dict[int, _Copy]) -> bytes:
        parts: list[bytes | memoryview] = [self._header]
        for index in sorted({*chosen, *self._own.indexes(self._broken)}):
            place = chosen.get(index, self._own).place(index)
            assert place is not None
            parts.append(_frame(place))
        return b"".join(parts)

    def _taken(self, chosen: dict[int, _Copy]) -> Iterator[TakenEntries]:
        """Runs of consecutive entries from one file."""
        run: list[int] = []
        for index in [*sorted(chosen), -1]:
            goes_on = run and index == run[1] + 1 and _path(chosen, index) == _path(chosen, run[0])
            if run and not goes_on:
                yield _taken_entries(chosen, *run)
            run = [run[0], index] if goes_on else [index, index]


def _path(chosen: dict[int, _Copy], index: int) -> str:
    place = chosen[index].place(index)
    return "" if place is None else place[0].path


def _taken_entries(chosen: dict[int, _Copy], first: int, last: int) -> TakenEntries:
    begin, end = chosen[first].place(first), chosen[last].place(last)
    assert begin is not None
    assert end is not None
    return TakenEntries(
        first_index=first,
        last_index=last,
        first_ms=_time(begin),
        last_ms=_time(end),
        name=chosen[first].name,
        file=begin[0].path,
    )
