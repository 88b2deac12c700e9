"""`quorate log dump`: entries one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated

from quorate.commands.log.common import Utc, print_lines, shard_number, style_of, usage
from quorate.commands.log.subject import (
    ANY_GROUPS,
    Follow,
    Live,
    LogData,
    LogGroups,
    Since,
    Until,
    subject,
    window,
)
from quorate.commands.options import GroupsNamed, Json, option
from quorate.errors import CommandError, ExitCode
from quorate.output import flush_output, put_json

if TYPE_CHECKING:
    from history.reading.node import NodeLog
    from history.telling.dump import Dumped, Filter


def dump(
    words: LogGroups = None,
    data: LogData = None,
    url: Live = None,
    group: GroupsNamed = None,
    record_type: Annotated[list[str] | None, option("--type", "TYPE", "Only records of this type.")] = None,
    shard: Annotated[
        list[int] | None, option("--shard", "SHARD", "Only this shard, or `metadata`.", parser=shard_number)
    ] = None,
    since: Since = None,
    until: Until = None,
    follow: Follow = False,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Print entries one by one, with causes and records; --json prints one object per line, lossless.

    --follow continues with each entry as it is committed, even when nodes fail, until Ctrl-C.

    Example: quorate log dump quorate-data --group billing --type offset_commit --since 2026-03-01T12:00
    """
    from history.telling.dump import DumpedRemark, Filter, dump_json, dump_text, type_number
    from history.telling.dump import dump as read

    types = frozenset(usage(type_number, text) for text in record_type or ())
    if follow and until is not None:
        raise CommandError("--follow has no end: leave out --until", code=ExitCode.USAGE)
    log, groups = subject(words, data, url, ANY_GROUPS, group)
    asked = window(log, since, until, utc=utc, any_shard=True, follow=follow)
    wanted = Filter(
        groups=frozenset(groups),
        types=types,
        shards=frozenset(shard or ()),
        from_index=asked.from_index,
        to_index=asked.to_index,
        from_ms=asked.from_ms,
        to_ms=asked.to_ms,
    )
    notes = (DumpedRemark(text=note) for note in asked.notes)
    entries = chain(notes, _followed(log, wanted) if follow else read(log, wanted))
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
