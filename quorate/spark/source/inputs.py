"""The input: a node's directory, a cluster's folder or a copy, listed segment by segment.

Plain Python on the driver. Segments are listed from their names and the archive's checked manifest, so that
planning a long history reads no segment but the newest; the executors check every byte they read. Invariants:
a shard is read from the most advanced node, up to the last entry decided by all directories together, and
from other nodes where that one begins later or is damaged; and a path never mixes two clusters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgpack

from history.reading.members import MemberDirectory
from history.reading.node import EXPECTED, NodeLog
from history.reading.opening import open_node
from history.reading.source import NothingToRead
from quorate.spark.errors import InputError
from raftlog.env.errors import Corrupt, Damaged
from raftlog.env.files import Files, join
from raftlog.env.object_stores import StoreError, UnknownStore, files_at
from raftlog.storage.archive import ARCHIVE, places_of, read_manifest
from raftlog.storage.directory import shard_name
from raftlog.storage.sealed_index import Sealed
from raftlog.storage.segments import HEADER_BYTES_MAX, NewerFormat, decode_header, first_indexes, log_name
from raftlog.storage.snapshot_install import installing

from .listing import ListedFiles, in_parallel, listed_files
from .tail import DecidedEnd, InputTail

HINT = "give a node's directory, or the folder of a cluster (node-1, node-2, ...)"

Remembered = Mapping[str, Any] | bytes | None
"""The result of `InputLog.to_remember` in an earlier run, as it is or as msgpack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSegment:
    """One segment file of a log, live or archived, of the shard in ``home`` in a node's ``directory``.

    ``last_index`` is known for all but the newest. Timestamps and types are those in the archive's manifest;
    ``None`` where it has none, and the reader finds out.
    """

    directory: str
    home: str
    first_index: int
    last_index: int | None
    size: int
    timestamp_ms_min: int | None = None
    timestamp_ms_max: int | None = None
    types: tuple[int, ...] | None = None
    settled: Mapping[int, int] = field(default_factory=dict, compare=False)
    """Entries of the newest segment after which an earlier look ended, and the offset behind each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCopy:
    """One node's log of a shard; its entries up to ``decided_index`` certainly are the decided ones.

    ``last_index`` is its last complete entry, decided or not; ``firsts`` are the first indexes of its
    segments.
    """

    directory: str
    decided_index: int
    last_index: int
    firsts: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputShard:
    """One shard's log, in the directory that it is read from.

    ``begins_index`` is the oldest entry kept by any node; ``decided_index`` the last one known to be
    committed, written at ``last_ms`` (-1: none). ``segments`` are those of ``directory``, after those of
    another node with a longer history.
    """

    shard: int
    directory: str
    node_id: int | None
    begins_index: int
    decided_index: int
    last_ms: int
    segments: tuple[InputSegment, ...]
    is_alone: bool
    """Whether the directory is the whole cluster, so that every complete entry in it is decided."""
    copies: tuple[ShardCopy, ...] = ()
    """All nodes' logs of the shard, that of ``directory`` included."""

    @property
    def home(self) -> str:
        return join(self.directory, shard_name(self.shard))


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLog:
    """Everything at a path; ``log`` is the same data for the readers of `history`."""

    path: str
    cluster_id: str
    num_shards: int | None
    node_ids: tuple[int, ...]
    remarks: tuple[str, ...]
    log: NodeLog
    shards: dict[int, InputShard]
    members: tuple[MemberDirectory, ...]
    files: ListedFiles
    """The files as of when the input was opened."""
    ends: Mapping[str, Any]
    """The position of each directory's end, for the next look."""
    looked: dict[str, str]
    """The state of the files when `readable` last found nothing in them, by what it looked for."""

    def to_remember(self) -> dict[str, Any]:
        """Plain data that makes the next `open_input` of this path cost what is new."""
        return {"ends": dict(self.ends), "looked": dict(self.looked)}


