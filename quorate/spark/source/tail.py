"""Follows the decided end of a growing log.

A look costs as much as was written since the previous one: for each shard, each directory remembers the
position of the first entry that is not *settled* (decided, and held by this directory as decided), and reads
on from there. Invariants:

- The result is that of `history.reading.opening.open_node` for the same bytes, by the same rule (`quorum`).
- Settled entries are not read again, all others at every look: an undecided tail may be truncated and
  rewritten at the same length.
- A result never goes back: an entry that was decided stays so, even while a directory is briefly missing.
- Files move to the archive, or are replaced by a snapshot of the leader, between two looks or during one; the
  position is then determined anew.
"""

from __future__ import annotations

import contextlib
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from history.reading.members import MemberDirectory, num_voters, open_members, strangers
from history.reading.quorum import Tail, TermRun, decided
from history.reading.source import NothingToRead
from quorate.spark.errors import InputError
from raftlog.env.errors import Corrupt, Damaged
from raftlog.env.files import File, Files, OsFiles, join
from raftlog.env.object_stores import files_at, is_store
from raftlog.env.state_machine import SnapshotHeader
from raftlog.offline.reader import ShardReader
from raftlog.storage.archive import places_of
from raftlog.storage.directory import is_joining, shard_name
from raftlog.storage.frames import frame_at
from raftlog.storage.loader import CLEAN_FILE, CLEAN_KIND
from raftlog.storage.metafile import read_meta
from raftlog.storage.retained_snapshots import header_of
from raftlog.storage.segments import HEADER_BYTES_MAX, decode_header, index_name, log_name, next_frame
from raftlog.storage.snapshot_install import valid_segments
from raftlog.storage.snapshots import SNAPSHOT_FILE
from records.ids import METADATA_SHARD

from .listing import in_parallel, listed_files

PLACES_KEPT = 8
"""Earlier places that are kept: between two batches there are a few looks."""

LOOKS_MAX = 5
"""Attempts at one look if files move; each move (seal, archive, install) takes longer than a look."""


