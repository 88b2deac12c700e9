"""The live log of one shard: the entries after the snapshot, on disk, with a small part of them in memory.

Memory holds an offset and a term per entry and the frames that are not yet committed and synced; other
entries are read back from disk on demand.  Invariants:

- Entries are dense: the next index is the last plus one; terms and timestamps never go back.
- Frames reach the file in groups: one write, one sync, one group in flight.  `begin_flush` returns the work
  as a function that touches files only, so that it can run on the disk thread; `end_flush` records its
  success.  A failed flush is never recorded and never repeated: the state on disk is unknown then, and the
  node stops.
- A new segment is begun only when all of the old one is synced, so only the last can have a torn tail; both
  end where a stride of the hash chain ends.
- A frame that names an entry as committed is in a later group than that entry, or begins less than
  `LAGGING_GROUP_BYTES` after it: that is how a load tells a torn group from a damaged one.
- Entries are removed from the end only, and durably before anything is written in their place: no frame of a
  truncated tail ever follows a newer one.
- The mark `synced` beside the segments never claims more than what is synced here: it is written by the work
  of a group, after its sync, and lowered before a tail is removed, while no group is in flight.
- While a snapshot of the leader replaces the log (`hold` to `adopt_snapshot`) no group begins, not even one
  that is only a mark: it would name entries of the log that was replaced.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from raftlog.env.errors import RESTORE_HINT, Corrupt
from raftlog.env.files import File, Files
from raftlog.env.settings import CHAIN_STRIDE, LogSettings
from raftlog.env.state_machine import LogFull, SnapshotHeader
from raftlog.storage.append_validation import check_frames
from raftlog.storage.frames import HEADER, HEADER_BYTES, Frame, encode_frame, read_frame
from raftlog.storage.hash_chain import GENESIS, Chain
from raftlog.storage.sealed_index import Sealed
from raftlog.storage.segments import LAGGING_GROUP_BYTES, LogIdentity, create_segment, encode_header
from raftlog.storage.snapshot_install import reset_log
from raftlog.storage.sync_mark import Synced

Visit = Callable[[int, int, int, bytes], None]
"""Receives a committed entry: index, term, timestamp in ms, body."""


_COUNTED_BYTES = 1 << 20
"""At most this many bytes are read at once to count the records of removed entries."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of consecutive whole frames, read from `start` in the file at `path`."""

    path: str
    start: int
    data: bytes


@dataclass(slots=True)
class Segment:
    """A segment of the live log; its synced frames end at `end`, and `sealed` is set once it has an index."""

    first_index: int
    path: str
    file: File
    end: int
    sealed: Sealed | None = None


@dataclass(slots=True)
class _Flush:
    """The group in flight; `made` is the segment that follows if the group completes the current one."""

    last_index: int
    num_frames: int
    num_bytes: int
    cuts: bool
    made: Segment | None = None