def open_input(path: str, *, remembered: Remembered = None) -> InputLog:
    """Open the input at ``path``; never writes.

    Raises `InputError` if there is no log, one of a newer format, or logs of two clusters.
    """
    before = _remembered(remembered)
    try:
        files = listed_files(files_at(path), path)
        log = open_node(path)
        tail = InputTail(path, files, before.get("ends", {}))
        reached = tail.look()
        shards = input_shards(files, tail, reached)
    except NothingToRead as nothing:
        raise InputError(str(nothing), "" if EXPECTED in str(nothing) else HINT) from None
    except Damaged as damage:
        raise InputError(f"{damage.file}: byte {damage.offset}: {damage.what}", damage.hint) from None
    except UnknownStore as unknown:
        raise InputError(str(unknown)) from None
    except StoreError as error:
        raise of_store(error) from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error}", "check the permissions of this process"
        ) from error
    return InputLog(
        path=path,
        cluster_id=_cluster_of(files, path, tail.members, shards),
        num_shards=log.num_shards,
        node_ids=tuple(member.node_id for member in tail.members if member.node_id is not None),
        remarks=log.remarks,
        log=log,
        shards=shards,
        members=tuple(tail.members),
        files=files,
        ends=tail.positions(),
        looked=dict(before.get("looked", {})),
    )


def _remembered(given: Remembered) -> Mapping[str, Any]:
    """The remembered data; empty if it cannot be read, since it only saves time."""
    if isinstance(given, bytes):
        try:
            given = msgpack.unpackb(given)
        except ValueError:
            return {}
    if not isinstance(given, Mapping):
        return {}
    return {name: part for name, part in given.items() if isinstance(part, Mapping)}


def input_shards(files: Files, tail: InputTail, reached: Mapping[int, DecidedEnd]) -> dict[int, InputShard]:
    """The shards of an input as far as they are decided."""
    made = in_parallel(files, lambda one: _shard(files, tail, *one), list(reached.items()))
    return dict(zip(reached, made, strict=True))


def _shard(files: Files, tail: InputTail, shard: int, end: DecidedEnd) -> InputShard:
    directory, name = end.member.path, shard_name(shard)
    copies = []
    for member in tail.holders(shard):
        with contextlib.suppress(FileNotFoundError):
            known, last = end.known.get(member.path, (0, 0))
            firsts = files_named(files, join(member.path, name))
            copies.append(
                ShardCopy(directory=member.path, decided_index=known, last_index=last, firsts=firsts)
            )
    if not copies:
        raise FileNotFoundError(2, "No such file or directory", join(directory, name))
    segments: tuple[InputSegment, ...] = ()
    with contextlib.suppress(FileNotFoundError):
        segments = tuple(segments_in(files, directory, shard))
    if segments:
        newest = segments[-1]
        places = tail.earlier_places(shard, directory)
        settled = {one.index: one.offset for one in places if newest.first_index == one.first <= one.index}
        segments = (*segments[:-1], replace(newest, settled=settled))
    segments = _with_older(files, segments, shard, end, copies)
    return InputShard(
        shard=shard,
        directory=directory,
        node_id=end.member.node_id,
        begins_index=segments[0].first_index if segments else end.index + 1,
        decided_index=end.index,
        last_ms=end.timestamp_ms,
        segments=segments,
        is_alone=tail.is_alone,
        copies=tuple(copies),
    )


def _with_older(
    files: Files,
    mine: tuple[InputSegment, ...],
    shard: int,
    end: DecidedEnd,
    copies: Sequence[ShardCopy],
) -> tuple[InputSegment, ...]:
    """The segments of one node, after those of the node that keeps the longest history before them."""
    begins = mine[0].first_index if mine else end.index + 1
    able = [copy for copy in copies if copy.firsts and copy.decided_index >= begins - 1]
    oldest = min(able, key=lambda copy: copy.firsts[0], default=None)
    if oldest is None or oldest.firsts[0] >= begins:
        return mine
    older = [one for one in segments_in(files, oldest.directory, shard) if one.first_index < begins]
    if mine and older:
        older[-1] = replace(older[-1], last_index=begins - 1)
    return (*older, *mine)


def files_named(files: Files, home: str) -> list[int]:
    """First indexes of the segment files of a shard, ascending; raises `FileNotFoundError`."""
    names, archive = files.listdir(home), join(home, ARCHIVE)
    return first_indexes(list({*names, *(files.listdir(archive) if files.is_dir(archive) else ())}))


