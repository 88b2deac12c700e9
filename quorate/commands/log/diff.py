"""`quorate log diff`: differences between two points in time."""

from __future__ import annotations

from typing import Annotated

from quorate.commands.log.common import Shard, Utc, plain, print_lines, read_log, style_of
from quorate.commands.log.subject import OLDEST, DirOnly, Live, subject, window
from quorate.commands.options import Json, flag, option
from quorate.output import print_json


def diff(
    words: DirOnly = None,
    url: Live = None,
    start: Annotated[
        str, option("--from", "INDEX|TIME|SPAN", "The earlier moment: 03:12, 2h, end-5m.")
    ] = OLDEST,
    end: Annotated[str, option("--to", "INDEX|TIME|SPAN", "The later moment.")] = "end",
    group: Annotated[str | None, flag("--group", "Only this group.")] = None,
    shard: Shard = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Show what changed between two points in time: topics, groups, members, assignments, offsets.

    An index belongs to one shard, so it needs --group or --shard; a time does not.

    Example: quorate log diff quorate-data --from 03:10 --to 03:15 --group billing
    """
    from history.answers.statediff import diff as read
    from history.answers.statediff import diff_text

    log, _ = subject(words, url)
    ends = window(log, start, end, utc=utc, group=group, shard=shard)
    begin = None if start == OLDEST else ends[0]
    found = read_log(log.path, lambda: read(log, begin, ends[1], shard=shard, group=group))
    if json:
        print_json({"shards": [{"is_same": one.is_same} | plain(one) for one in found]})
    else:
        print_lines(log.path, diff_text(found, style_of(utc)))
