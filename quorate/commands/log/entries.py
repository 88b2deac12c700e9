"""`quorate log dump`: entries one by one."""

from __future__ import annotations

from typing import Annotated

import typer

from quorate.commands.log.common import Utc, index_or_time, print_lines, shard_number, style_of, usage
from quorate.commands.options import Directory, Json


def dump(
    directory: Directory,
    group: Annotated[list[str] | None, typer.Option("--group", help="Only records of this group.")] = None,
    record_type: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only records of this type.")
    ] = None,
    shard: Annotated[
        list[str] | None, typer.Option("--shard", metavar="SHARD", help="Only this shard, or `metadata`.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="INDEX|TIME", help="From this index or time on.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="INDEX|TIME", help="Up to this index or time, inclusive.")
    ] = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Print entries one by one, with causes and records; --json prints one object per line, lossless.

    Example: quorate log dump quorate-data --group billing --type offset_commit --from 2026-03-01T12:00
    """
    from history.telling.dump import Filter, dump_json, dump_text, type_number
    from history.telling.dump import dump as read

    from_index, from_ms = index_or_time(start, utc)
    to_index, to_ms = index_or_time(end, utc)
    wanted = Filter(
        groups=frozenset(group or ()),
        types=frozenset(usage(type_number, text) for text in record_type or ()),
        shards=frozenset(shard_number(text) for text in shard or ()),
        from_index=from_index,
        to_index=to_index,
        from_ms=from_ms,
        to_ms=to_ms,
    )
    entries = read(str(directory), wanted)
    if json:
        print_lines(directory, dump_json(entries), show=print)
    else:
        print_lines(directory, dump_text(entries, style_of(utc)))
