"""Plans a read on the driver: tasks of one large segment, or of many small ones in the order of the log.

A task is plain data: it is packed once for the executor that reads it, and names directories, segments and
spans only. Everything that many tasks share is written in few bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgpack

from quorate.spark.errors import InputError, OptionError
from quorate.spark.schema import DAMAGE, RECORD_COLUMNS, Presence, TableColumn, presence_of
from raftlog.env.files import join
from raftlog.offline.replicas import ReplicaFiles
from raftlog.storage.directory import shard_name
from records.ids import METADATA_SHARD, shard_of

from .frames import Bounds
from .inputs import InputLog, InputSegment, InputShard, node_shards, open_input
from .options import Mode, Rows, Selection, SourceOptions, WantedRange, known_columns

TASK_BYTES_MAX = 64 << 20
"""Bytes of segments that one task reads, unless a single segment is larger."""

TASK_BYTES_MIN = 4 << 20
"""Bytes of segments below which a task costs more to start than to run."""

TASKS_WANTED = 32
"""Number of tasks that a log of medium size is divided into, so that executors share it evenly."""

ALIKE_BYTES = 1 << 20
"""Bytes that full tasks may differ by, since each segment ends with the entry that fills it."""

_FORMAT = 2

BUNDLE_COLUMNS = (
    *(replace(one, is_required=presence_of(one) >= Presence.ALWAYS) for one in RECORD_COLUMNS),
    DAMAGE,
)
"""The columns of `plan_records`: all, with the bytes of key, value and cause, and damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The rows wanted from each segment."""

    columns: tuple[TableColumn, ...]
    selection: Selection = field(default_factory=Selection)
    rows: Rows = Rows.RECORDS
    mode: Mode = Mode.FAIL

    @classmethod
    def of(cls, options: SourceOptions) -> ReadOptions:
        """Those of the source; indexes are part of each task."""
        span = replace(options.selection.span, from_index=None, to_index=None)
        selection = replace(options.selection, span=span)
        return cls(columns=options.columns, selection=selection, rows=options.rows, mode=options.mode)


BUNDLE = ReadOptions(columns=BUNDLE_COLUMNS, mode=Mode.PERMISSIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """A node's directory below the input's path ("": the path itself), and its id if that is known."""

    directory: str
    node_id: int | None

    def under(self, path: str) -> str:
        return join(path, self.directory) if self.directory else path


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSpan:
    """The wanted part of a shard; ``copies`` are the nodes that hold it, and how far each is decided."""

    shard: int
    decided_index: int
    is_alone: bool
    copies: tuple[tuple[int, int], ...]
    from_index: int | None
    to_index: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPlace:
    """One segment file: the number of the node that has it, and the first index of the next file."""

    shard: int
    node: int
    first: int
    following: int | None
    size: int
    begin: int | None = None
    """The offset of the first wanted entry, if it is known; advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One segment to read, or the snapshot at its end; ``replicas`` are the other nodes' logs of the shard.

    ``size`` is the segment's size in bytes when it was planned; 0 for a snapshot. ``begin`` is that of
    `SegmentPlace`.
    """

    path: str
    cluster_id: str
    node_id: int | None
    node: str
    directory: str
    shard: int
    bounds: Bounds
    selection: Selection
    columns: tuple[TableColumn, ...]
    rows: Rows
    mode: Mode
    size: int
    begin: int | None = None
    replicas: tuple[ReplicaFiles, ...] = ()

    @property
    def home(self) -> str:
        return join(self.directory, shard_name(self.shard))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Segments to read one after the other, as plain data."""

    path: str
    cluster_id: str
    num_shards: int | None
    nodes: tuple[NodePlace, ...]
    shards: Mapping[int, ShardSpan]
    segments: tuple[SegmentPlace, ...]
    options: ReadOptions

    @property
    def size(self) -> int:
        """Bytes of the segments when they were planned."""
        return sum(one.size for one in self.segments)

    def pieces(self) -> Iterator[Piece]:
        """The segments one by one."""
        options = self.options
        for one in self.segments:
            span, node = self.shards[one.shard], self.nodes[one.node]
            of = options.selection
            wanted = replace(of.span, from_index=span.from_index, to_index=span.to_index)
            groups = _groups_in(of.groups, self.num_shards, one.shard)
            yield Piece(
                path=self.path,
                cluster_id=self.cluster_id,
                node_id=node.node_id,
                node=self._name(one.node),
                directory=node.under(self.path),
                shard=one.shard,
                bounds=Bounds(
                    first=one.first,
                    following=one.following,
                    decided=span.decided_index,
                    is_alone=span.is_alone,
                ),
                selection=Selection(span=wanted, types=of.types, groups=groups),
                columns=options.columns,
                rows=options.rows,
                mode=options.mode,
                size=one.size,
                begin=one.begin,
                replicas=tuple(self._replicas(span, one.node)),
            )

    def packed(self, *, with_options: bool = True) -> bytes:
        """The task as bytes for `of`; without the options if the reader knows them."""
        return bytes(
            msgpack.packb(
                [
                    _FORMAT,
                    self.path,
                    self.cluster_id,
                    self.num_shards,
                    [[one.directory, one.node_id] for one in self.nodes],
                    [
                        [s.shard, s.decided_index, s.is_alone, s.copies, s.from_index, s.to_index]
                        for s in self.shards.values()
                    ],
                    [
                        [one.shard, one.node, one.first, one.following, one.size, one.begin]
                        for one in self.segments
                    ],
                    _packed_options(self.options) if with_options and self.options != BUNDLE else None,
                ]
            )
        )

    @classmethod
    def of(cls, data: bytes, options: ReadOptions = BUNDLE) -> Task:
        """The task that `packed` wrote; ``options`` are those that it left out. Raises `ValueError`."""
        version, path, cluster_id, num_shards, nodes, shards, segments, packed = msgpack.unpackb(data)
        if version != _FORMAT:
            raise ValueError(f"a task of format {version}, this release reads {_FORMAT}")
        spans = [
            ShardSpan(
                shard=shard,
                decided_index=decided,
                is_alone=is_alone,
                copies=tuple((node, known) for node, known in copies),
                from_index=first,
                to_index=last,
            )
            for shard, decided, is_alone, copies, first, last in shards
        ]
        return cls(
            path=path,
            cluster_id=cluster_id,
            num_shards=num_shards,
            nodes=tuple(NodePlace(directory=name, node_id=node_id) for name, node_id in nodes),
            shards={one.shard: one for one in spans},
            segments=tuple(
                SegmentPlace(shard=shard, node=node, first=first, following=following, size=size, begin=begin)
                for shard, node, first, following, size, begin in segments
            ),
            options=options if packed is None else _options_of(packed),
        )

    def _name(self, node: int) -> str:
        """The node in words."""
        place = self.nodes[node]
        return place.directory or (f"node {place.node_id}" if place.node_id is not None else self.path)

    def _replicas(self, span: ShardSpan, node: int) -> Iterator[ReplicaFiles]:
        for other, known in span.copies:
            if other != node:
                home = join(self.nodes[other].under(self.path), shard_name(span.shard))
                yield ReplicaFiles(name=self._name(other), home=home, decided_index=known)


