"""Reading a node's directory offline: never writes; works on copies, damaged directories and ones in use.

A log is its archive, its sealed segments and its active one, in the order of their first indexes.  A reader
may find that a file has just been moved to the archive (it looks there then) and a tail that is being written
(it stops before the first frame that is not whole).

Decided entries: with one node alone, all whole ones; otherwise everything up to the highest commit index that
a frame, a sealed segment, the snapshot or the marker of a clean stop names.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

from raftlog.env.errors import RESTORE_HINT, Damaged, Problem, Torn
from raftlog.env.files import Files, join
from raftlog.env.object_stores import files_at
from raftlog.env.state_machine import SnapshotHeader
from raftlog.offline.group_filter import GroupFilter, Looked, Passed, indexed_frames
from raftlog.offline.verify import verify_shard
from raftlog.storage import evidence
from raftlog.storage.archive import ARCHIVE, read_segment
from raftlog.storage.directory import NODE_FILE, NodeIdentity, shard_name
from raftlog.storage.directory import read_identity as _read_identity
from raftlog.storage.frames import HEADER_BYTES, Frame, frame_at, read_frame
from raftlog.storage.loader import CLEAN_FILE, CLEAN_KIND
from raftlog.storage.metafile import read_meta
from raftlog.storage.retained_snapshots import header_of, kept_indexes, kept_path
from raftlog.storage.segments import (
    HEADER_BYTES_MAX,
    decode_header,
    index_name,
    log_name,
    next_frame,
    proof_of_loss,
)
from raftlog.storage.shipped_mark import place_mark
from raftlog.storage.snapshot_install import valid_segments
from raftlog.storage.snapshots import SNAPSHOT_FILE, SnapshotFile
from records import METADATA_SHARD, RawRecord

__all__ = ["Damaged", "Problem", "ShardReader", "Snapshot", "read_identity", "shards"]

_SHARD_NAME = re.compile(r"shard-(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot as read back; records in the order of their last writes."""

    header: SnapshotHeader
    records: Sequence[RawRecord]


def read_identity(path: str | os.PathLike[str], files: Files | None = None) -> NodeIdentity:
    """The identity of a node's directory; raises Damaged, also when the identity is missing."""
    files = files_at(path) if files is None else files
    home = os.fspath(path)
    if not files.exists(join(home, NODE_FILE)):
        raise Damaged(join(home, NODE_FILE), 0, "is missing", "give a node's directory")
    return _read_identity(files, home)


def shards(path: str | os.PathLike[str], files: Files | None = None) -> list[int]:
    """The numbers of the shards whose directories exist, ascending (the metadata shard is -1)."""
    files = files_at(path) if files is None else files
    found = []
    for name in files.listdir(os.fspath(path)):
        if name == shard_name(METADATA_SHARD):
            found.append(METADATA_SHARD)
        elif number := _SHARD_NAME.fullmatch(name):
            found.append(int(number[1]))
    return sorted(found)


