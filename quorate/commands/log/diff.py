"""`quorate log diff`: differences between two points in time."""

from __future__ import annotations

from typing import Annotated

from quorate.commands.log.common import Shard, Utc, plain, print_lines, print_notes, read_log, style_of
from quorate.commands.log.subject import (
    OLDEST,
    Live,
    LogData,
    LogMaybeGroup,
    log_and_group,
    window,
)
from quorate.commands.options import GroupNamed, Json, option
from quorate.output import print_json


def diff(
    words: LogMaybeGroup = None,
    data: LogData = None,
    url: Live = None,
    since: Annotated[
        str, option("--since", "INDEX|TIME|SPAN", "The earlier moment: 03:12, 2h, end-5m.")
    ] = OLDEST,
    until: Annotated[str, option("--until", "INDEX|TIME|SPAN", "The later moment.")] = "end",
    named: GroupNamed = None,
    shard: Shard = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Show what changed between two points in time: topics, groups, members, assignments, offsets.

    An index belongs to one shard, so it needs a group or --shard; a time does not.

    Example: quorate log diff billing --since 03:10 --until 03:15
    """
    from history.answers.statediff import diff as read
    from history.answers.statediff import diff_text

    log, group = log_and_group(words, data, url, named)
    asked = window(log, since, until, utc=utc, group=group, shard=shard)
    begin = None if since == OLDEST else (asked.from_index, asked.from_ms)
    last = (asked.to_index, asked.to_ms)
    found = read_log(log.path, lambda: read(log, begin, last, shard=shard, group=group), asked.notes)
    if json:
        shards = [{"is_same": one.is_same} | plain(one) for one in found]
        print_json({"shards": shards, "notes": asked.notes})
    else:
        print_lines(log.path, diff_text(found, style_of(utc)))
        print_notes(asked.notes)
