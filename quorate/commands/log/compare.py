"""`quorate log compare`: whether the nodes of a cluster hold the same."""

from __future__ import annotations

from typing import Annotated

import typer

from quorate.commands.log.common import Utc, plain, print_lines, read_log, style_of
from quorate.commands.log.subject import LogData, files_only
from quorate.commands.options import Json, argument
from quorate.errors import ExitCode
from quorate.output import print_json


def compare(
    directories: Annotated[
        list[str] | None,
        argument(
            "[DIR]...",
            "The nodes' data directories, or a folder with them as node-1, node-2, … Default: quorate-data.",
        ),
    ] = None,
    data: LogData = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Compare the nodes of a cluster: the same entries, hash chain and state on all; exit code 1 if not.

    Undecided entries, and nodes that lag, are reported but do not count as differences.

    Example: quorate log compare node-1 node-2 node-3
    """
    given = files_only(directories, data, "compare")
    from history.checking.compare import compare as check
    from history.checking.compare import comparison_text

    comparison = read_log(given[0], lambda: check(given, style_of(utc)))
    if json:
        print_json({"ok": comparison.ok, "num_findings": comparison.num_findings} | plain(comparison))
    else:
        print_lines(given[0], comparison_text(comparison, style_of(utc)))
    if not comparison.ok:
        raise typer.Exit(ExitCode.FAILED)
