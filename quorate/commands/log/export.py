"""`quorate log export`: tables for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from quorate.commands.log.common import Utc, plain, print_lines, read_log
from quorate.commands.log.subject import (
    ANY_GROUPS,
    Live,
    LogData,
    LogGroups,
    Since,
    Until,
    subject,
    window,
)
from quorate.commands.options import GroupsNamed, Json, flag, option
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json


def export(
    words: LogGroups = None,
    data: LogData = None,
    url: Live = None,
    format: Annotated[str | None, option("--format", "FORMAT", "parquet, jsonl or csv.")] = None,
    output: Annotated[
        Path | None,
        option(
            "--output -o",
            "PATH",
            "A folder for one file per table, or a file NAME.FORMAT for a single table.",
        ),
    ] = None,
    table: Annotated[
        list[str] | None, option("--table", "TABLE", "Only this table; may be repeated.")
    ] = None,
    group: GroupsNamed = None,
    since: Since = None,
    until: Until = None,
    force: Annotated[bool, flag("--force", "Overwrite existing files.")] = False,
    tables: Annotated[bool, flag("--tables", "List the tables and their columns.")] = False,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Write the log as tables: records, epochs, ownership, commits, sessions, failovers, findings, ...

    Example: quorate log export quorate-data --format parquet --output tables
    """
    from history.export.formats import CannotWrite, DiskRefuses, PackageMissing
    from history.export.tables import export as write

    if tables:
        _list_tables(json)
        return
    if format is None or output is None:
        raise CommandError(
            "--format and --output are needed",
            hint="--format parquet --output FOLDER, for example; --tables lists the tables",
            code=ExitCode.USAGE,
        )
    log, groups = subject(words, data, url, ANY_GROUPS, group)
    one = groups[0] if len(groups) == 1 else None
    asked = window(log, since, until, utc=utc, group=one)
    try:
        done = read_log(
            log.path,
            lambda: write(log, output, format, tables=table or [], groups=groups, window=asked, force=force),
        )
    except DiskRefuses as error:
        hint = "nothing was written: free space or make it writable, or give another --output"
        raise CommandError(str(error), hint=hint, code=ExitCode.UNWRITTEN) from error
    except PackageMissing as error:
        raise CommandError(str(error), code=ExitCode.INSTALLATION) from error
    except CannotWrite as error:
        raise CommandError(str(error), code=ExitCode.USAGE) from error
    if json:
        print_json(plain(done))
        return
    print_lines(log.path, (f"{one.path}  {one.rows:,} rows, {one.size:,} bytes" for one in done.files))
    print_lines(log.path, (f"from {basis}" for basis in done.rests_on))
    print_lines(log.path, (f"note: {remark}" for remark in done.remarks))


def _list_tables(json: bool) -> None:
    from history.export.schema import tables_json, tables_text

    if json:
        print_json({"tables": tables_json()})
    else:
        print_lines("", tables_text())
