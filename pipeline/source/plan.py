"""Plans a read on the driver: one task for each segment that may hold wanted records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from pipeline.errors import OptionError
from pipeline.schema import TableColumn
from raftlog.env.files import join
from raftlog.storage.directory import shard_name
from records.ids import METADATA_SHARD, shard_of

from .frames import Bounds
from .inputs import InputLog, InputSegment, InputShard, node_shards, open_input
from .options import Mode, Rows, Selection, SourceOptions

ALIKE_BYTES = 1 << 20
"""Bytes that full segments may differ by, since each ends with the entry that fills it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One segment to read, or the snapshot at its end, as plain data.

    ``size`` is the segment's size in bytes when it was planned; 0 for a snapshot.
    """

    cluster_id: str
    node_id: int | None
    directory: str
    shard: int
    bounds: Bounds
    selection: Selection
    columns: tuple[TableColumn, ...]
    rows: Rows
    mode: Mode
    size: int

    @property
    def home(self) -> str:
        return join(self.directory, shard_name(self.shard))


def plan(options: SourceOptions, found: InputLog | None = None) -> list[Task]:
    """The tasks to read ``found``, by default the input at the path; raises `InputError` and `OptionError`.

    The largest come first, so that no long task starts last; full segments stay in the order of the log.
    """
    found = open_input(options.path) if found is None else found
    unknown = sorted({*(options.shards or ()), *(options.ranges or ())} - set(found.shards))
    if unknown:
        raise no_such_shard(options, unknown[0], found.shards)
    shards = found.shards.values() if options.rows is not Rows.ENTRIES else node_shards(found)
    tasks = [task for shard in shards for task in _tasks(options, found, shard)]
    return sorted(tasks, key=lambda task: task.size // ALIKE_BYTES, reverse=True)


def no_such_shard(options: SourceOptions, shard: int, there: Iterable[int]) -> OptionError:
    held = ", ".join(map(str, sorted(there)))
    return OptionError(f"{options.path} does not hold shard {shard}", f"it has {held}")


def _tasks(options: SourceOptions, found: InputLog, shard: InputShard) -> Iterator[Task]:
    span = options.span_of(shard.shard)
    groups = _groups_in(options.selection.groups, found.num_shards, shard.shard)
    if span is None or (groups is not None and not groups):
        return
    selection = replace(options.selection, span=span, groups=groups)
    task = partial(
        Task,
        cluster_id=found.cluster_id,
        node_id=shard.node_id,
        directory=shard.directory,
        shard=shard.shard,
        selection=selection,
        columns=options.columns,
        rows=options.rows,
        mode=options.mode,
    )
    if options.rows is Rows.SNAPSHOT:
        yield task(bounds=Bounds(first=0, decided=shard.decided_index), size=0)
        return
    for place, segment in enumerate(shard.segments):
        if _may_hold(segment, shard, selection):
            following = shard.segments[place + 1].first_index if place + 1 < len(shard.segments) else None
            bounds = Bounds(
                first=segment.first_index,
                following=following,
                decided=shard.decided_index,
                is_alone=shard.is_alone,
            )
            yield task(bounds=bounds, size=segment.size)


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
