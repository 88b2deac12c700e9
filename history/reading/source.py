"""A node's directory for the readers of history: shards, entries in order, and what an answer rests on.

The directory may belong to a running node, be a copy, hold one shard only, or be damaged. Nothing here writes
to it. Where entries are missing, the walk yields a `LogGap` in their place and goes on with what is sound.
After a gap a projection can only be trusted from a snapshot on, so each gap names the snapshot that bridges
it, if any. Entries not known to be committed (*undecided*) are left out unless requested, because they may be
overwritten.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from history.render import TimeStyle
from history.words import shard_name
from raftlog.env.errors import Torn
from raftlog.env.state_machine import SnapshotHeader
from raftlog.offline.group_filter import GROUPS_MAX, Passed
from raftlog.offline.reader import Damaged, Problem
from raftlog.storage.frames import Frame
from records import RawRecord

SNAPSHOT_LOOKS_MAX = 5
"""Attempts to read a snapshot. Each time one disappears, a newer one has replaced it."""


class NothingToRead(Exception):
    """The requested directory, shard, group or index does not exist; the message says what is expected."""


class SnapshotLike(Protocol):
    """A snapshot as read back: its header, and its records in the order of their last writes."""

    @property
    def header(self) -> SnapshotHeader: ...

    @property
    def records(self) -> Sequence[RawRecord]: ...


class Reader(Protocol):
    """One shard's files (`raftlog.offline.reader.ShardReader`, or a log in memory in tests)."""

    @property
    def node(self) -> str:
        """The node that the shard is read from (``node 2``); empty if there is only one."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Limitations of every answer besides missing entries, in words, such as an unreachable node."""

    def frames(self, from_index: int | None = None, to_index: int | None = None) -> Iterator[Frame]: ...

    def snapshots(self) -> Sequence[SnapshotHeader]:
        """The headers of all sound snapshots, by rising index."""

    def snapshot(self, last_index: int | None = None) -> SnapshotLike | None:
        """The newest snapshot, or the one that ends at ``last_index``; raises `Damaged`."""

    def verify(self) -> list[Problem]: ...

    def evidence(self, group_id: str | None = None) -> list[dict[str, Any]]:
        """The node's notes outside its log, oldest first; of one group if it is given."""

    def next_readable(self, missing: int) -> int | None:
        """The first index from which reading can continue after the unreadable entry ``missing``."""


@runtime_checkable
class PassingReader(Protocol):
    """A reader that can skip the entries of other groups without reading them."""

    def frames_about(
        self,
        group_ids: Collection[str],
        from_index: int | None = None,
        to_index: int | None = None,
        to_ms: int | None = None,
    ) -> Iterator[Frame | Passed]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGap:
    """Entries that cannot be read, and how the walk continues.

    ``bridged_by`` is the index of the snapshot that replaces them; ``None``: there is none, and the walk
    ends.
    """

    after_index: int
    bridged_by: int | None
    goes_on_at: int | None = None
    """The index at which a stateless walk continues."""
    file: str
    offset: int
    what: str

    def words(self) -> str:
        place = f" ({self.file} at byte {self.offset})" if self.file else ""
        lost = f"entries after index {self.after_index} cannot be read: {self.what}{place}"
        if self.goes_on_at is not None:
            return lost + f"; continues at index {self.goes_on_at}"
        if self.bridged_by is None:
            return lost + "; nothing after them is used"
        return lost + f"; the snapshot of index {self.bridged_by} replaces them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The basis of an answer: what was read, and what is missing."""

    shard: int
    node: str = ""
    """The node whose files were read, if several were given."""
    snapshot_index: int | None
    """The snapshot that the walk began with; ``None``: it began with an empty shard."""
    first_index: int | None
    last_index: int | None
    last_timestamp_ms: int
    gaps: tuple[LogGap, ...]
    undecided: int
    """Number of whole entries at the end that are not known to be committed; they are left out."""
    begins_index: int | None = None
    begins_ms: int = -1
    """Index and time of the oldest entry kept, set if nothing is as old as what was asked for."""
    remarks: tuple[str, ...] = ()
    """Other limitations of the answer, in words: unreachable nodes, missing directories."""

    @property
    def whole(self) -> bool:
        """Whether every entry from the first one on was read."""
        return self.snapshot_index is None and not self.gaps

    def demand(self, *indexes: int | None) -> None:
        """Raise `NothingToRead`, saying what exists, if one of the indexes is after the last entry."""
        last = self.last_index or self.snapshot_index or 0
        for index in indexes:
            if index is not None and index > last:
                raise NothingToRead(f"index {index} does not exist, the last one is {last} ({self.words()})")

    def later_than_read(self, at_ms: int | None, style: TimeStyle) -> Iterator[str]:
        """Remark on a time after the last entry: an idle group writes nothing, and a copy ends somewhere."""
        if at_ms is not None and at_ms > self.last_timestamp_ms:
            yield (
                f"the last entry was written at {style.full(self.last_timestamp_ms)}, and the answer "
                "describes that moment"
            )

    def words(self) -> str:
        shard = shard_name(self.shard) + (f" of {self.node}" if self.node else "")
        parts = []
        if self.snapshot_index is not None:
            parts.append(f"the snapshot of index {self.snapshot_index}")
        if self.first_index is not None:
            parts.append(f"entries {self.first_index} to {self.last_index}")
        said = f"{shard}: " + (" and ".join(parts) or "no entries")
        if self.whole and self.first_index is not None:
            said += ", nothing missing"
        for gap in self.gaps:
            said += f"; {gap.words()}"
        if self.undecided:
            said += f"; {self.undecided} undecided at the end left out"
        return "; ".join((said, *self.remarks))


