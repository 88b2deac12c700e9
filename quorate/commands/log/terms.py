"""`quorate log terms`: the leaders of each shard, and the times without one."""

from __future__ import annotations

import sys

from quorate.commands.log.common import Shard, Utc, plain, print_lines, read_log, style_of
from quorate.commands.log.subject import Live, LogData, LogOnly, subject
from quorate.commands.options import Json
from quorate.output import print_json, say, terminal_width


def terms(
    words: LogOnly = None,
    data: LogData = None,
    url: Live = None,
    shard: Shard = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Print one row per term: its leader, its cause, the time without a leader; failovers and hand-overs.

    Example: quorate log terms quorate-data
    """
    from history.telling.terms import terms_and_bases, terms_text

    log, _ = subject(words, data, url)
    found, bases = read_log(log.path, lambda: terms_and_bases(log, shard))
    if json:
        print_json({"terms": plain(found), "basis": plain(bases)})
        return
    print_lines(log.path, terms_text(found, width=terminal_width(sys.stdout), style=style_of(utc)))
    for basis in bases:
        if basis.gaps or basis.remarks or not found:
            say(f"from {basis.words()}")