@dataclass(frozen=True, slots=True)
class TailPosition:
    """The position after entry ``index`` (of ``term``, written at ``timestamp_ms``).

    It is ``offset`` in the segment that starts with entry ``first``.
    """

    first: int
    inode: int
    offset: int
    index: int
    term: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Consecutive complete entries after ``before``, with their offsets; the last one ends at ``end``."""

    before: TailPosition
    offsets: array[int]
    terms: array[int]
    times: array[int]
    end: int

    @property
    def last_index(self) -> int:
        return self.before.index + len(self.offsets)

    def behind(self, index: int) -> TailPosition:
        """The position after one of the entries, or after the last one for an index further on."""
        count = min(index - self.before.index, len(self.offsets))
        if count <= 0:
            return self.before
        offset = self.offsets[count] if count < len(self.offsets) else self.end
        place = replace(self.before, offset=offset, index=self.before.index + count)
        return replace(place, term=self.terms[count - 1], timestamp_ms=self.times[count - 1])


class _Moved(Exception):
    """The file being read was moved or replaced."""


class ShardTail:
    """The end of one shard's log in one directory."""

    def __init__(self, path: str, shard: int, files: Files | None = None) -> None:
        self.files: Files = OsFiles() if files is None else files
        self.node_path = path
        self.shard = shard
        self.home = join(path, shard_name(shard))
        self.place: TailPosition | None = None
        """The position after the last settled entry; None before the first look and while it is sought."""
        self.earlier: deque[TailPosition] = deque(maxlen=PLACES_KEPT)
        """The last values of `place`, in files that are still there: a batch begins at one of them."""
        self.commit_index = 0
        """The highest commit index found in these files, or the settled entry if that is higher."""
        self.begins_index = 1
        """The oldest entry when the position was last determined; retention may since have removed more."""
        self._snapshot: SnapshotHeader | None = None
        self._stretches: list[_Stretch] = []

    def look(self) -> None:
        """Read the entries after the settled ones.

        Raises `FileNotFoundError` if the shard's directory is missing.
        """
        for _ in range(LOOKS_MAX):
            with contextlib.suppress(_Moved):
                self._look()
                return
            self.place = None
            self.earlier.clear()
        raise FileNotFoundError(self.home)

    def tail(self, node_id: int, above: int) -> Tail:
        """The input of the quorum rule, with runs of terms for the entries after ``above``."""
        runs: list[TermRun] = []
        for index, term in self._entries(above):
            if runs and runs[-1].term == term and runs[-1].last_index == index - 1:
                runs[-1] = replace(runs[-1], last_index=index)
            else:
                runs.append(TermRun(first_index=index, last_index=index, term=term))
        last_index, last_term = self.last
        return Tail(
            node_id=node_id,
            commit_index=self.commit_index,
            last_index=last_index,
            last_term=last_term,
            runs=tuple(runs),
            counts=not is_joining(self.files, self.home),
        )

    @property
    def last(self) -> tuple[int, int]:
        """Index and term of the last complete entry."""
        for stretch in reversed(self._stretches):
            if stretch.offsets:
                return stretch.last_index, stretch.terms[-1]
        place = self.place
        # Without an entry, a log is empty or starts after a leader's snapshot.
        if place is not None and place.term:
            return place.index, place.term
        return (self._snapshot.last_index, self._snapshot.last_term) if self._snapshot else (0, 0)

    @property
    def settled_ms(self) -> int:
        """Timestamp of the last settled entry; -1: none."""
        if self.place is not None and self.place.term:
            return self.place.timestamp_ms
        return self._snapshot.last_timestamp_ms if self._snapshot else -1

    def settle(self, index: int) -> None:
        """Mark entries up to ``index`` in this directory as decided; they are not read again.

        The place is directly behind an entry: what is between it and the next one is read again.
        """
        holding = [one for one in self._stretches if one.before.index < index]
        if holding:
            place = holding[-1].behind(index)
            if self.place is not None and place != self.place:
                self.earlier.append(self.place)
            self.place = place

    def position(self) -> list[int] | None:
        """Plain data for `restore`; None if nothing is settled yet."""
        if self.place is None or not self.place.term:
            return None
        return [*astuple(self.place), self.commit_index, self.begins_index]

    def restore(self, position: Any) -> None:
        """Continue from the position of an earlier reader; a file that was replaced since is noticed."""
        if isinstance(position, (list, tuple)) and [type(one) for one in position] == [int] * 8:
            *place, self.commit_index, self.begins_index = position
            self.place = TailPosition(*place)

    def _entries(self, above: int) -> Iterator[tuple[int, int]]:
        for stretch in self._stretches:
            skipped = max(0, above - stretch.before.index)
            first = stretch.before.index + skipped + 1
            yield from enumerate(stretch.terms[skipped:], first)

    def _look(self) -> None:
        place = self.place = self.place or self._begin()
        self._stretches = []
        while True:
            path, size = self._segment(place)
            if size > place.offset:
                place = self._read(path, place, size)
            following = self._following(place, size)
            if following is None:
                break
            if self._is_sealed(place.first):
                self.commit_index = max(self.commit_index, following - 1)
            place = replace(self._start(following), term=place.term, timestamp_ms=place.timestamp_ms)
        if self._stretches:
            self.commit_index = max(self.commit_index, self._clean_stop())
        self.commit_index = max(self.commit_index, self.place.index)  # also if an earlier reader settled it

    def _begin(self) -> TailPosition:
        """The position to start reading from if none is known.

        It is after the last sealed segment, or before that one if nothing follows it yet, since the last
        entry's term must be known.
        """
        firsts = valid_segments(self.files, self.home)
        if not firsts:
            raise _Moved
        self.begins_index = firsts[0]
        self._snapshot = header_of(self.files, join(self.home, SNAPSHOT_FILE))
        if self._snapshot is not None:
            self.commit_index = max(self.commit_index, self._snapshot.last_index)
        begin = next((at for at in range(len(firsts) - 1, 0, -1) if self._is_sealed(firsts[at - 1])), 0)
        if begin:
            self.commit_index = max(self.commit_index, firsts[begin] - 1)
        place = self._start(firsts[begin])
        is_empty = begin and self._segment(place)[1] == place.offset
        return self._start(firsts[begin - 1]) if is_empty else place

    def _start(self, first: int) -> TailPosition:
        """The position before a segment's first entry; the term of the entry before is unknown (0)."""
        path = self._path(first)
        with self._open(path) as file:
            head = file.pread(HEADER_BYTES_MAX, 0)
        try:
            offset = decode_header(head, path).frames_offset
        except Corrupt:
            found = next_frame(head, 0, first - 1)
            offset = len(head) if found is None else found[0]
        return TailPosition(first, self._inode(path), offset, first - 1, term=0, timestamp_ms=-1)

    def _read(self, path: str, place: TailPosition, size: int) -> TailPosition:
        """Take the complete entries from a position on, even after damage; returns the final position."""
        with self._open(path) as file:
            data = file.pread(size - place.offset, place.offset)  # at most one segment, once
        view, base, at = memoryview(data), place.offset, 0
        while True:
            offsets, terms, times, commit_index = array("q"), array("q"), array("q"), 0
            while (frame := frame_at(view, at)) is not None and frame[1] == place.index + len(terms) + 1:
                offsets.append(base + at)
                terms.append(frame[2])
                times.append(frame[4])
                commit_index = max(commit_index, frame[3])
                at = frame[0]
            self.commit_index = max(self.commit_index, commit_index)
            stretch = _Stretch(place, offsets, terms, times, base + at)
            self._stretches.append(stretch)
            place = stretch.behind(stretch.last_index)
            found = next_frame(data, at + 1, place.index) if at < len(data) else None
            if found is None:
                return place
            at = found[0]
            place = replace(place, offset=base + at, index=found[1] - 1)

    def _following(self, place: TailPosition, size: int) -> int | None:
        """The first index of the segment after a position, if there is one."""
        if self.files.exists(join(self.home, log_name(place.index + 1))) and place.index >= place.first:
            return place.index + 1
        is_whole = size == place.offset and self.files.exists(join(self.home, log_name(place.first)))
        if is_whole and place.index >= place.first:
            return None
        # A torn end, damage with more after it, or a file that moved to the archive.
        return next((one for one in valid_segments(self.files, self.home) if one > place.first), None)

    def _segment(self, place: TailPosition) -> tuple[str, int]:
        """(path, size) of the segment of a position; raises `_Moved` if the file was replaced."""
        path = self._path(place.first)
        try:
            if self._inode(path) != place.inode or (size := self.files.size(path)) < place.offset:
                raise _Moved
        except FileNotFoundError:
            raise _Moved from None
        return path, size

    def _path(self, first: int) -> str:
        live, archived = places_of(self.home, log_name(first))
        return live if self.files.exists(live) else archived

    def _inode(self, path: str) -> int:
        try:
            return self.files.inode(path)
        except FileNotFoundError:
            raise _Moved from None

    @contextlib.contextmanager
    def _open(self, path: str) -> Iterator[File]:
        try:
            file = self.files.open(path, "r")
        except FileNotFoundError:
            raise _Moved from None
        try:
            yield file
        finally:
            file.close()

    def _is_sealed(self, first: int) -> bool:
        """Whether a segment has an index, which only fully committed ones get."""
        return any(map(self.files.exists, places_of(self.home, index_name(first))))

    def _clean_stop(self) -> int:
        """The commit index in the marker of a clean stop; 0 without one."""
        try:
            _, _, chain_index, _, *more = read_meta(self.files, join(self.home, CLEAN_FILE), CLEAN_KIND)
        except (FileNotFoundError, Damaged):
            return 0
        return int(max(chain_index, *more[:1], 0))


