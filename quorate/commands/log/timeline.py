"""`quorate log timeline`: a group over time, as a table, as lanes in the terminal, or as a page."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from quorate.commands.log.common import Shard, Utc, plain, print_lines, read_log, style_of, terminal_width
from quorate.commands.log.pagefile import Force, Html, claim, write_page
from quorate.commands.log.subject import DirGroup, Follow, Live, Since, Until, subject, window
from quorate.commands.log.tailing import shows_now, timeline_as_it_grows
from quorate.commands.options import Json, flag
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, say

if TYPE_CHECKING:
    from history.facts.rows import GroupFinding, GroupRows
    from history.reading.node import NodeLog
    from history.reading.notes import Note
    from history.render import TimeStyle


def timeline(
    words: DirGroup = None,
    url: Live = None,
    shard: Shard = None,
    since: Since = None,
    until: Until = None,
    lanes: Annotated[bool, flag("--lanes", "Members as lanes over time, as wide as the terminal.")] = False,
    html: Html = None,
    force: Force = False,
    follow: Follow = False,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Show a group over time: one row per epoch, or lanes, or a page to scrub through.

    --follow continues with each row as it is committed, and repeats it when its epoch is stable.

    Example: quorate log timeline quorate-data billing --since 03:00 --html billing.html
    """
    has_page = html is not None
    _demand_one_answer(lanes=lanes, json=json, has_page=has_page, force=force)
    if follow and (lanes or has_page or until is not None):
        raise CommandError("--follow has no end: leave out --lanes, --html and --until", code=ExitCode.USAGE)
    if html is not None:
        claim(html, force=force)
    log, (group,) = subject(words, url, "GROUP")
    begin, end = window(log, since, until, utc=utc, group=group, shard=shard)
    if follow:
        from history.moments import LogWindow

        asked = {"window": LogWindow.between(begin, end), "style": style_of(utc)}
        print_lines(
            log.path, timeline_as_it_grows(log, group, shard, asked, as_json=json), shows_now(as_json=json)
        )
        return
    if not lanes and html is None:
        _table(log, group, shard, begin, end, utc=utc, json=json)
        return
    picture = read_log(log.path, lambda: _picture(log, group, shard, begin, end))
    _demand_a_row(picture, group, style_of(utc))
    rests_on = _rests_on(log.path, picture)
    if html is not None:
        text = _page(picture, end[1], style_of(utc), rests_on)
        say(write_page(html, text, force=force))
        return
    print_lines(log.path, _lanes(picture, end[1], style_of(utc)))
    for line in rests_on:
        say(line)


def _demand_one_answer(*, lanes: bool, json: bool, has_page: bool, force: bool) -> None:
    if sum((lanes, json, has_page)) > 1:
        raise CommandError("--lanes, --html and --json exclude each other: give one", code=ExitCode.USAGE)
    if force and not has_page:
        raise CommandError("--force needs --html FILE", code=ExitCode.USAGE)


PLACES_MAX = 10
"""Limit on the indexes listed for undecodable entries; `verify` lists them all."""

Point = tuple[int | None, int | None]
"""(index, epoch ms), at most one of them set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picture:
    whole: GroupRows
    """Facts from the oldest entry on, from which members are named and findings made."""
    facts: GroupRows
    """The part within the window."""
    findings: tuple[GroupFinding, ...]
    from_ms: int | None
    notes: tuple[Note, ...] | None
    """The group's notes beside the log, which findings take into account; None: there are none."""


