"""`quorate log explain`, `timeline` and `terms`: why, in sentences and as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quorate.commands.log.common import (
    At,
    Shard,
    Utc,
    plain,
    print_lines,
    read_log,
    shard_number,
    style_of,
    terminal_width,
)
from quorate.commands.log.subject import DirGroup, DirOnly, Live, moment, subject
from quorate.commands.options import Json
from quorate.output import print_json, say

if TYPE_CHECKING:
    from history.reading.node import NodeLog


def explain(
    words: DirGroup = None,
    url: Live = None,
    shard: Shard = None,
    at: At = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Why each epoch of a group: who did what, what moved, how long it took. --at ends the story there.

    Example: quorate log explain quorate-data billing
    """
    from history.telling.explain import explanation_text

    log, (group,) = subject(words, url, "GROUP")
    explanation = _explanation(log, group, shard, at, utc)
    if json:
        print_json(plain(explanation))
    else:
        print_lines(log.path, explanation_text(explanation, style_of(utc)))


def timeline(
    words: DirGroup = None,
    url: Live = None,
    shard: Shard = None,
    at: At = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """One row per epoch of a group: when, why, who owned what. --at ends it there.

    Example: quorate log timeline quorate-data billing
    """
    from history.telling.timeline import timeline as rows_of
    from history.telling.timeline import timeline_text

    log, (group,) = subject(words, url, "GROUP")
    explanation = _explanation(log, group, shard, at, utc)
    rows = rows_of(explanation)
    if json:
        print_json({"group_id": group, "members": explanation.members, "rows": [plain(row) for row in rows]})
        return
    width = terminal_width()
    print_lines(log.path, timeline_text(rows, width=width, style=style_of(utc)))
    for name, described in explanation.members.items():
        say(f"{name} is {described}")


def terms(
    words: DirOnly = None, url: Live = None, shard: Shard = None, utc: Utc = False, json: Json = False
) -> None:
    """One row per term: who led, why it began, how long nobody led; failovers and hand-overs at a glance.

    Example: quorate log terms quorate-data
    """
    from history.telling.terms import terms as read
    from history.telling.terms import terms_text

    log, _ = subject(words, url)
    number = None if shard is None else shard_number(shard)
    found = read_log(log.path, lambda: read(log, number))
    if json:
        print_json({"terms": [plain(one) for one in found]})
        return
    width = terminal_width()
    print_lines(log.path, terms_text(found, width=width, style=style_of(utc)))


def _explanation(log: NodeLog, group: str, shard: str | None, at: str | None, utc: bool) -> Any:
    from history.telling.explain import explain as read

    number = None if shard is None else shard_number(shard)
    index, time_ms = moment(log, at, utc=utc, group=group, shard=number)
    return read_log(
        log.path,
        lambda: read(log, group, shard=number, to_index=index, to_ms=time_ms, style=style_of(utc)),
    )
