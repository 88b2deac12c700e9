"""The option `--html FILE`: where an answer that is a page is written."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from quorate.commands.options import flag, option
from quorate.errors import CommandError, ExitCode
from quorate.output import printable, unwritten_file

Html = Annotated[
    Path | None,
    option("--html", "FILE", "Write the result as one self-contained HTML file, for example for a ticket."),
]
Force = Annotated[bool, flag("--force", "Overwrite FILE if it exists.")]

ELSEWHERE = "give a file elsewhere"


def claim(file: Path, *, force: bool) -> None:
    """Raise `CommandError` before any work is done if the page could not be written at the end."""
    try:
        _check(file, force=force)
    except OSError as error:  # a directory that this user may not enter
        raise unwritten_file(file, error) from error


def _check(file: Path, *, force: bool) -> None:
    if file.is_dir():
        raise CommandError(f"{file} is a directory", hint="give a file in it", code=ExitCode.USAGE)
    if not file.parent.is_dir():
        raise CommandError(
            f"cannot write {file}: there is no directory {file.parent}", hint=ELSEWHERE, code=ExitCode.USAGE
        )
    if file.exists() and not file.is_file():
        raise CommandError(f"{file} is not a regular file", hint=ELSEWHERE, code=ExitCode.USAGE)
    if file.exists() and not force:
        raise CommandError(f"{file} already exists", hint="--force overwrites it", code=ExitCode.USAGE)


def write_page(file: Path, text: str, *, force: bool) -> str:
    """Write the page atomically; returns the line that says where it is and how large."""
    claim(file, force=force)
    data = text.encode()
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(file)
    except OSError as error:
        raise unwritten_file(file, error) from error
    finally:
        with suppress(OSError):
            beside.unlink()
    return printable(f"wrote {file} ({max(round(len(data) / 1000), 1):,} kB): open it in a browser")