class Walk:
    """Iterates over the entries of one shard in order, bridging damage; then `basis` says what was read.

    Yields `Frame`, `LogGap`, and the snapshot to load, which comes first or after a bridged gap. With
    ``from_snapshot`` the walk begins at the newest snapshot at or before its end, the fastest way to a state.
    Otherwise it begins at the oldest entry kept, the way to a history.

    A ``stateless`` walk is for readers that need no state: it continues right after damage and loads no
    snapshot. With ``torn_is_end``, bytes torn by a crash at the end are not a gap, because the other nodes
    have the entry.
    """

    def __init__(
        self,
        shard: int,
        reader: Reader,
        *,
        from_index: int | None = None,
        to_index: int | None = None,
        to_ms: int | None = None,
        from_snapshot: bool = False,
        stateless: bool = False,
        with_undecided: bool = False,
        torn_is_end: bool = False,
    ) -> None:
        self._shard = shard
        self._reader = reader
        self._from_index = from_index or 1
        self._to_index = to_index
        self._to_ms = to_ms
        self._from_snapshot = from_snapshot
        self._stateless = stateless
        self._with_undecided = with_undecided
        self._torn_is_end = torn_is_end
        self._snapshot_index: int | None = None
        self._first: int | None = None
        self._last: int | None = None
        self._last_ms = -1
        self._gaps: list[LogGap] = []
        self._undecided = 0
        self._too_new: Frame | None = None

    @property
    def basis(self) -> Basis:
        begins = self._too_new if self._last_ms < 0 else None
        return Basis(
            shard=self._shard,
            node=self._reader.node,
            snapshot_index=self._snapshot_index,
            first_index=self._first,
            last_index=self._last,
            last_timestamp_ms=self._last_ms,
            gaps=tuple(self._gaps),
            undecided=self._undecided,
            begins_index=None if begins is None else begins.index,
            begins_ms=-1 if begins is None else begins.timestamp_ms,
            remarks=self._reader.remarks,
        )

    def __iter__(self) -> Iterator[Frame | LogGap | SnapshotLike]:
        return cast(Iterator[Frame | LogGap | SnapshotLike], self._run(None))

    def about(self, group_ids: Collection[str]) -> Iterator[Frame | LogGap | SnapshotLike | Passed]:
        """The same walk for readers of some groups only.

        If the reader can, it skips entries of other groups; bytes that are not read are not checked
        (`raftlog.offline.group_filter`).
        """
        is_worth_it = isinstance(self._reader, PassingReader) and len(group_ids) <= GROUPS_MAX
        return self._run(group_ids if is_worth_it else None)

    def _run(self, about: Collection[str] | None) -> Iterator[Frame | LogGap | SnapshotLike | Passed]:
        next_index = self._from_index
        if self._from_snapshot and (snapshot := self._newest_snapshot(next_index)) is not None:
            self._snapshot_index = snapshot.header.last_index
            next_index = self._after(snapshot)
            yield snapshot
        while True:
            try:
                yield from self._frames(next_index, about)
                return
            except _Broken as broken:
                missing = broken.expected
                bridge = None if self._stateless else self._first_snapshot(missing)
                goes_on = self._reader.next_readable(missing) if self._stateless else None
                self._gaps.append(broken.gap(bridge, goes_on))
            yield self._gaps[-1]
            if bridge is not None:
                next_index = self._after(bridge)
                yield bridge
            elif goes_on is not None and (self._to_index is None or goes_on <= self._to_index):
                next_index = goes_on
            else:
                return

    def _after(self, snapshot: SnapshotLike) -> int:
        self._last_ms = max(self._last_ms, snapshot.header.last_timestamp_ms)
        return snapshot.header.last_index + 1

    def _frames(self, from_index: int, about: Collection[str] | None) -> Iterator[Frame | Passed]:
        """Yield frames from an index up to the end of the walk; raises `_Broken` if one is missing."""
        expected = from_index
        frames: Iterator[Frame | Passed]
        if about is not None and isinstance(self._reader, PassingReader):
            frames = self._reader.frames_about(about, from_index, self._to_index, self._to_ms)
        else:
            frames = self._reader.frames(from_index, self._to_index)
        while True:
            try:
                frame = next(frames, None)
            except Damaged as damage:
                if self._torn_is_end and isinstance(damage, Torn):
                    return
                raise _Broken(expected, damage.file, damage.offset, damage.what) from None
            if frame is None:
                return
            if type(frame) is Passed:
                if frame.first_index != expected:
                    raise _Broken(expected, "", 0, _not_kept(expected, frame.first_index))
                if self._first is None:
                    self._first = expected
                self._last = frame.last_index
                self._last_ms = max(self._last_ms, frame.timestamp_ms)
                expected = frame.last_index + 1
                yield frame
                continue
            assert isinstance(frame, Frame)
            is_too_new = self._to_ms is not None and frame.timestamp_ms > self._to_ms
            if is_too_new:
                self._too_new = frame
            if frame.index != expected:
                raise _Broken(expected, "", 0, _not_kept(expected, frame.index))
            if is_too_new:
                return
            if not frame.decided:
                self._undecided += 1
                if not self._with_undecided:
                    expected += 1
                    continue
            expected += 1
            if self._first is None:
                self._first = frame.index
            self._last, self._last_ms = frame.index, frame.timestamp_ms
            yield frame

    def _newest_snapshot(self, from_index: int) -> SnapshotLike | None:
        """The sound snapshot nearest to the end of the walk that is not before ``from_index``."""
        return self._read_one(from_index, newest_first=True)

    def _first_snapshot(self, from_index: int) -> SnapshotLike | None:
        """The first sound snapshot within the walk that covers entry ``from_index``."""
        return self._read_one(from_index, newest_first=False)

    def _snapshots_within(self, from_index: int) -> list[int]:
        return [
            header.last_index
            for header in self._reader.snapshots()
            if header.last_index >= from_index
            and (self._to_index is None or header.last_index <= self._to_index)
            and (self._to_ms is None or header.last_timestamp_ms <= self._to_ms)
        ]

    def _read_one(self, from_index: int, *, newest_first: bool) -> SnapshotLike | None:
        """Read one snapshot; a running node may replace snapshots after they were listed, so list again."""
        seen: list[int] | None = None
        for _ in range(SNAPSHOT_LOOKS_MAX):
            indexes = self._snapshots_within(from_index)
            if indexes == seen:
                return None
            for index in reversed(indexes) if newest_first else indexes:
                with contextlib.suppress(Damaged):
                    if (snapshot := self._reader.snapshot(index)) is not None:
                        return snapshot
            seen = indexes
        return None


def _not_kept(expected: int, found: int) -> str:
    return f"entries {expected} to {found - 1} are not kept here"


class _Broken(Exception):
    """Entry ``expected`` is missing or unreadable."""

    def __init__(self, expected: int, file: str, offset: int, what: str) -> None:
        self.expected = expected
        self.file = file
        self.offset = offset
        self.what = what

    def gap(self, bridge: SnapshotLike | None, goes_on: int | None) -> LogGap:
        return LogGap(
            after_index=self.expected - 1,
            bridged_by=None if bridge is None else bridge.header.last_index,
            goes_on_at=goes_on,
            file=self.file,
            offset=self.offset,
            what=self.what,
        )