@dataclass(frozen=True, slots=True)
class DecidedEnd:
    """The last decided entry of a shard, and the directory to read it from.

    Entry ``index`` was written at ``timestamp_ms`` (0 and -1: none). ``member`` is the directory with the
    longest history of those known to hold it, and ``holds_to`` its last complete entry, decided or not.
    ``known`` says for each directory how far its own entries certainly are the decided ones, and which is its
    last complete one.
    """

    index: int
    timestamp_ms: int
    member: MemberDirectory
    holds_to: int
    known: Mapping[str, tuple[int, int]]


def _looked(tail: ShardTail) -> bool:
    """Look at one directory; False: the shard is not there, or not readable."""
    try:
        tail.look()
    except (FileNotFoundError, Damaged):
        return False
    return True


class InputTail:
    """All shards of an input: a node's directory, or the folder of a cluster.

    Raises `InputError` if there is no log, or logs of more than one cluster.
    """

    def __init__(
        self, path: str, files: Files | None = None, positions: Mapping[str, Any] | None = None
    ) -> None:
        """Open the directories at a path; ``positions`` are those that an earlier reader remembered."""
        self.path = path
        self._is_followed_in_store = files is None and is_store(path)
        self._files: Files = files_at(path) if files is None else files
        try:
            opened = open_members([path], files)
        except NothingToRead as nothing:
            raise InputError(str(nothing)) from None
        self.members: list[MemberDirectory] = [member for member, _ in opened]
        for found in strangers(self.members):
            raise InputError(f"the nodes in {path} belong to different clusters: {found}", "give one of them")
        self.cluster_id = next((one.cluster_id for one in self.members if one.cluster_id is not None), None)
        self.shards = sorted({shard for _, log in opened for shard in log.readers})
        self._voters = self._count_voters()
        self._tails = {
            shard: [
                (member, member.counted_as(place), ShardTail(member.path, shard, self._files))
                for place, (member, log) in enumerate(opened)
                if shard in log.readers
            ]
            for shard in self.shards
        }
        self._reached: dict[int, DecidedEnd] = {}
        for tail in self._all():
            tail.restore((positions or {}).get(tail.home))

    def holders(self, shard: int) -> list[MemberDirectory]:
        """The directories that have the shard."""
        return [member for member, _, _ in self._tails[shard]]

    def earlier_places(self, shard: int, directory: str) -> list[TailPosition]:
        """`ShardTail.earlier` of one directory."""
        return [
            place
            for member, _, tail in self._tails[shard]
            if member.path == directory
            for place in tail.earlier
        ]

    def positions(self) -> dict[str, Any]:
        """Plain data about the end of each directory, for a later reader."""
        return {tail.home: position for tail in self._all() if (position := tail.position()) is not None}

    def _all(self) -> list[ShardTail]:
        return [tail for tails in self._tails.values() for _, _, tail in tails]

    @property
    def is_alone(self) -> bool:
        """Whether the input is a whole cluster of one node, in which every complete entry is decided."""
        return self._voters == 1

    def look(self) -> dict[int, DecidedEnd]:
        """The last decided entry of each shard as of now."""
        if self._is_followed_in_store:
            self._use(listed_files(files_at(self.path), self.path))
        there = dict(zip(map(id, self._all()), in_parallel(self._files, _looked, self._all()), strict=True))
        for shard in self.shards:
            found, before = self._look(shard, there), self._reached.get(shard)
            if before is None or (found is not None and found.index >= before.index):
                self._reached[shard] = found or DecidedEnd(0, -1, self.members[0], 0, {})
        return dict(self._reached)

    def _count_voters(self) -> int:
        if len(self.members) > 1:
            return num_voters(self.members)
        member = self.members[0]
        is_alone = ShardReader(member.path, METADATA_SHARD, self._files).is_alone
        return 1 if is_alone else max(2, len(member.voters))

    def _use(self, files: Files) -> None:
        self._files = files
        for tail in self._all():
            tail.files = files

    def _look(self, shard: int, there: Mapping[int, bool]) -> DecidedEnd | None:
        """The result from the directories that are present; None without any."""
        present = [one for one in self._tails[shard] if there[id(one[2])]]
        above = max((tail.commit_index for _, _, tail in present), default=0)
        tails: Sequence[Tail] = [tail.tail(node_id, above) for _, node_id, tail in present]
        if self.is_alone:
            tails = [replace(one, commit_index=max(one.commit_index, one.last_index)) for one in tails]
        proven = decided(tails, self._voters)
        sure = {
            member.path: (known, ends.last_index)
            for (member, _, _), known, ends in zip(present, proven.known, tails, strict=True)
        }
        reached = []
        for (member, _, tail), known, ends in zip(present, proven.known, tails, strict=True):
            tail.settle(known)
            one = DecidedEnd(proven.index, tail.settled_ms, member, ends.last_index, sure)
            reached.append((min(known, ends.last_index), -tail.begins_index, one))
        return max(reached, key=lambda ranked: ranked[:2], default=(0, 0, None))[2]