def _picture(log: NodeLog, group: str, shard: int | None, begin: Point, end: Point) -> _Picture:
    from history.diagnoses import findings_of
    from history.facts.group import facts_of, windowed

    whole = facts_of(log, group, shard=shard, to_index=end[0], to_ms=end[1])
    index, from_ms = begin
    if index is not None:  # a picture covers time: it starts with the first row at or after the index
        later = [row.timestamp_ms for row in whole.epochs if row.index >= index]
        from_ms = min(later, default=whole.last_ms)
    # A node without notes has no evidence file, so no notes and no file are the same to a reader.
    notes = log.reader(whole.shard).evidence(group) or None
    findings = findings_of(whole, notes)
    return _Picture(
        whole=whole,
        facts=windowed(whole, index, from_ms),
        findings=tuple(
            one for one in findings if from_ms is None or one.to_ms is None or one.to_ms >= from_ms
        ),
        from_ms=from_ms,
        notes=None if notes is None else tuple(notes),
    )


def _demand_a_row(picture: _Picture, group: str, style: TimeStyle) -> None:
    last_ms = picture.facts.last_ms
    if picture.from_ms is not None and picture.from_ms > last_ms:
        raise CommandError(
            f"nothing of group {group} happened from {style.full(picture.from_ms)} on",
            hint=f"the log that was read ends at {style.full(last_ms)}",
            code=ExitCode.UNREADABLE,
        )


def group_page(log: NodeLog, group: str) -> str:
    """The page of `--html` over the whole log, with local times.

    Raises `NothingToRead` if the log does not know the group."""
    picture = _picture(log, group, None, (None, None), (None, None))
    return _page(picture, None, style_of(utc=False), _rests_on(log.path, picture))


def _page(picture: _Picture, to_ms: int | None, style: TimeStyle, rests_on: list[str]) -> str:
    from history.pages.timeline import timeline_page

    return timeline_page(
        picture.facts,
        picture.findings,
        whole=picture.whole,
        style=style,
        from_ms=picture.from_ms,
        to_ms=to_ms,
        rests_on=rests_on,
        notes=picture.notes or (),
    )


def _lanes(picture: _Picture, to_ms: int | None, style: TimeStyle) -> Iterator[str]:
    from history.pages.terminal import ASCII, BLOCKS, lanes_text

    return lanes_text(
        picture.facts,
        picture.findings,
        whole=picture.whole,
        width=terminal_width(),
        style=style,
        signs=BLOCKS if _writes_blocks(BLOCKS.heights) else ASCII,
        from_ms=picture.from_ms,
        to_ms=to_ms,
        notes=picture.notes or (),
    )


def _rests_on(path: str, picture: _Picture) -> list[str]:
    from history.telling.evidence import UNKNOWN

    facts = picture.whole
    lines = [] if facts.basis is None else [f"from {path}, {facts.basis.words()}"]
    if facts.unreadable:
        places = ", ".join(str(index) for index, _, _ in facts.unreadable[:PLACES_MAX])
        lines.append(f"{len(facts.unreadable)} entries cannot be decoded and are skipped: index {places}")
    if picture.notes is None:
        lines.append(UNKNOWN)
    return lines


def _table(
    log: NodeLog, group: str, shard: int | None, begin: Point, end: Point, *, utc: bool, json: bool
) -> None:
    from history.moments import LogWindow
    from history.telling.explain import explain as read
    from history.telling.timeline import timeline as rows_of
    from history.telling.timeline import timeline_text

    asked = LogWindow.between(begin, end)
    explanation = read_log(log.path, lambda: read(log, group, shard=shard, window=asked, style=style_of(utc)))
    rows = rows_of(explanation)
    if json:
        shown = {"group_id": group, "members": explanation.members, "rows": rows}
        print_json(plain(shown | {"basis": explanation.basis, "notes": explanation.notes}))
        return
    print_lines(log.path, timeline_text(rows, width=terminal_width(), style=style_of(utc)))
    for name, described in explanation.members.items():
        say(f"{name} is {described}")
    say(f"from {explanation.basis.words()}")
    for note in explanation.notes:
        say(f"note: {note}")


def _writes_blocks(letters: str) -> bool:
    """Whether the letters can be shown, by the locale and the output's encoding."""
    locale = next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := os.environ.get(name))), "")
    if locale in ("C", "POSIX"):
        return False
    try:
        letters.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