class Journal:
    """One shard's log, as `loader.load_journal` opened it; `is_alone`: its node is the whole cluster."""

    def __init__(
        self, files: Files, home: str, identity: LogIdentity, settings: LogSettings, *, is_alone: bool = True
    ) -> None:
        self._files = files
        self.settings = settings
        self._header_bytes = len(encode_header(identity, 0))
        self._append_offset = 0
        self._cuts: deque[int] = deque()
        self._flush: _Flush | None = None
        self._is_held = False
        self._recent: list[bytes] = []
        self._recent_base = 0
        self._named_commit = 0
        self.synced: Synced | None = None
        self.at_stride_end: Callable[[int, int], None] | None = None
        """Called with (index, term) when an entry is appended that ends a stride of the hash chain."""
        self.uncommitted_bytes = 0
        self.home = home
        self.identity = identity
        self.is_alone = is_alone
        self.offsets = array("I")
        self.terms = array("Q")
        self.segments: list[Segment] = []
        self.base_index = 0
        self.base_term = 0
        self.base_timestamp_ms = 0
        self.base_chain = GENESIS
        self.last_timestamp_ms = 0
        self.durable_index = 0
        self.tail_records = 0
        self.torn_bytes = 0
        self.chain = Chain()

    def opened(self) -> None:
        """All fields are filled from disk and synced: entries can be appended."""
        self.durable_index = self._recent_base = self.last_index
        self._append_offset = self.segments[-1].end

    # Reading entries

    @property
    def last_index(self) -> int:
        """The index of the newest entry, synced or not."""
        return self.base_index + len(self.offsets)

    @property
    def last_term(self) -> int:
        """The term of the newest entry."""
        return self.terms[-1] if self.terms else self.base_term

    @property
    def first_in_memory(self) -> int:
        """The first index whose frame is in memory; earlier ones were loaded, or are committed and synced."""
        return self._recent_base + 1

    def term_at(self, index: int) -> int | None:
        """The term of an entry, None if it is older than the snapshot's last entry or not there."""
        place = index - self.base_index - 1
        if place == -1:
            return self.base_term
        return self.terms[place] if 0 <= place < len(self.terms) else None

    def read_chunk(self, from_index: int, to_index: int, bytes_max: int) -> Chunk:
        """Synced entries from `from_index` on, within one segment and not beyond `to_index`.

        About `bytes_max`, but at least one entry.
        """
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
                what = f"entry {from_index + len(found)} was complete before and is not any more"
                raise Corrupt(chunk.path, chunk.start + at, what, RESTORE_HINT)
            found.append(frame)
            at += frame.size
        return found

    def frames_for(self, from_index: int, to_index: int, bytes_max: int) -> bytes:
        """Whole frames for a peer, from `from_index` to at most `to_index`.

        About `bytes_max`, but at least one frame; from memory, or from the file if they are no longer in
        memory.
        """
        base = self._recent_base
        if from_index <= base:
            return self.read_chunk(from_index, min(to_index, base), bytes_max).data
        start, stop, room = from_index - base - 1, min(to_index - base, len(self._recent)), bytes_max
        end = start
        while end < stop and room > 0:
            room -= len(self._recent[end])
            end += 1
        return b"".join(self._recent[start:end])

    # Appending

    @property
    def has_room(self) -> bool:
        """Whether the uncommitted bytes are below their bound."""
        return self.uncommitted_bytes < self.settings.uncommitted_bytes_max

    def append(self, term: int, commit_index: int, timestamp_ms: int, count: int, body: bytes) -> int:
        """Queue an entry for the next group; returns its index.  Raises LogFull when it is too large."""
        if len(body) > self.settings.entry_bytes_max:
            raise LogFull(f"an entry of {len(body)} bytes is larger than entry_bytes_max")
        index = self.last_index + 1
        if term < self.last_term or timestamp_ms < self.last_timestamp_ms:
            raise AssertionError(f"term {term} or time {timestamp_ms} of entry {index} is lower than before")
        frame = encode_frame(index, term, commit_index, timestamp_ms, count, body)
        self._queue(frame, index, term, commit_index, timestamp_ms, count)
        return index

    def append_frames(self, data: bytes) -> int:
        """Queue the leader's frames, which follow the last entry, byte for byte; returns the new last index.

        All or nothing: raises Corrupt if any part is not the next whole frame.
        """
        for received in check_frames(data, self.last_index, self.last_term, self.last_timestamp_ms):
            self._queue(*received)
        return self.last_index

    def _queue(
        self, frame: bytes, index: int, term: int, commit_index: int, timestamp_ms: int, count: int
    ) -> None:
        """Take a frame of `count` records, the next one."""
        self.offsets.append(self._append_offset)
        self.terms.append(term)
        self._recent.append(frame)
        self._append_offset += len(frame)
        self.uncommitted_bytes += len(frame)
        self.last_timestamp_ms = timestamp_ms
        self.tail_records += count
        if commit_index > self._named_commit:
            self._named_commit = commit_index
        if not index % CHAIN_STRIDE:
            self._stride_ended(index, term)

    def _stride_ended(self, index: int, term: int) -> None:
        if self._append_offset >= self.settings.segment_bytes:
            self.cut_here()
        if self.at_stride_end is not None:
            self.at_stride_end(index, term)

    def cut_here(self) -> None:
        """End the segment with the newest entry, which must end a stride of the hash chain."""
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
        """Whether a group is in flight."""
        return self._flush is not None

    @property
    def is_dirty(self) -> bool:
        """Whether entries are queued that are in no group yet, or a segment is due to end."""
        return self._flush is None and (self.last_index > self.durable_index or bool(self._cuts))

    @property
    def is_mark_behind(self) -> bool:
        """Whether more is synced than the mark `synced` claims, and a group may begin to raise it."""
        if self._flush is not None or self._is_held or self.synced is None:
            return False
        return self.synced.index < self.durable_index

    def hold(self) -> bool:
        """Begin no group until `adopt_snapshot` or `release`: a snapshot is about to replace this log.

        Returns False while a group is in flight or due; the caller tries again later.
        """
        self._is_held = self._flush is None and not self.is_dirty
        return self._is_held

    def release(self) -> None:
        """Resume groups: the log was not replaced after all."""
        self._is_held = False

    def begin_flush(self, *, with_mark: bool = True) -> Callable[[], None]:
        """Make the next group: the work that writes and syncs it, then writes the mark (`with_mark`).

        Not while a group is in flight; if no entry is queued, the work only writes the mark.  All frames of a
        group begin within `flush_bytes_max`; within `LAGGING_GROUP_BYTES` while the leader is known to have
        committed entries that are not synced here.
        """
        assert self._flush is None
        assert not self._is_held
        settings, recent = self.settings, self._recent
        start = self.durable_index - self._recent_base
        stop = self._cuts[0] - self._recent_base if self._cuts else len(recent)
        is_lagging = self._named_commit > self.durable_index
        room = min(settings.flush_bytes_max, LAGGING_GROUP_BYTES) if is_lagging else settings.flush_bytes_max
        end = start
        while end < stop and room > 0:
            room -= len(recent[end])
            end += 1
        count, group = end - start, b"".join(recent[start:end])
        last = self.durable_index + count
        flush = _Flush(last, count, len(group), bool(self._cuts) and self._cuts[0] == last)
        self._flush = flush
        segment, synced = self.segments[-1], self.synced
        assert synced is not None
        if count and self.offsets[self.durable_index - self.base_index] != segment.end:
            raise AssertionError(
                f"entry {self.durable_index + 1} was assigned another offset than {segment.end}"
            )

        def work() -> None:
            if group:
                segment.file.pwrite(group, segment.end)
                segment.file.fdatasync()
            if with_mark:
                synced.note(last)
            if flush.cuts:
                first = flush.last_index + 1
                path = create_segment(self._files, self.home, self.identity, first)
                flush.made = Segment(first, path, self._files.open(path, "w"), self._header_bytes)

        return work

    def end_flush(self) -> None:
        """Note that the group in flight is durable."""
        flush = self._flush
        assert flush is not None
        self._flush = None
        self.segments[-1].end += flush.num_bytes
        self.durable_index = flush.last_index
        if flush.made is not None:
            self._cuts.popleft()
            self.segments.append(flush.made)
        if self.chain.index > self._recent_base:
            self._let_go()

    # Committing

    def take_committed(self, index: int, visit: Visit | None = None) -> None:
        """Pass each entry up to `index`, all committed and in memory, to `visit`, then chain it.

        Entries that were loaded and never in memory (before `first_in_memory`) must be in the chain already.
        """
        chain, base = self.chain, self._recent_base
        before = chain.index
        if index <= before:
            return
        if before < base:
            raise AssertionError(f"entries from {before + 1} to {base} are not in the chain yet")
        for frame in self._recent[before - base : index - base]:
            if visit is not None:
                _, _, _, _, its_index, term, _, timestamp_ms = HEADER.unpack_from(frame)
                visit(its_index, term, timestamp_ms, frame[HEADER_BYTES:])
            chain.add(frame, chain.index + 1)
        self._let_go()

    def _let_go(self) -> None:
        """Free the memory of frames that are committed and synced."""
        last = min(self.chain.index, self.durable_index)
        count = last - self._recent_base
        if count > 0:
            self.uncommitted_bytes -= sum(map(len, self._recent[:count]))
            del self._recent[:count]
            self._recent_base = last

    # Removing a tail that another leader's entries replace

    def truncate_after(self, index: int) -> None:
        """Remove the entries after `index`, durably before this returns; none of them may be committed.

        Not while a group is in flight.  At every moment in between the files hold a prefix of the old log:
        the mark of what was synced is lowered first; then later segments are removed one by one, the newest
        first, each durably; then the last one is cut.
        """
        assert self._flush is None
        assert not self._is_held
        if index >= self.last_index:
            return
        if index < max(self.chain.index, self.base_index):
            raise AssertionError(
                f"entry {self.chain.index} is committed: the log cannot be truncated after entry {index}"
            )
        self.tail_records -= self._records_behind(index)
        self.last_timestamp_ms = self.timestamp_at(index)
        place = index - self.base_index
        self._append_offset = self.offsets[place]
        if index < self.durable_index:
            self._cut_files(index)
        while self._cuts and self._cuts[-1] > index:
            self._cuts.pop()
        kept = max(0, index - self._recent_base)
        self.uncommitted_bytes -= sum(map(len, self._recent[kept:]))
        del self.offsets[place:], self.terms[place:], self._recent[kept:]
        self._recent_base = min(self._recent_base, index)

    def _cut_files(self, index: int) -> None:
        assert self.synced is not None
        self.synced.settle(index)
        while self.segments[-1].first_index > index + 1:
            segment = self.segments.pop()
            segment.file.close()
            self._files.unlink(segment.path)
            self._files.fsync_dir(self.home)
        last = self.segments[-1]
        last.end = self._append_offset
        last.file.truncate(last.end)
        last.file.fdatasync()
        self.durable_index = index

    def _records_behind(self, index: int) -> int:
        count, at = 0, index
        while at < self._recent_base:
            data = self.read_chunk(at + 1, self._recent_base, _COUNTED_BYTES).data
            place = 0
            while place < len(data):
                _, _, length, records, at, _, _, _ = HEADER.unpack_from(data, place)
                count += records
                place += HEADER_BYTES + length
        for frame in self._recent[at - self._recent_base :]:
            count += HEADER.unpack_from(frame)[3]
        return count

    def timestamp_at(self, index: int) -> int:
        """The timestamp in ms of an entry from the snapshot's last one on."""
        if index == self.base_index:
            return self.base_timestamp_ms
        if index > self._recent_base:
            head = self._recent[index - self._recent_base - 1]
        else:
            segment = self.segments[bisect_right(self.segments, index, key=_first_index) - 1]
            head = segment.file.pread(HEADER_BYTES, self.offsets[index - self.base_index - 1])
        timestamp_ms: int = HEADER.unpack_from(head)[7]
        return timestamp_ms

    # After a snapshot

    def drop_below(self, index: int, timestamp_ms: int, chain: bytes, records: int) -> list[Segment]:
        """Drop the entries up to `index`, which a snapshot covers; returns their segments, closed.

        `timestamp_ms` and `chain` belong to the entry `index`; `records` is the number of records dropped.
        """
        keep = bisect_right(self.segments, index + 1, key=_first_index) - 1
        dropped, self.segments = self.segments[:keep], self.segments[keep:]
        count = index - self.base_index
        term = self.terms[count - 1]
        del self.offsets[:count], self.terms[:count]
        self.base_index, self.base_term = index, term
        self.base_timestamp_ms, self.base_chain = timestamp_ms, chain
        self.tail_records -= records
        for segment in dropped:
            segment.file.close()
        return dropped

    def adopt_snapshot(self, header: SnapshotHeader) -> None:
        """Start over after a snapshot from the leader that is in place (`SnapshotSink.finish`).

        For a log that does not hold the snapshot's last entry (`term_at`): its entries are older or were
        replaced. Only after `hold`, and nothing may have been appended since.
        """
        assert self._is_held
        assert not self.is_dirty
        index = header.last_index
        if self.term_at(index) == header.last_term or index < self.chain.index:
            raise AssertionError(f"the log holds entry {index} already: its tail must not be dropped")
        for segment in self.segments:
            segment.file.close()
        path = reset_log(self._files, self.home, header)
        file = self._files.open(path, "w")
        self.segments = [Segment(index + 1, path, file, self._header_bytes)]
        del self.offsets[:], self.terms[:], self._recent[:]
        self._cuts.clear()
        self.base_index = self.durable_index = self._recent_base = index
        self.base_term = header.last_term
        self.base_timestamp_ms = self.last_timestamp_ms = header.last_timestamp_ms
        self.base_chain = header.chain_hash
        self.chain = Chain(index, header.chain_hash)
        self._append_offset = self._header_bytes
        self.tail_records = self.uncommitted_bytes = 0
        self._is_held = False

    def close(self) -> None:
        """Close the files; nothing is synced here."""
        for segment in self.segments:
            segment.file.close()
        self.segments = []
        if self.synced is not None:
            self.synced.close()
            self.synced = None


def _first_index(segment: Segment) -> int:
    return segment.first_index
