"""One node's directory, opened for reading: its shards, and the shard of each group.

Readers of history call `opening.open_node`, which also takes the folder of a whole cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from history.words import shard_name
from raftlog.env.files import Files, join
from raftlog.env.object_stores import UnknownStore, files_at, local_path
from raftlog.offline.reader import Damaged, Problem, ShardReader, read_identity
from raftlog.offline.reader import shards as shards_in
from raftlog.storage.archive import all_segments, read_segment
from raftlog.storage.directory import NODE_FILE, NodeIdentity
from raftlog.storage.frames import Frame, frame_at
from raftlog.storage.segments import next_frame
from raftlog.storage.shipped_mark import PLACE_FILE
from raftlog.storage.snapshots import SNAPSHOT_FILE, SnapshotFile
from records import RecordsError, iter_records
from records.ids import METADATA_SHARD, shard_of

from .catalog import CatalogHistory
from .source import LogGap, NothingToRead, Reader, Walk

EXPECTED = (
    "expected the data directory of one node (a file named node, and a folder per shard: metadata, shard-0,"
    " shard-1, ...) or the folder that holds those of a cluster (node-1, node-2, ...)"
)

SHIPPED = (
    "a node shipped this here: its sealed segments, and the metadata shard and notes up to some minutes ago; "
    "newer entries, its boots, terms and newest snapshot are on the node only"
)


@dataclass(frozen=True, slots=True)
class NodeLog:
    """The shards of one directory.

    ``num_shards`` is the cluster's number of group shards, if the directory says it. ``problems`` are those
    that belong to no shard; ``notes`` are not problems, but limit an answer.
    """

    path: str
    readers: Mapping[int, Reader]
    num_shards: int | None = None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    is_shipped: bool = False
    """Whether a node shipped the log to this place."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Limitations of every answer, in words."""
        return (*self.notes, *(f"{problem.file}: {problem.what}" for problem in self.problems))

    @property
    def shards(self) -> tuple[int, ...]:
        return tuple(sorted(self.readers))

    def reader(self, shard: int) -> Reader:
        if shard not in self.readers:
            held = ", ".join(shard_name(number) for number in self.shards)
            raise NothingToRead(f"{self.path} does not hold {shard_name(shard)}: it has {held}")
        return self.readers[shard]

    def shard_of_group(self, group_id: str) -> int:
        """The shard that holds a group's records; raises `NothingToRead` if it cannot be determined."""
        if self.num_shards is not None:
            try:
                return shard_of(group_id, self.num_shards)
            except UnicodeEncodeError:
                raise NothingToRead(f"there is no group {group_id!r}: group ids are UTF-8") from None
        held = [shard for shard in self.shards if shard != METADATA_SHARD]
        if len(held) == 1:
            return held[0]
        raise NothingToRead(
            f"{self.path} does not contain the cluster's number of shards, so the shard of group "
            f"{group_id!r} is unknown: give the shard"
        )

    def last_ms(self, shard: int | None = None) -> int:
        """Time of the newest decided entry of a shard, or of all shards; -1: there is none."""
        wanted = self.shards if shard is None else (shard,)
        return max((self.end_of(number)[0] for number in wanted), default=-1)

    def end_of(self, shard: int) -> tuple[int, LogGap | None]:
        """Time of the newest decided entry that can be read (-1: none), and damage that cuts it there."""
        walk = Walk(shard, self.reader(shard), from_snapshot=True)
        for _ in walk:
            pass
        cut = next((gap for gap in walk.basis.gaps if gap.bridged_by is None), None)
        return walk.basis.last_timestamp_ms, cut

    def first_ms(self, shard: int | None = None) -> int:
        """Time of the oldest entry or snapshot kept of a shard, or of all shards; -1: there is none."""
        wanted = self.shards if shard is None else (shard,)
        known = [at for number in wanted if (at := _first_ms(number, self.reader(number))) >= 0]
        return min(known, default=-1)

    def catalog(self) -> CatalogHistory:
        """The topics according to the metadata shard; empty if the directory does not hold it.

        An entry that cannot be decoded is skipped here and reported by `verify`.
        """
        catalog = CatalogHistory()
        if METADATA_SHARD not in self.readers:
            return catalog
        catalog.present = True
        for item in Walk(METADATA_SHARD, self.reader(METADATA_SHARD)):
            with contextlib.suppress(RecordsError):
                if isinstance(item, Frame):
                    catalog.apply(item.index, item.timestamp_ms, iter_records(item.body))
                elif not isinstance(item, LogGap):
                    header = item.header
                    catalog.apply(header.last_index, header.last_timestamp_ms, item.records)
        return catalog


