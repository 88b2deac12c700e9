"""`quorate log owner`: the owners of a partition."""

from __future__ import annotations

from quorate.commands.log.common import (
    At,
    Utc,
    plain,
    print_lines,
    print_notes,
    read_log,
    style_of,
    usage,
)
from quorate.commands.log.subject import PARTITION, Live, LogData, LogPartition, moment, subject
from quorate.commands.options import GroupNamed, Json
from quorate.output import print_json


def owner(
    words: LogPartition = None,
    data: LogData = None,
    url: Live = None,
    at: At = None,
    named: GroupNamed = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Show the owners of a partition in every group that consumes it: at one time with --at, else all along.

    Example: quorate log owner orders-3 --at 03:12
    """
    from history.answers.owner import owner as read
    from history.answers.owner import owner_text, parse_partition

    log, (text, *groups) = subject(words, data, url, PARTITION, named)
    (group,) = groups or (None,)
    partition = usage(parse_partition, text)
    (index, time_ms), notes = moment(log, at, utc=utc, group=group)
    style = style_of(utc)
    found = read_log(
        log.path,
        lambda: read(log, partition, group=group, at_index=index, at_ms=time_ms, style=style),
        notes,
    )
    if json:
        print_json(plain(found) | {"notes": notes})
    else:
        print_lines(log.path, owner_text(found, style))
        print_notes(notes)
