"""`quorate log owner`: the owners of a partition."""

from __future__ import annotations

from typing import Annotated

from quorate.commands.log.common import At, Utc, plain, print_lines, read_log, style_of, usage
from quorate.commands.log.subject import DirPartition, Live, moment, subject
from quorate.commands.options import Json, flag
from quorate.output import print_json


def owner(
    words: DirPartition = None,
    url: Live = None,
    at: At = None,
    group: Annotated[str | None, flag("--group", "Only in this group.")] = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Show the owners of a partition in every group that consumes it: at one time with --at, else all along.

    Example: quorate log owner quorate-data orders-3 --at 03:12
    """
    from history.answers.owner import owner as read
    from history.answers.owner import owner_text, parse_partition

    log, (text,) = subject(words, url, "TOPIC-PARTITION")
    partition = usage(parse_partition, text)
    index, time_ms = moment(log, at, utc=utc, group=group)
    style = style_of(utc)
    found = read_log(
        log.path, lambda: read(log, partition, group=group, at_index=index, at_ms=time_ms, style=style)
    )
    if json:
        print_json(plain(found))
    else:
        print_lines(log.path, owner_text(found, style))
