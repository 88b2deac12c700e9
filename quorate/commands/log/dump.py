"""`quorate log dump`: entries one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from quorate.commands.log.common import Utc, print_lines, shard_number, style_of, usage
from quorate.commands.log.subject import DirOnly, Follow, Live, subject, window
from quorate.commands.options import Json, flag, option
from quorate.errors import CommandError, ExitCode
from quorate.output import flush_output, put_json

if TYPE_CHECKING:
    from history.reading.node import NodeLog
    from history.telling.dump import Dumped, Filter


def dump(
    words: DirOnly = None,
    url: Live = None,
    group: Annotated[list[str] | None, flag("--group", "Only records of this group.")] = None,
    record_type: Annotated[list[str] | None, option("--type", "TYPE", "Only records of this type.")] = None,
    shard: Annotated[
        list[int] | None, option("--shard", "SHARD", "Only this shard, or `metadata`.", parser=shard_number)
    ] = None,
    start: Annotated[str | None, option("--from", "INDEX|TIME|SPAN", "From this index or time on.")] = None,
    end: Annotated[
        str | None, option("--to", "INDEX|TIME|SPAN", "Up to this index or time, inclusive.")
    ] = None,
    follow: Follow = False,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Print entries one by one, with causes and records; --json prints one object per line, lossless.

    --follow continues with each entry as it is committed, even when nodes fail, until Ctrl-C.

    Example: quorate log dump quorate-data --group billing --type offset_commit --from 2026-03-01T12:00
    """
    from history.telling.dump import Filter, dump_json, dump_text, type_number
    from history.telling.dump import dump as read

    types = frozenset(usage(type_number, text) for text in record_type or ())
    if follow and end is not None:
        raise CommandError("--follow has no end: leave out --to", code=ExitCode.USAGE)
    log, _ = subject(words, url)
    (from_index, from_ms), (to_index, to_ms) = window(log, start, end, utc=utc, any_shard=True)
    wanted = Filter(
        groups=frozenset(group or ()),
        types=types,
        shards=frozenset(shard or ()),
        from_index=from_index,
        to_index=to_index,
        from_ms=from_ms,
        to_ms=to_ms,
    )
    entries = _followed(log, wanted) if follow else read(log, wanted)
    if json:
        print_lines(log.path, dump_json(entries), show=put_json)
    else:
        print_lines(log.path, dump_text(entries, style_of(utc)))


def _followed(log: NodeLog, wanted: Filter) -> Iterator[Dumped]:
    from history.telling.dump import DumpedRemark, dumped, shards_for
    from quorate.following import followed

    for remark in log.remarks:
        yield DumpedRemark(text=remark)
    firsts = dict.fromkeys(shards_for(log, wanted), wanted.from_index or 1)
    for found in followed(log, firsts):
        if found is None:
            flush_output()
        elif (shown := dumped(*found, wanted)) is not None:
            yield shown
