"""`quorate log findings`: anomalies in a log."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import Annotated

from quorate.commands.log.common import Utc, plain, print_lines, read_log, style_of
from quorate.commands.log.subject import (
    Live,
    LogData,
    LogMaybeGroup,
    Since,
    Until,
    log_and_group,
    window,
)
from quorate.commands.options import GroupNamed, Json, flag, option
from quorate.output import print_json


class Least(StrEnum):
    """The severities that `--severity` takes."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


def findings(
    words: LogMaybeGroup = None,
    data: LogData = None,
    url: Live = None,
    named: GroupNamed = None,
    since: Since = None,
    until: Until = None,
    severity: Annotated[
        Least, option("--severity", "error|warning|note", "Only findings of this severity or a graver one.")
    ] = Least.NOTE,
    whole: Annotated[
        bool, flag("--all", "Every finding in full: what it rests on, and what to do about it.")
    ] = False,
    rules: Annotated[
        bool, flag("--rules", "List the rules: what each means, which records it reads, and what to do.")
    ] = False,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """List anomalies by name, for all groups or one: slow revokers, flapping members, failed assignors, ...

    A summary comes first, then the findings, the gravest first: in full if they fit thirty lines, else a line
    for each of the gravest. --all has every finding in full, --json every field.

    Example: quorate log findings quorate-data --severity warning
    """
    from history.answers.findings import findings as read
    from history.answers.findingstext import findings_text
    from history.facts.rows import Severity

    if rules:
        _list_rules(json)
        return
    log, group = log_and_group(words, data, url, named)
    asked = window(log, since, until, utc=utc, group=group)
    answer = read_log(log.path, lambda: read(log, group, asked), asked.notes)
    answer = answer.at_least(Severity(severity.value))
    if json:
        print_json(plain(answer))
        return
    given = {"--url": url, "--since": since, "--until": until, "--severity": severity.value}
    if severity is Least.NOTE:
        del given["--severity"]
    options = [word for name, value in given.items() if value is not None for word in (name, value)]
    again = shlex.join(["quorate", "log", "findings", *(words or ()), *options, *["--utc"] * utc])
    print_lines(log.path, findings_text(answer, style_of(utc), whole=whole, again=again))


def _list_rules(json: bool) -> None:
    from history.answers.findingstext import rules_text
    from history.diagnoses import RULES

    if json:
        print_json({"rules": [rule.described() for rule in RULES.values()]})
    else:
        print_lines("", rules_text())