def node_shards(found: InputLog) -> Iterator[InputShard]:
    """Every node's own log of every shard, for comparison; decided by all nodes together."""
    for shard in found.shards.values():
        by_path = {copy.directory: copy for copy in shard.copies}
        for member in found.members:
            if (copy := by_path.get(member.path)) is not None:
                yield replace(
                    shard,
                    directory=member.path,
                    node_id=member.node_id,
                    decided_index=min(shard.decided_index, copy.last_index),
                    segments=tuple(segments_in(found.files, member.path, shard.shard)),
                    copies=(copy,),
                )


def _cluster_of(
    files: Files, path: str, members: Sequence[MemberDirectory], shards: Mapping[int, InputShard]
) -> str:
    """The one cluster that the nodes under ``path`` belong to; raises `InputError` otherwise.

    A directory without an identity says it by its newest segment; executors check the header of every file.
    """
    said = {member.cluster_id: member.path for member in members if member.cluster_id is not None}
    for shard in shards.values() if not all(member.cluster_id for member in members) else ():
        for copy in shard.copies:
            home = join(copy.directory, shard_name(shard.shard))
            for first in copy.firsts[-1:] if said else reversed(copy.firsts):
                live, archived = places_of(home, log_name(first))
                place = live if files.exists(live) else archived
                if (cluster_id := _cluster_in(files, place)) is not None:
                    said.setdefault(cluster_id, place)
                    break
    if not said:
        raise InputError(f"nothing in {path} tells its cluster", "every segment's header is damaged")
    if len(said) > 1:
        raise two_clusters(path, said)
    return next(iter(said))


def of_store(error: StoreError) -> InputError:
    """The refusal to go on without a store that does not answer as it should."""
    return InputError(f"{error.filename}: {error.strerror}")


def two_clusters(path: str, said: Mapping[str, str]) -> InputError:
    """The refusal of logs of two clusters; ``said`` are the files that name each of them."""
    told = ", ".join(f"{place} says {name}" for name, place in said.items())
    return InputError(f"{path} holds logs of two clusters: {told}", "read each cluster separately")


def _cluster_in(files: Files, path: str) -> str | None:
    """The cluster in a segment's header; ``None`` if the file or a sound header is missing."""
    try:
        file = files.open(path, "r")
    except (OSError, Damaged):
        return None
    try:
        return decode_header(file.pread(HEADER_BYTES_MAX, 0), path).identity.cluster_id
    except NewerFormat as newer:
        raise InputError(f"{path}: byte {newer.offset}: {newer.what}", newer.hint) from None
    except Corrupt:
        return None
    finally:
        file.close()


def segments_in(files: Files, directory: str, shard: int) -> Iterator[InputSegment]:
    """The segments of a shard in a node's directory, archived and live, under their current names."""
    home = join(directory, shard_name(shard))
    archive = join(home, ARCHIVE)
    kept: dict[int, Sealed] = {}
    with contextlib.suppress(Damaged):
        kept = {one.first_index: one for one in read_manifest(files, archive).segments}
    firsts = sorted({*files_named(files, home), *kept})
    with contextlib.suppress(Damaged):  # damage beside the log does not affect its entries
        header = installing(files, home)
        firsts = firsts if header is None else [first for first in firsts if first > header.last_index]
    for place, first in enumerate(firsts):
        facts = kept.get(first)
        yield InputSegment(
            directory=directory,
            home=home,
            first_index=first,
            last_index=firsts[place + 1] - 1 if place + 1 < len(firsts) else None,
            size=_size(files, home, first) if facts is None else facts.log_bytes,
            timestamp_ms_min=None if facts is None else facts.timestamp_ms_min,
            timestamp_ms_max=None if facts is None else facts.timestamp_ms_max,
            types=None if facts is None else facts.types,
        )


def _size(files: Files, home: str, first: int) -> int:
    for path in places_of(home, log_name(first)):
        with contextlib.suppress(OSError):
            return files.size(path)
    return 0
