"""The live log of one shard: what is above the snapshot, on disk, and the little of it that memory holds.

Memory holds an offset and a term per entry and the frames that are not yet committed; entries themselves are
read back from disk when somebody asks.  What must stay true:

- Entries are dense: the next index is the last plus one; terms and timestamps never go back.
- Frames reach the file in groups: one write, one sync, one group in flight.  `begin_flush` gives the work as
  a function that touches files only, so that it can run on the disk thread; `end_flush` takes its success
  in.  A failed flush is never taken in and never repeated: what is on disk is then unknown, and the node
  stops.
- A new segment is begun only when all of the old one is synced, so only the last can have a torn tail; both
  end where a link of the hash chain ends.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from raftlog.chain import Chain
from raftlog.errors import RESTORE_HINT, Corrupt
from raftlog.files import File, Files
from raftlog.frames import Frame, encode_frame, read_frame
from raftlog.machine import LogFull
from raftlog.sealed import Sealed
from raftlog.segments import LogIdentity, create_segment, encode_header
from raftlog.settings import CHAIN_STRIDE, LogSettings


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of consecutive whole frames, read from `start` in the file at `path`."""

    path: str
    start: int
    data: bytes


@dataclass(slots=True)
class Segment:
    """A segment of the live log: `end` is where its synced frames end; `sealed` once its index is there."""

    first_index: int
    path: str
    file: File
    end: int
    sealed: Sealed | None = None


@dataclass(slots=True)
class _Flush:
    """The group in flight; `made` is the segment that follows it, when it completes the present one."""

    last_index: int
    num_frames: int
    num_bytes: int
    cuts: bool
    made: Segment | None = None