class ShardReader:
    """One shard of the node's directory `path`.

    `alone`: this directory is the whole cluster, so that every whole entry in it is decided; None: taken from
    its identity (without one it is assumed to be alone; with a damaged one, not).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        shard: int,
        files: Files | None = None,
        *,
        alone: bool | None = None,
    ) -> None:
        self.files: Files = files_at(path) if files is None else files
        self.node_path = os.fspath(path)
        self.shard = shard
        self.home = join(self.node_path, shard_name(shard))
        self._alone = alone

    @property
    def is_alone(self) -> bool:
        """Whether this directory is the whole cluster."""
        if self._alone is not None:
            return self._alone
        if not self.files.exists(join(self.node_path, NODE_FILE)):
            return True
        try:
            return _read_identity(self.files, self.node_path).is_alone
        except Damaged:
            return False

    def frames(self, from_index: int | None = None, to_index: int | None = None) -> Iterator[Frame]:
        """Entries in order, from the oldest one kept, `from_index` and `to_index` included.

        Raises Damaged where an entry in between cannot be read, and Torn where one that is known to be
        committed is missing at the end.  Entries before `from_index` are not checked, so a caller can
        continue after the damage.
        """
        return cast(Iterator[Frame], self._walk(from_index or 0, to_index, None))

    def frames_about(
        self,
        group_ids: Collection[str],
        from_index: int | None = None,
        to_index: int | None = None,
        to_ms: int | None = None,
    ) -> Iterator[Frame | Passed]:
        """Like `frames`, but entries of other groups are passed over, read or not
        (`raftlog.offline.group_filter`).

        Every decided entry of these groups and every start of a term comes as a `Frame`.
        """
        return self._walk(
            from_index or 0, to_index, Looked(group_ids=group_ids, to_index=to_index, to_ms=to_ms)
        )

    def decided_to(self) -> int | None:
        """The last entry that is decided; None: all are."""
        return None if self.is_alone else self.highest_commit()

    def _walk(self, wanted: int, to_index: int | None, looked: Looked | None) -> Iterator[Frame | Passed]:
        decided_to = self.decided_to()
        looked = None if looked is None else replace(looked, decided_to=decided_to)
        firsts = valid_segments(self.files, self.home)
        expected = 0
        for place, first in enumerate(firsts):
            following = firsts[place + 1] if place + 1 < len(firsts) else None
            if following is not None and following <= wanted:
                continue
            if to_index is not None and first > to_index:
                return
            if expected and first > max(expected, wanted):
                raise self._missing(first, max(expected, wanted))
            for item in self._segment(first, following, wanted, decided_to, looked):
                if type(item) is Frame:
                    index = item.index
                    if index >= wanted and (to_index is None or index <= to_index):
                        yield item
                    if to_index is not None and index >= to_index:
                        return
                else:
                    assert isinstance(item, Passed)
                    index = item.last_index
                    if index >= wanted:
                        yield Passed(max(item.first_index, wanted), index, item.timestamp_ms)
                expected = index + 1
            if following is not None and expected < following and following > wanted:
                path = join(self.home, log_name(first))
                raise Damaged(
                    path, 0, f"ends with entry {expected - 1}, the next file begins with {following}"
                )

    def _missing(self, first: int, expected: int) -> Damaged:
        path = join(self.home, log_name(first))
        return Damaged(
            path, 0, f"begins with entry {first}, but entries from {expected} on are missing before it"
        )

    def _segment(
        self, first: int, following: int | None, wanted: int, decided_to: int | None, looked: Looked | None
    ) -> Iterator[Frame | Passed]:
        """The entries of one segment, through its index if that is enough."""
        if looked is not None and first >= wanted:
            indexed = indexed_frames(self.files, self.home, first, looked)
            if indexed is not None:
                yield from indexed
                return
        path, data = read_segment(self.files, self.home, first)
        view = memoryview(data)
        at = decode_header(view[:HEADER_BYTES_MAX], path).frames_offset
        expected = first
        passing = None if looked is None else GroupFilter(data, looked)
        while at < len(data):
            if passing is not None:
                passed, at = passing.by(at, expected)
                if passed is not None:
                    yield passed
                    expected = passed.last_index + 1
                    continue
            frame = read_frame(view, at, path, at, decided_to)
            if frame is None or frame.index != expected:
                again = self._behind_damage(path, data, at, expected, wanted, is_last=following is None)
                if again is None:
                    break
                at, expected = again
                continue
            yield frame
            at += HEADER_BYTES + len(frame.body)
            expected += 1
        if following is None and decided_to is not None and expected <= decided_to:
            raise Torn(path, at, f"no complete frame where entry {expected} should be", RESTORE_HINT)

    def _behind_damage(
        self, path: str, data: bytes, at: int, expected: int, wanted: int, *, is_last: bool
    ) -> tuple[int, int] | None:
        """The place to continue when there is no whole frame `expected` at `at`.

        (offset, index) of the next one if the lost ones are not wanted, None at a torn tail; raises Damaged
        otherwise.
        """
        if expected < wanted and (found := next_frame(data, at + 1, expected)) is not None:
            if found[1] <= wanted:
                return found
        elif is_last and self._may_be_torn(data[at:], expected):
            return None
        what = f"no complete frame where entry {max(expected, wanted)} should be"
        raise Damaged(path, at, what, "`log verify` lists all damage")

    def _may_be_torn(self, rest: bytes, index: int) -> bool:
        return proof_of_loss(rest, index, is_alone=self.is_alone) is None

    def snapshots(self) -> list[SnapshotHeader]:
        """The headers of the kept and the newest snapshots by ascending index; damaged ones are left out."""
        paths = [kept_path(self.home, one) for one in kept_indexes(self.files, self.home)]
        paths.append(join(self.home, SNAPSHOT_FILE))
        found = {one.last_index: one for path in paths if (one := header_of(self.files, path)) is not None}
        return [found[index] for index in sorted(found)]

    def snapshot(self, last_index: int | None = None) -> Snapshot | None:
        """The newest snapshot with its records, or the one that ends with `last_index`; None if absent.

        Raises Damaged.
        """
        newest = join(self.home, SNAPSHOT_FILE)
        if last_index is None:
            return self._read_snapshot(newest)
        header = header_of(self.files, newest)
        if header is not None and header.last_index == last_index:
            return self._read_snapshot(newest)
        return self._read_snapshot(kept_path(self.home, last_index))

    def _read_snapshot(self, path: str) -> Snapshot | None:
        try:
            file = SnapshotFile(self.files, path)
        except FileNotFoundError:
            return None
        try:
            records = [record for _, block in file.blocks() for record in block]
        finally:
            file.close()
        return Snapshot(header=file.header, records=records)

    def highest_commit(self) -> int:
        """The highest index that these files alone prove to be committed.

        Only intact parts count, so damage can only lower it.  Raises Damaged when the snapshot or the marker
        of a clean stop is damaged.
        """
        mark = place_mark(self.files, self.node_path)
        highest = 0 if mark is None else mark.decided.get(self.shard, 0)
        clean, snapshot = join(self.home, CLEAN_FILE), join(self.home, SNAPSHOT_FILE)
        if self.files.exists(clean):  # the oldest releases did not write a commit index
            _, _, chain_index, _, *commit_index = read_meta(self.files, clean, CLEAN_KIND)
            highest = max(chain_index, *commit_index[:1], 0)
        if self.files.exists(snapshot):
            file = SnapshotFile(self.files, snapshot)
            file.close()
            highest = max(highest, file.header.last_index)
        for first, following in pairwise([*valid_segments(self.files, self.home), None]):
            assert first is not None
            if following is not None and self._is_sealed(first):
                highest = max(highest, following - 1)
            else:
                highest = max(highest, self._named_commit(first))
        return highest

    def _named_commit(self, first: int) -> int:
        """The highest commit index that a whole frame of a segment names, also after damage."""
        path, data = read_segment(self.files, self.home, first)
        view = memoryview(data)
        highest, index, at = 0, first - 1, 0
        with contextlib.suppress(Damaged):
            at = decode_header(view[:HEADER_BYTES_MAX], path).frames_offset
        while at < len(data):
            found = frame_at(view, at)
            if found is None or found[1] <= index:
                again = next_frame(data, at + 1, index)
                if again is None:
                    break
                at = again[0]
                continue
            at, index, highest = found[0], found[1], max(highest, found[3])
        return highest

    def _is_sealed(self, first: int) -> bool:
        """Whether a segment has an index; only segments whose entries are all committed get one."""
        live = join(self.home, index_name(first))
        return self.files.exists(live) or self.files.exists(join(self.home, ARCHIVE, index_name(first)))

    def verify(self) -> list[Problem]:
        """Every deviation from what was written; [] when all is well."""
        return verify_shard(self.files, self.node_path, self.shard)

    def evidence(self, group_id: str | None = None) -> list[dict[str, Any]]:
        """The node's notes beside its log, of all shards (or of one group), oldest first."""
        notes = evidence.read_evidence(self.files, self.node_path)
        return notes if group_id is None else [note for note in notes if note.get("group") == group_id]
