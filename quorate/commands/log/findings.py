"""`quorate log findings`: anomalies in a log."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from quorate.commands.log.common import Utc, plain, print_lines, read_log, style_of
from quorate.commands.log.subject import DirMaybeGroup, Live, Since, Until, subject, window
from quorate.commands.options import Json, flag
from quorate.output import print_json


def findings(
    words: DirMaybeGroup = None,
    url: Live = None,
    since: Since = None,
    until: Until = None,
    rules: Annotated[
        bool, flag("--rules", "List the rules: what each means, which records it reads, and what to do.")
    ] = False,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """List anomalies by name, for all groups or one: slow revokers, flapping members, failed assignors, ...

    Example: quorate log findings quorate-data
    """
    from history.answers.findings import findings as read
    from history.answers.findings import findings_text
    from history.moments import LogWindow

    if rules:
        _list_rules(json)
        return
    has_group = len(words or ()) > (0 if url is not None else 1)
    log, names = subject(words, url, *(("GROUP",) if has_group else ()))
    group = names[0] if names else None
    begin, end = window(log, since, until, utc=utc, group=group)
    asked = LogWindow.between(begin, end)
    answer = read_log(log.path, lambda: read(log, group, asked))
    newest_ms = max((basis.last_timestamp_ms for basis in answer.basis), default=-1)
    if begin[1] is not None and newest_ms < begin[1]:
        ends = f"the log that was read ends at {style_of(utc).full(newest_ms)}, before the window begins"
        answer = replace(
            answer, notes=(*answer.notes, f"{ends}: nothing was written since, or not on this node")
        )
    if json:
        print_json(plain(answer))
    else:
        print_lines(log.path, findings_text(answer, style_of(utc)))


def _list_rules(json: bool) -> None:
    from history.answers.findings import rules_text
    from history.diagnoses import RULES

    if json:
        print_json({"rules": [rule.described() for rule in RULES.values()]})
    else:
        print_lines("", rules_text())