def _first_ms(shard: int, reader: Reader) -> int:
    for item in Walk(shard, reader):
        if isinstance(item, Frame):
            return item.timestamp_ms
        if not isinstance(item, LogGap):
            return item.header.last_timestamp_ms
    return -1


class ShardFiles(ShardReader):
    """`Reader` over the files of one shard."""

    node = ""
    """The node that the files belong to (``node 2``), if that must be said."""
    remarks: tuple[str, ...] = ()

    def highest_commit(self) -> int:
        """The highest commit index that the files prove; if they are damaged, their readable entries."""
        try:
            return super().highest_commit()
        except Damaged:
            return max(self._named_as_committed(), default=0)

    def _named_as_committed(self) -> Iterator[int]:
        with contextlib.suppress(Damaged, FileNotFoundError):
            file = SnapshotFile(self.files, join(self.home, SNAPSHOT_FILE))
            file.close()
            yield file.header.last_index
        for first in all_segments(self.files, self.home):
            with contextlib.suppress(Damaged):
                _, data = read_segment(self.files, self.home, first)
                view, found = memoryview(data), next_frame(data, 0, 0)
                while found is not None and (frame := frame_at(view, found[0])) is not None:
                    end, index, _, commit_index, _, _ = frame
                    yield commit_index
                    found = next_frame(data, end, index)

    def next_readable(self, missing: int) -> int | None:
        firsts = all_segments(self.files, self.home)
        holding = [first for first in firsts if first <= missing][-1:]
        for first in holding:
            _, data = read_segment(self.files, self.home, first)
            found = next_frame(data, 0, missing)
            if found is not None:
                return found[1]
        return next((first for first in firsts if first > missing), None)


def place_of(path: str) -> tuple[str, Files]:
    """A path or URL as all readers take it, and its files; raises `NothingToRead` if it cannot be one."""
    try:
        return local_path(path), files_at(path)
    except UnknownStore as unknown:
        raise NothingToRead(str(unknown)) from unknown


def open_one(path: str, files: Files | None = None) -> NodeLog:
    """Open a node's directory, which may be a copy or lack some of its shards; never writes to it.

    Raises `NothingToRead`, saying what is expected, if it holds no shard.
    """
    if files is None:
        path, files = place_of(path)
    if not files.is_dir(path):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            files.size(path)  # raises what hides it: a directory above that may not be entered
        what = "does not exist, or its bucket does not" if "://" in path else "is not a directory"
        raise NothingToRead(f"{path} {what}: {EXPECTED}")
    numbers = shards_in(path, files)
    if not numbers:
        raise NothingToRead(f"{path} holds no shard: {EXPECTED}")
    identity: NodeIdentity | None = None
    problems: list[Problem] = []
    notes: list[str] = []
    try:
        if files.exists(join(path, NODE_FILE)):
            identity = read_identity(path, files)
        else:
            notes.append(f"there is no file {NODE_FILE} here: treated as a copy of some shards of a node")
    except Damaged as damage:
        problems.append(
            Problem(file=damage.file, offset=damage.offset, index=None, what=damage.what, hint=damage.hint)
        )
    is_shipped = files.exists(join(path, PLACE_FILE))
    if is_shipped:
        notes.append(SHIPPED)
    if identity is not None and (missing := [s for s in identity.shards if s not in numbers]):
        named = ", ".join(shard_name(shard) for shard in missing)
        notes.append(f"{named} not here: treated as a partial copy; a node does not start on it")
    readers = {number: ShardFiles(path, number, files) for number in numbers}
    log = NodeLog(
        path=path,
        readers=readers,
        num_shards=None if identity is None else identity.num_shards,
        problems=tuple(problems),
        notes=tuple(notes),
        is_shipped=is_shipped,
    )
    for reader in readers.values():
        reader.remarks = log.remarks
    return log
