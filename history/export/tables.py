"""`export`: tables of a log as files, in one walk over each shard, with memory bounded by the state.

A path that ends in the format's name is the file of the single requested table. Any other path is a folder,
which gets ``TABLE.FORMAT`` for each table. The files appear when all of them are complete, or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from history.moments import WHOLE_LOG, LogWindow
from history.reading.groups import unknown_group
from history.reading.node import NodeLog
from history.reading.source import NothingToRead
from history.render import plural
from history.words import shard_name

from .files import OutputFiles, told
from .formats import FORMATS, CannotWrite, TableWriter, writer_of
from .schema import SCHEMAS
from .sources import ShardRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One file."""

    table: str
    path: str
    rows: int
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """The files written, and what they rest on."""

    files: tuple[Written, ...]
    rests_on: tuple[str, ...]
    remarks: tuple[str, ...]


def export(
    log: NodeLog,
    output: Path,
    format_: str,
    *,
    tables: Sequence[str] = (),
    groups: Sequence[str] = (),
    window: LogWindow = WHOLE_LOG,
    force: bool = False,
) -> Export:
    """Write tables (by default all) of every group, or of some.

    Raises `CannotWrite` if the output is refused, and `NothingToRead` for an unknown group; nothing is
    written then.
    """
    if format_ not in FORMATS:
        raise CannotWrite(f"{format_!r} is not a format: use one of {', '.join(FORMATS)}")
    wanted = tuple(dict.fromkeys(tables)) or tuple(SCHEMAS)
    for name in wanted:
        if name not in SCHEMAS:
            raise CannotWrite(f"there is no table {name!r}: there are {', '.join(SCHEMAS)}")
    paths = _paths(output, format_, wanted)
    only = frozenset(groups) if groups else None
    shards = sorted({log.shard_of_group(group) for group in groups}) if groups else log.shards
    rows: Counter[str] = Counter()
    known: set[str] = set()
    rests_on, remarks = [], list(window.notes)
    with OutputFiles(tuple(paths.values()), force=force) as files:
        files.claim()
        writers = {name: writer_of(format_, SCHEMAS[name], files[path]) for name, path in paths.items()}

        def take(table: str, row: object) -> None:
            with_rows[table](row)
            rows[table] += 1

        with_rows = {name: _putter(name, writer) for name, writer in writers.items()}
        catalog = log.catalog()
        for shard in shards:
            source = ShardRows(shard, catalog, wanted, only, window, take)
            walk = source.run(log.reader(shard))
            rests_on.append(walk.basis.words())
            known.update(group for group in groups if source.knows(group))
            if source.unreadable:
                count = plural(source.unreadable, "entry")
                remarks.append(
                    f"{count} of {shard_name(shard)} cannot be decoded and are missing from the tables"
                )
        for writer in writers.values():
            writer.close()
        for group in groups:
            if group not in known:
                raise NothingToRead(unknown_group(log, group, walk.basis))
        sizes = files.place()
    written = (
        Written(table=name, path=str(path), rows=rows[name], size=sizes[path]) for name, path in paths.items()
    )
    return Export(files=tuple(written), rests_on=tuple(rests_on), remarks=tuple(remarks))


def _putter(name: str, writer: TableWriter) -> Callable[[object], None]:
    values = SCHEMAS[name].values

    def put(row: object) -> None:
        writer.write(values(row))

    return put


def _paths(output: Path, format_: str, tables: Sequence[str]) -> dict[str, Path]:
    if output.suffix == f".{format_}":
        if len(tables) != 1:
            raise CannotWrite(f"{output} is one file, but {len(tables)} tables are requested: give a folder")
        return {tables[0]: output}
    with told(output):
        is_file = output.exists() and not output.is_dir()
    if is_file:
        raise CannotWrite(
            f"{output} is a file, not a folder; the name of a single table's file must end in .{format_}"
        )
    return {name: output / f"{name}.{format_}" for name in tables}
