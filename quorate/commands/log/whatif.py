"""`quorate log whatif`: a group's recorded membership under other settings, beside what really happened."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from quorate.commands.log.common import Utc, plain, print_lines, read_log, style_of
from quorate.commands.log.pagefile import Force, Html, claim, write_page
from quorate.commands.log.subject import Live, LogData, LogMaybeGroup, log_and_group
from quorate.commands.options import GroupNamed, Json, option, typed
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, say, terminal_width

if TYPE_CHECKING:
    from history.whatif.answer import WhatIfAnswer
    from history.whatif.settings import WhatIf


def whatif(
    words: LogMaybeGroup = None,
    data: LogData = None,
    url: Live = None,
    named: GroupNamed = None,
    assignor: Annotated[
        str | None, option("--assignor", "NAME|MODULE:CLASS", "uniform, range, or module:Class for your own.")
    ] = None,
    session_timeout: Annotated[
        str | None, option("--session-timeout", "SPAN", "Session timeout of every member: 6s, 500ms, 1m.")
    ] = None,
    rebalance_timeout: Annotated[
        str | None, option("--rebalance-timeout", "SPAN", "Rebalance timeout of every member.")
    ] = None,
    interval: Annotated[
        str | None,
        option("--interval", "SPAN", "Heartbeat interval of every member."),
    ] = None,
    html: Html = None,
    force: Force = False,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Replay recorded membership under other settings, beside what really happened.

    Example: quorate log whatif billing --assignor range --session-timeout 6s
    """
    from history.whatif.answer import whatif_of
    from history.whatif.settings import WhatIfError
    from history.whatif.telling import CONSUMER_ONLY, whatif_text

    log, group = log_and_group(words, data, url, named)
    if html is not None:
        if group is None:
            raise CommandError("--html shows one group", hint="give its id", code=ExitCode.USAGE)
        claim(html, force=force)
    try:
        asked = _asked(assignor, session_timeout, rebalance_timeout, interval)
        answer = read_log(log.path, lambda: whatif_of(log, asked, group))
    except WhatIfError as error:
        raise CommandError(str(error), code=ExitCode.USAGE) from error
    if group is not None and (why := answer.results[0].left_out):
        raise CommandError(
            f"nothing was replayed of group {group}: {why}", hint=CONSUMER_ONLY, code=ExitCode.UNREADABLE
        )
    if html is not None:
        say(_written(answer, log.path, html, force=force, utc=utc))
    elif json:
        _print_json(answer)
    else:
        print_lines(log.path, whatif_text(answer, group, width=terminal_width(sys.stdout)))


def _written(answer: WhatIfAnswer, source: str, file: Path, *, force: bool, utc: bool) -> str:
    from history.pages.frame import Provenance
    from history.pages.whatif import whatif_page

    (result,) = answer.results
    style = style_of(utc)
    written = Provenance.now(typed(), source, style)
    return write_page(file, whatif_page(result, answer.basis, style=style, provenance=written), force=force)


def _asked(assignor: str | None, session: str | None, rebalance: str | None, interval: str | None) -> WhatIf:
    from history.whatif.settings import WhatIf, assignor_named

    return WhatIf(
        assignor=None if assignor is None else assignor_named(assignor),
        session_timeout_ms=_span("--session-timeout", session),
        rebalance_timeout_ms=_span("--rebalance-timeout", rebalance),
        heartbeat_interval_ms=_span("--interval", interval),
    )


def _span(option: str, text: str | None) -> int | None:
    from history.moments import parse_span

    if text is None:
        return None
    try:
        return int(text) if text.isdecimal() else parse_span(text)
    except ValueError as error:
        raise CommandError(f"{option}: {error}", code=ExitCode.USAGE) from error


def _print_json(answer: WhatIfAnswer) -> None:
    """Print the results without rows, which `quorate log export` has for the actual course."""
    results = [plain(replace(result, facts=None, really_facts=None)) for result in answer.results]
    for result, told in zip(answer.results, results, strict=True):
        del told["facts"], told["really_facts"]
        told["is_faithful"] = result.is_faithful
        told["difference"] = result.difference
    print_json({"results": results, "basis": [plain(basis) for basis in answer.basis]})
