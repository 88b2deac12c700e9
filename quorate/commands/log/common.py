"""Shared by the commands of `quorate log`: options, times, reading of files, reporting of failures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

from quorate.commands.options import flag, option
from quorate.errors import CommandError, ExitCode
from quorate.output import flush_output, say

T = TypeVar("T")

METADATA_NAME = "metadata"
STATE_HASH = "state_hash"  # 64 bits: jq and JavaScript would round a JSON number

At = Annotated[
    str | None,
    option("--at", "INDEX|TIME|SPAN", "A log index, a time (2026-03-01T12:03:08), 03:12, 2h, end-5m."),
]
Utc = Annotated[bool, flag("--utc", "Show times in UTC instead of the local zone.")]


def plain(value: Any) -> Any:
    """A dataclass of `history` as JSON-ready values; bytes and hashes become hexadecimal text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
        if isinstance(members.get(STATE_HASH), int):
            members[STATE_HASH] = f"{members[STATE_HASH]:016x}"
        return members
    if isinstance(value, dict):
        return {str(key): plain(content) for key, content in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(content) for content in value]
    return value.hex() if isinstance(value, bytes) else value


def shard_number(text: str) -> int:
    from records.ids import METADATA_SHARD

    if text == METADATA_NAME:
        return METADATA_SHARD
    number = text.removeprefix("shard-")
    if not number.isdecimal():
        raise CommandError(
            f"{text!r} is not a shard", hint="give the shard's number, or `metadata`", code=ExitCode.USAGE
        )
    return int(number)


Shard = Annotated[
    int | None, option("--shard", "SHARD", "A shard's number, or `metadata`.", parser=shard_number)
]


def style_of(utc: bool) -> Any:
    from history.render import LOCAL, UTC_STYLE

    return UTC_STYLE if utc else LOCAL


def usage(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise CommandError(str(error), code=ExitCode.USAGE) from error


def read_log(directory: Path | str, question: Callable[[], T], notes: Sequence[str] = ()) -> T:
    """Run a query; errors of the files become one line. ``notes`` are about what was asked for."""
    try:
        return question()
    except Exception as error:
        explain_failure(directory, error, notes)


def print_lines(directory: Path | str, lines: Iterable[str], show: Callable[[str], None] = say) -> None:
    """Print lines as they are read: a log may be larger than memory."""
    try:
        for line in lines:
            show(line)
        flush_output()
    except BrokenPipeError:
        raise
    except Exception as error:
        explain_failure(directory, error)


def print_notes(notes: Iterable[str]) -> None:
    """Print what limits an answer, each as a line."""
    for note in notes:
        say(f"note: {note}")


def explain_failure(directory: Path | str, error: Exception, notes: Sequence[str] = ()) -> NoReturn:
    from history.reading.source import NothingToRead
    from raftlog.env.object_stores import PyarrowMissing
    from raftlog.offline.reader import Damaged
    from records import RecordsError

    if isinstance(error, NothingToRead):
        is_missing = isinstance(error.__cause__, PyarrowMissing)
        code = ExitCode.INSTALLATION if is_missing else ExitCode.UNREADABLE
        raise CommandError(str(error), hint="; ".join(notes), code=code) from error
    if isinstance(error.__cause__, CommandError):
        raise error.__cause__  # no node of a running cluster answered
    if isinstance(error, Damaged | RecordsError):
        # `verify` does not read running clusters
        is_live = str(directory).startswith(("http://", "https://"))
        raise CommandError(
            f"{directory} is too damaged: {error}",
            hint="" if is_live else f"`quorate log verify {directory}` lists all damage",
            code=ExitCode.UNREADABLE,
        ) from error
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        raise CommandError(
            f"cannot read {error.filename or directory}: {what}", code=ExitCode.UNREADABLE
        ) from error
    raise error