class Journal:
    """One shard's log, as `loading.load_journal` opened it."""

    def __init__(self, files: Files, home: str, identity: LogIdentity, settings: LogSettings) -> None:
        self._files = files
        self._settings = settings
        self._header_bytes = len(encode_header(identity, 0))
        self._append_offset = 0
        self._pending: deque[bytes] = deque()
        self._cuts: deque[int] = deque()
        self._flush: _Flush | None = None
        self._uncommitted: deque[bytes] = deque()
        self.uncommitted_bytes = 0
        self.home = home
        self.identity = identity
        self.offsets = array("I")
        self.terms = array("Q")
        self.segments: list[Segment] = []
        self.base_index = 0
        self.base_term = 0
        self.last_timestamp_ms = 0
        self.durable_index = 0
        self.tail_records = 0
        self.torn_bytes = 0
        self.chain = Chain()

    def opened(self) -> None:
        """All fields are filled from disk and synced: entries can be appended."""
        self.durable_index = self.last_index
        self._append_offset = self.segments[-1].end

    # Where entries are

    @property
    def last_index(self) -> int:
        """The newest entry, synced or not."""
        return self.base_index + len(self.offsets)

    @property
    def last_term(self) -> int:
        """The newest entry's term."""
        return self.terms[-1] if self.terms else self.base_term

    def term_at(self, index: int) -> int | None:
        """The term of an entry from the snapshot's last one on, else None."""
        place = index - self.base_index - 1
        if place == -1:
            return self.base_term
        return self.terms[place] if 0 <= place < len(self.terms) else None

    def read_chunk(self, from_index: int, to_index: int, bytes_max: int) -> Chunk:
        """Synced entries from `from_index` on: about `bytes_max`, at least one, not beyond `to_index` nor
        the end of a segment."""
        place = bisect_right(self.segments, from_index, key=_first_index)
        segment = self.segments[place - 1]
        limit = min(to_index, self.durable_index)
        if place < len(self.segments):
            limit = min(limit, self.segments[place].first_index - 1)
        first, stop = from_index - self.base_index - 1, limit - self.base_index
        start = self.offsets[first]
        stop = bisect_right(self.offsets, start + bytes_max, first + 1, stop)
        last = self.base_index + stop
        ends_segment = last == self.durable_index or (
            place < len(self.segments) and last + 1 == self.segments[place].first_index
        )
        end = segment.end if ends_segment else self.offsets[stop]
        return Chunk(segment.path, start, segment.file.pread(end - start, start))

    def read(self, from_index: int, to_index: int, bytes_max: int) -> list[Frame]:
        """The frames of `read_chunk`, checked; raises Corrupt."""
        chunk = self.read_chunk(from_index, to_index, bytes_max)
        view = memoryview(chunk.data)
        found: list[Frame] = []
        at = 0
        while at < len(view):
            frame = read_frame(view, at, chunk.path, chunk.start + at)
            if frame is None or frame.index != from_index + len(found):
                what = f"entry {from_index + len(found)} is not whole any more, though it was once"
                raise Corrupt(chunk.path, chunk.start + at, what, RESTORE_HINT)
            found.append(frame)
            at += frame.size
        return found

    # Appending

    @property
    def has_room(self) -> bool:
        """What waits to be committed is below its bound."""
        return self.uncommitted_bytes < self._settings.uncommitted_bytes_max

    def append(self, term: int, commit_index: int, timestamp_ms: int, count: int, body: bytes) -> int:
        """Queue an entry for the next group; its index.  Raises LogFull when it is too large."""
        if len(body) > self._settings.entry_bytes_max:
            raise LogFull(f"an entry of {len(body)} bytes is larger than entry_bytes_max")
        index = self.last_index + 1
        if term < self.last_term or timestamp_ms < self.last_timestamp_ms:
            raise AssertionError(f"term {term} or time {timestamp_ms} goes back at entry {index}")
        frame = encode_frame(index, term, commit_index, timestamp_ms, count, body)
        self.offsets.append(self._append_offset)
        self.terms.append(term)
        self._pending.append(frame)
        self._uncommitted.append(frame)
        self._append_offset += len(frame)
        self.uncommitted_bytes += len(frame)
        self.last_timestamp_ms = timestamp_ms
        self.tail_records += count
        if not index % CHAIN_STRIDE and self._append_offset >= self._settings.segment_bytes:
            self.cut_here()
        return index

    def cut_here(self) -> None:
        """Let the segment end with the newest entry, which must end a link of the chain."""
        index = self.last_index
        if index % CHAIN_STRIDE:
            raise AssertionError(f"a segment cannot end with entry {index}")
        newest_first = self._cuts[-1] + 1 if self._cuts else self.segments[-1].first_index
        if index >= newest_first:
            self._cuts.append(index)
            self._append_offset = self._header_bytes

    # Group commit

    @property
    def is_flushing(self) -> bool:
        """A group is in flight."""
        return self._flush is not None

    @property
    def is_dirty(self) -> bool:
        """Something is queued that is in no group yet, or a segment is due to end."""
        return self._flush is None and bool(self._pending or self._cuts)

    def begin_flush(self) -> Callable[[], None]:
        """Make the next group, of about `flush_bytes_max` at most: the work that writes and syncs it.  Not
        while a group is in flight."""
        assert self._flush is None
        pending = self._pending
        due = min(len(pending), self._cuts[0] - self.durable_index) if self._cuts else len(pending)
        frames: list[bytes] = []
        room = self._settings.flush_bytes_max
        while len(frames) < due and room > 0:
            frames.append(pending.popleft())
            room -= len(frames[-1])
        count, group = len(frames), b"".join(frames)
        last = self.durable_index + count
        flush = _Flush(last, count, len(group), bool(self._cuts) and self._cuts[0] == last)
        self._flush = flush
        segment = self.segments[-1]
        if count and self.offsets[self.durable_index - self.base_index] != segment.end:
            raise AssertionError(
                f"entry {self.durable_index + 1} was promised another place than {segment.end}"
            )

        def work() -> None:
            if group:
                segment.file.pwrite(group, segment.end)
                segment.file.fdatasync()
            if flush.cuts:
                first = flush.last_index + 1
                path = create_segment(self._files, self.home, self.identity, first)
                flush.made = Segment(first, path, self._files.open(path, "w"), self._header_bytes)

        return work

    def end_flush(self) -> None:
        """The group in flight is durable."""
        flush = self._flush
        assert flush is not None
        self._flush = None
        self.segments[-1].end += flush.num_bytes
        self.durable_index = flush.last_index
        if flush.made is not None:
            self._cuts.popleft()
            self.segments.append(flush.made)

    def take_committed(self, index: int) -> None:
        """Entries of this run up to `index` are committed: chain them and let their frames go."""
        chain, uncommitted = self.chain, self._uncommitted
        while chain.index < index:
            frame = uncommitted.popleft()
            self.uncommitted_bytes -= len(frame)
            chain.add(frame, chain.index + 1)

    # After a snapshot

    def drop_below(self, index: int, term: int, records: int) -> list[Segment]:
        """Entries up to `index` are in a snapshot: forget them; the segments that held them, closed."""
        keep = bisect_right(self.segments, index + 1, key=_first_index) - 1
        dropped, self.segments = self.segments[:keep], self.segments[keep:]
        count = index - self.base_index
        del self.offsets[:count]
        del self.terms[:count]
        self.base_index, self.base_term = index, term
        self.tail_records -= records
        for segment in dropped:
            segment.file.close()
        return dropped

    def close(self) -> None:
        """Close the files; nothing is synced here."""
        for segment in self.segments:
            segment.file.close()
        self.segments = []


def _first_index(segment: Segment) -> int:
    return segment.first_index
