"""`quorate log timeline`: a group over time, as a table, as lanes in the terminal, or as a page."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from quorate.commands.log.common import (
    Shard,
    Utc,
    plain,
    print_lines,
    print_notes,
    read_log,
    style_of,
)
from quorate.commands.log.pagefile import Force, Html, claim, write_page
from quorate.commands.log.subject import (
    ONE_GROUP,
    Follow,
    Live,
    LogData,
    LogGroup,
    Since,
    Until,
    subject,
    window,
)
from quorate.commands.log.tailing import shows_now, timeline_as_it_grows
from quorate.commands.options import GroupNamed, Json, flag, typed
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, say, terminal_width

if TYPE_CHECKING:
    from history.facts.rows import GroupFinding, GroupRows
    from history.moments import LogWindow
    from history.reading.node import NodeLog
    from history.reading.notes import Note
    from history.render import TimeStyle


def timeline(
    words: LogGroup = None,
    data: LogData = None,
    url: Live = None,
    named: GroupNamed = None,
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

    Example: quorate log timeline billing --since 03:00 --html billing.html
    """
    has_page = html is not None
    _demand_one_answer(lanes=lanes, json=json, has_page=has_page, force=force)
    if follow and (lanes or has_page or until is not None):
        raise CommandError("--follow has no end: leave out --lanes, --html and --until", code=ExitCode.USAGE)
    if html is not None:
        claim(html, force=force)
    log, (group,) = subject(words, data, url, ONE_GROUP, named)
    asked = window(log, since, until, utc=utc, group=group, shard=shard, follow=follow)
    if follow:
        growing = timeline_as_it_grows(
            log, group, shard, {"window": asked, "style": style_of(utc)}, as_json=json
        )
        print_lines(log.path, growing, shows_now(as_json=json))
        return
    if not lanes and html is None:
        _table(log, group, shard, asked, utc=utc, json=json)
        return
    picture = read_log(log.path, lambda: _picture(log, group, shard, asked), asked.notes)
    _demand_a_row(picture, group, asked, style_of(utc))
    if html is not None:
        text = _page(picture, asked, style_of(utc), typed(), log.path)
        say(write_page(html, text, force=force))
        return
    print_lines(log.path, _lanes(picture, asked.to_ms, style_of(utc)))
    for line in (*_rests_on(f"from {log.path},", picture), *asked.notes):
        say(line)


def _demand_one_answer(*, lanes: bool, json: bool, has_page: bool, force: bool) -> None:
    if sum((lanes, json, has_page)) > 1:
        raise CommandError("--lanes, --html and --json exclude each other: give one", code=ExitCode.USAGE)
    if force and not has_page:
        raise CommandError("--force needs --html FILE", code=ExitCode.USAGE)


LANES_WIDTH_WITHOUT_TERMINAL = 120
PLACES_MAX = 10
"""Limit on the indexes listed for undecodable entries; `verify` lists them all."""


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


def _picture(log: NodeLog, group: str, shard: int | None, asked: LogWindow) -> _Picture:
    from history.diagnoses import findings_of
    from history.facts.group import facts_of, windowed

    whole = facts_of(log, group, shard=shard, to_index=asked.to_index, to_ms=asked.to_ms)
    index, from_ms = asked.from_index, asked.from_ms
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


def _demand_a_row(picture: _Picture, group: str, asked: LogWindow, style: TimeStyle) -> None:
    last_ms = picture.facts.last_ms
    if picture.from_ms is not None and picture.from_ms > last_ms:
        raise CommandError(
            f"nothing of group {group} happened from {style.full(picture.from_ms)} on",
            hint="; ".join(asked.notes) or f"the log that was read ends at {style.full(last_ms)}",
            code=ExitCode.UNREADABLE,
        )


def group_page(log: NodeLog, group: str) -> str:
    """The page of `--html` over the whole log, with local times.

    Raises `NothingToRead` if the log does not know the group."""
    from history.moments import WHOLE_LOG

    picture = _picture(log, group, None, WHOLE_LOG)
    command = f"quorate.testing, timeline({group!r})"
    return _page(picture, WHOLE_LOG, style_of(utc=False), command, log.path)


def _page(picture: _Picture, asked: LogWindow, style: TimeStyle, command: str, source: str) -> str:
    from history.pages.frame import Provenance
    from history.pages.timeline import timeline_page

    return timeline_page(
        picture.facts,
        picture.findings,
        whole=picture.whole,
        style=style,
        from_ms=picture.from_ms,
        to_ms=asked.to_ms,
        rests_on=[*_rests_on("From", picture), *asked.notes],
        notes=picture.notes or (),
        provenance=Provenance.now(command, source, style),
    )


def _lanes(picture: _Picture, to_ms: int | None, style: TimeStyle) -> Iterator[str]:
    from history.pages.terminal import ASCII, BLOCKS, lanes_text

    return lanes_text(
        picture.facts,
        picture.findings,
        whole=picture.whole,
        width=terminal_width(sys.stdout) or LANES_WIDTH_WITHOUT_TERMINAL,
        style=style,
        signs=BLOCKS if _writes_blocks(BLOCKS.heights) else ASCII,
        from_ms=picture.from_ms,
        to_ms=to_ms,
        notes=picture.notes or (),
    )


def _rests_on(source: str, picture: _Picture) -> list[str]:
    from history.telling.evidence import UNKNOWN

    facts = picture.whole
    lines = [] if facts.basis is None else [f"{source} {facts.basis.words()}"]
    if facts.unreadable:
        places = ", ".join(str(index) for index, _, _ in facts.unreadable[:PLACES_MAX])
        lines.append(f"{len(facts.unreadable)} entries cannot be decoded and are skipped: index {places}")
    if picture.notes is None:
        lines.append(UNKNOWN)
    return lines


def _table(log: NodeLog, group: str, shard: int | None, asked: LogWindow, *, utc: bool, json: bool) -> None:
    from history.telling.explain import explain as read
    from history.telling.timeline import timeline as rows_of
    from history.telling.timeline import timeline_text

    explanation = read_log(
        log.path, lambda: read(log, group, shard=shard, window=asked, style=style_of(utc)), asked.notes
    )
    rows = rows_of(explanation)
    if json:
        shown = {"group_id": group, "members": explanation.members, "rows": rows}
        print_json(plain(shown | {"basis": explanation.basis, "notes": explanation.notes}))
        return
    print_lines(log.path, timeline_text(rows, width=terminal_width(sys.stdout), style=style_of(utc)))
    for name, described in explanation.members.items():
        say(f"{name} is {described}")
    say(f"from {explanation.basis.words()}")
    print_notes(explanation.notes)


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
