"""`quorate log verify`: whether the log is sound."""

from __future__ import annotations

import typer

from quorate.commands.log.common import plain, print_lines, read_log
from quorate.commands.log.subject import LogData, LogOnly, one_directory
from quorate.commands.options import Json
from quorate.errors import ExitCode
from quorate.output import print_json, say


def verify(words: LogOnly = None, data: LogData = None, json: Json = False) -> None:
    """Check every byte and every invariant; exit code 1 and the exact place if something is broken.

    In a folder with a cluster's nodes each is checked by itself; `quorate log compare` compares them. This
    reads files only: a running node's directory may be given, but not its URL.

    Example: quorate log verify quorate-data
    """
    directory = one_directory(words, data, "verify")
    from history.checking.verify import report_text
    from history.checking.verify import verify as check
    from history.reading.members import node_directories

    reports = read_log(directory, lambda: [check(path) for path in node_directories(directory)])
    if json:
        shown = [{"ok": one.ok, "findings": one.findings} | plain(one) for one in reports]
        print_json(shown[0] if len(shown) == 1 else {"ok": all(r.ok for r in reports), "nodes": shown})
    else:
        for report in reports:
            if len(reports) > 1:
                say(report.path)
            print_lines(directory, report_text(report))
    if not all(report.ok for report in reports):
        raise typer.Exit(ExitCode.FAILED)
