"""`quorate log verify` and `compare`: is the log sound, are the nodes the same?"""

from __future__ import annotations

from typing import Annotated

import typer

from quorate.commands.log.common import Utc, plain, print_lines, read_log, style_of
from quorate.commands.log.subject import DirOnly, Live, files_only
from quorate.commands.options import Json
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, say


def verify(words: DirOnly = None, url: Live = None, json: Json = False) -> None:
    """Check every byte and every invariant; exit code 1 and the exact place if something is broken.

    Of a folder that holds a cluster's nodes each is checked; `quorate log compare` holds them to each other.
    Files only: a running node's may be given, its URL not.

    Example: quorate log verify quorate-data
    """
    directory, *more = files_only(words, url, "verify")
    if more:
        raise CommandError(
            f"verify takes one directory, got {' '.join((directory, *more))}",
            hint="`quorate log compare` takes several",
            code=ExitCode.USAGE,
        )
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


def compare(
    directories: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DIR DIR [DIR…]",
            help="The nodes' data directories, or the one folder that holds them as node-1, node-2, …",
            show_default=False,
        ),
    ] = None,
    url: Live = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Compare the nodes of a cluster: the same entries, hash chain and state on all; exit code 1 if not.

    What was never decided, and being behind, is told and is no difference.

    Example: quorate log compare node-1 node-2 node-3
    """
    given = files_only(directories, url, "compare")
    from history.checking.compare import compare as check
    from history.checking.compare import comparison_text

    comparison = read_log(given[0], lambda: check(given, style_of(utc)))
    if json:
        print_json({"ok": comparison.ok, "num_findings": comparison.num_findings} | plain(comparison))
    else:
        print_lines(given[0], comparison_text(comparison, style_of(utc)))
    if not comparison.ok:
        raise typer.Exit(ExitCode.FAILED)
