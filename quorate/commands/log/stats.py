"""`quorate log stats`: figures by group and in total."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from quorate.commands.log.common import Shard, Utc, plain, print_lines, read_log, style_of
from quorate.commands.log.pagefile import Force, Html, claim, write_page
from quorate.commands.log.subject import (
    OLDEST,
    Live,
    LogData,
    LogMaybeGroup,
    Since,
    log_and_group,
    window,
)
from quorate.commands.options import GroupNamed, Json, option, typed
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, say, terminal_width

if TYPE_CHECKING:
    from history.answers.stats import Stats


def stats(
    words: LogMaybeGroup = None,
    data: LogData = None,
    url: Live = None,
    named: GroupNamed = None,
    shard: Shard = None,
    since: Since = None,
    until: Annotated[
        str | None,
        option(
            "--until",
            "INDEX|TIME|SPAN",
            "Up to here, exclusive, so that adjacent windows add up.",
        ),
    ] = None,
    html: Html = None,
    force: Force = False,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Print figures: rebalances by cause, unstable time, unowned partitions, evictions, commits, stalls.

    Example: quorate log stats quorate-data --since 24h
    """
    from history.answers.stats import stats as read
    from history.answers.statstext import stats_text

    if html is not None:
        if json:
            raise CommandError("--html and --json exclude each other: give one", code=ExitCode.USAGE)
        claim(html, force=force)
    elif force:
        raise CommandError("--force needs --html FILE", code=ExitCode.USAGE)
    log, group = log_and_group(words, data, url, named)
    asked = window(log, since, until, utc=utc, group=group, shard=shard)
    style = style_of(utc)
    found = read_log(
        log.path,
        lambda: read(
            log,
            group=group,
            shard=shard,
            from_index=None if since == OLDEST else asked.from_index,
            from_ms=asked.from_ms,
            until_index=asked.to_index,
            until_ms=asked.to_ms,
            style=style,
        ),
        asked.notes,
    )
    found = replace(found, remarks=(*found.remarks, *asked.notes))
    if html is not None:
        from history.pages.frame import Provenance
        from history.pages.stats import stats_page

        title = f"{group or 'All groups'}: statistics"
        written = Provenance.now(typed(), log.path, style)
        page = stats_page(found, style=style, title=title, provenance=written)
        say(write_page(html, page, force=force))
    elif json:
        print_json(_document(found))
    else:
        print_lines(log.path, stats_text(found, style, width=terminal_width(sys.stdout)))


def _document(found: Stats) -> dict[str, Any]:
    from history.answers.statstext import derived

    document: dict[str, Any] = plain(found)
    document["total"] |= derived(found.total, found.until_ms - found.from_ms)
    for shown, group in zip(document["groups"], found.groups, strict=True):
        shown["figures"] |= derived(group.figures, group.until_ms - group.from_ms)
    return document