def _packed_options(options: ReadOptions) -> list[Any]:
    of, span = options.selection, options.selection.span
    return [
        [[one.name, one.is_required] for one in options.columns],
        None if of.types is None else sorted(of.types),
        None if of.groups is None else sorted(of.groups),
        span.from_ms,
        span.to_ms,
        str(options.rows),
        str(options.mode),
    ]


def _options_of(packed: Sequence[Any]) -> ReadOptions:
    columns, types, groups, from_ms, to_ms, rows, mode = packed
    known = {one.name: one for one in (*known_columns(Rows(rows)), DAMAGE)}
    return ReadOptions(
        columns=tuple(replace(known[name], is_required=is_required) for name, is_required in columns),
        selection=Selection(
            span=WantedRange(from_ms=from_ms, to_ms=to_ms),
            types=None if types is None else frozenset(types),
            groups=None if groups is None else frozenset(groups),
        ),
        rows=Rows(rows),
        mode=Mode(mode),
    )


def plan(options: SourceOptions, found: InputLog | None = None) -> list[Task]:
    """The tasks to read ``found``, by default the input at the path; raises `InputError` and `OptionError`.

    The largest come first, so that no long task starts last; full ones stay in the order of the log.
    """
    found = open_input(options.path) if found is None else found
    unknown = sorted({*(options.shards or ()), *(options.ranges or ())} - set(found.shards))
    if unknown:
        raise no_such_shard(options, unknown[0], found.shards)
    shards = found.shards.values() if options.rows is not Rows.ENTRIES else node_shards(found)
    planned: list[tuple[ShardSpan, list[SegmentPlace]]] = []
    for shard in shards:
        span = options.span_of(shard.shard)
        groups = _groups_in(options.selection.groups, found.num_shards, shard.shard)
        if span is not None and (groups is None or groups):
            planned.append(_wanted(found, shard, replace(options.selection, span=span), options.rows))
    tasks = _tasks(found, planned, ReadOptions.of(options), is_apart=options.rows is not Rows.RECORDS)
    return sorted(tasks, key=lambda task: task.size // ALIKE_BYTES, reverse=True)


def plan_records(log: InputLog, ranges: Mapping[int, tuple[int, int]]) -> list[Task]:
    """The tasks to read all records of these entries (by shard, both ends included) in the order of the log.

    Their rows have `BUNDLE_COLUMNS`; entries that no node can read are rows of damage. Raises `InputError`
    for a shard that is not there.
    """
    planned = []
    for shard, (first, last) in sorted(ranges.items()):
        if shard not in log.shards:
            held = ", ".join(map(str, sorted(log.shards)))
            raise InputError(f"{log.path} does not hold shard {shard}", f"it has {held}")
        span = WantedRange(from_index=first, to_index=last)
        planned.append(_wanted(log, log.shards[shard], Selection(span=span), Rows.RECORDS))
    return _tasks(log, planned, BUNDLE, is_apart=False)


def no_such_shard(options: SourceOptions, shard: int, there: Iterable[int]) -> OptionError:
    held = ", ".join(map(str, sorted(there)))
    return OptionError(f"{options.path} does not hold shard {shard}", f"it has {held}")


def _wanted(
    found: InputLog, shard: InputShard, selection: Selection, rows: Rows
) -> tuple[ShardSpan, list[SegmentPlace]]:
    """The wanted part of a shard, and the segments that may hold it."""
    numbers = {member.path: number for number, member in enumerate(found.members)}
    span = ShardSpan(
        shard=shard.shard,
        decided_index=shard.decided_index,
        is_alone=shard.is_alone,
        copies=tuple((numbers[one.directory], one.decided_index) for one in shard.copies),
        from_index=selection.span.from_index,
        to_index=selection.span.to_index,
    )
    if rows is Rows.SNAPSHOT:
        node = numbers[shard.directory]
        return span, [SegmentPlace(shard=shard.shard, node=node, first=0, following=None, size=0)]
    places = []
    for at, segment in enumerate(shard.segments):
        if _may_hold(segment, shard, selection):
            following = shard.segments[at + 1].first_index if at + 1 < len(shard.segments) else None
            places.append(
                SegmentPlace(
                    shard=shard.shard,
                    node=numbers[segment.directory],
                    first=segment.first_index,
                    following=following,
                    size=segment.size,
                    begin=_begin(segment, span),
                )
            )
    return span, places


def _begin(segment: InputSegment, span: ShardSpan) -> int | None:
    """The offset of the span's first entry, if an earlier look at the newest segment ended there."""
    return None if span.from_index is None else segment.settled.get(span.from_index - 1)


def _tasks(
    found: InputLog,
    planned: Sequence[tuple[ShardSpan, list[SegmentPlace]]],
    options: ReadOptions,
    *,
    is_apart: bool,
) -> list[Task]:
    """Tasks of neighbouring segments; ``is_apart``: none of two shards, or of two nodes."""
    total = sum(one.size for _, places in planned for one in places)
    most = min(TASK_BYTES_MAX, max(TASK_BYTES_MIN, total // TASKS_WANTED))
    nodes = tuple(_node_place(found.path, member.path, member.node_id) for member in found.members)
    tasks: list[Task] = []
    spans: dict[int, ShardSpan] = {}
    segments: list[SegmentPlace] = []
    size = 0

    def close() -> None:
        nonlocal size
        if segments:
            tasks.append(
                Task(
                    path=found.path,
                    cluster_id=found.cluster_id,
                    num_shards=found.num_shards,
                    nodes=nodes,
                    shards=dict(spans),
                    segments=tuple(segments),
                    options=options,
                )
            )
        spans.clear()
        segments.clear()
        size = 0

    for span, places in planned:
        if is_apart:
            close()
        for one in places:
            if size + one.size > most:
                close()
            spans[span.shard] = span
            segments.append(one)
            size += one.size
    close()
    return tasks


def _node_place(path: str, directory: str, node_id: int | None) -> NodePlace:
    below = directory.removeprefix(path.rstrip("/")).lstrip("/")
    return NodePlace(directory=below, node_id=node_id)


def _groups_in(groups: frozenset[str] | None, num_shards: int | None, shard: int) -> frozenset[str] | None:
    """The groups whose records may be in the shard."""
    if groups is None:
        return None
    if num_shards is None or shard == METADATA_SHARD:
        return groups  # the metadata shard holds groups' settings
    return frozenset(group for group in groups if shard_of(group, num_shards) == shard)


def _may_hold(segment: InputSegment, shard: InputShard, selection: Selection) -> bool:
    """Whether a segment may hold wanted records, as far as known without opening it."""
    span, last = selection.span, segment.last_index
    if last is not None and segment.first_index > shard.decided_index:
        return False  # the newest is always read: its header may be damaged
    if span.to_index is not None and segment.first_index > span.to_index:
        return False
    if span.from_index is not None and last is not None and last < span.from_index:
        return False
    least, most = segment.timestamp_ms_min, segment.timestamp_ms_max
    if span.from_ms is not None and most is not None and most < span.from_ms:
        return False
    if span.to_ms is not None and least is not None and least > span.to_ms:
        return False
    types = segment.types
    return selection.types is None or types is None or not selection.types.isdisjoint(types)
