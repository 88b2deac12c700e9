"""Output of commands: aligned text for people, one JSON document for programs, never both.

Text has no colour codes unless standard output is a terminal; only this module decides that. Colours are
painted by rich, which is loaded for terminals only: a pipe need not wait for it.
"""

from __future__ import annotations

import functools
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from history.columns import table, wrapped
from history.render import ranges
from quorate.errors import CommandError, ExitCode

if TYPE_CHECKING:
    from rich.console import Console


_HEADING = r"[A-Z][A-Z0-9/]*(?: (?:[A-Z][A-Z0-9/]*|\d+))*"

_FINDING = r" +(?:\d[\d,]* +)?[A-Z]{3,}(?:_[A-Z]+)+\b"

_COLOURS = (
    # The headings of a table; one word alone may be the rest of a heading that stands beside its value.
    (rf"^(?:{_HEADING}(?=  )| +{_HEADING})(?:  +{_HEADING})*$", "bold"),
    (r"\bStable\b", "green"),
    (r"\b(?:Assigning|Reconciling|PreparingRebalance|CompletingRebalance)\b", "yellow"),
    (r"\b(?:DOWN|HALTED)\b", "bold red"),
    (rf"\b(?:error|ERROR){_FINDING}", "red"),
    (rf"\b(?:warning|WARNING){_FINDING}", "yellow"),
    (r"^note:", "yellow"),
    (r"^quorate: error:", "bold red"),
)
"""Parts of a line that are coloured, as regular expressions, and how."""


def prepare_output() -> None:
    """Escape characters that the output's encoding lacks, and replace a closed standard output by devnull."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the end of the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def writing() -> Iterator[None]:
    """Report a failed write to standard output as such, and not as a failure to read the log."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritten(error) from error


def unwritten(error: OSError) -> CommandError:
    """The error for output that could not be written; drops all pending output, also at exit."""
    drop_output()
    return CommandError(
        f"the output cannot be written: {error.strerror}; what was written is incomplete",
        hint="write to another place",
        code=ExitCode.UNWRITTEN,
    )


def unwritten_file(path: Path | str, error: OSError) -> CommandError:
    """The error for a file that could not be written."""
    return CommandError(
        f"cannot write {path}: {error.strerror or error}",
        hint="free space or make it writable, or give another place",
        code=ExitCode.UNWRITTEN,
    )


def drop_output() -> None:
    """Discard pending output, which has no reader."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def flush_output() -> None:
    with writing():
        sys.stdout.flush()


def put(line: str, *, now: bool = False) -> None:
    """Print a line; `now` flushes it, so that a reader on a pipe sees it at once."""
    for shown in shown_lines(line, sys.stdout):
        _print(shown, now)


def shown_lines(line: str, stream: TextIO) -> list[str]:
    """A line as the stream shows it: on a terminal in colour, and wrapped to its width."""
    paint = painted if use_colour(stream) else str
    return [paint(part) for part in wrapped(line, terminal_width(stream))]


def put_json(text: str, *, now: bool = False) -> None:
    """Print a line of JSON, escaped so that foreign names are as harmless to a terminal as in text."""
    _print(_harmless_json(text, sys.stdout), now)


def _print(line: str, now: bool) -> None:
    with writing():
        print(line, flush=now)


def print_json(value: object, *, stream: TextIO | None = None) -> None:
    """Print `value` as one line of JSON and flush it."""
    text = json.dumps(value, ensure_ascii=False)
    if stream is None:
        put_json(text, now=True)
    else:
        print(_harmless_json(text, stream), file=stream, flush=True)


def _harmless_json(text: str, stream: TextIO) -> str:
    is_unicode = (stream.encoding or "utf-8").lower().startswith("utf")
    if text.isprintable() and (is_unicode or text.isascii()):
        return text
    return "".join(
        letter if letter.isprintable() and (is_unicode or letter.isascii()) else json.dumps(letter)[1:-1]
        for letter in text
    )


def say(line: str = "", *, now: bool = False) -> None:
    """Print a line with names chosen by clients, with control characters escaped; `now` as for `put`."""
    put(printable(line), now=now)


def notify(line: str) -> None:
    """Print a line to standard error, as `say` does to standard output."""
    for shown in shown_lines(printable(line), sys.stderr):
        print(shown, file=sys.stderr, flush=True)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "nothing") -> None:
    """Print rows under headings in columns that fit the terminal; without rows, print `empty`."""
    if not rows:
        put(empty)
        return
    for line in table_lines(headings, rows, terminal_width(sys.stdout)):
        put(line)


def table_lines(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    width: int | None = None,
    *,
    cell_lines_max: int | None = None,
) -> list[str]:
    """The lines of `history.columns.table`, with control characters in cells escaped."""
    harmless = [[printable(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    return table(headings, harmless, width, cell_lines_max=cell_lines_max)


def assignment_text(partitions_by_topic: Mapping[str, Sequence[int]]) -> str:
    """An assignment as `orders:0-2 payments:1`, or `-` if it is empty."""
    named = [f"{topic}:{ranges(p)}" for topic, p in sorted(partitions_by_topic.items()) if p]
    return " ".join(named) or "-"


def use_colour(stream: TextIO) -> bool:
    """Whether the stream is a terminal that wants colour (https://no-color.org, TERM=dumb)."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM", "") != "dumb"


def painted(line: str) -> str:
    """A line with the escape codes of its colours: headings, states, errors of Kafka, and notes stand out."""
    from rich.text import Text

    text = Text(line)
    for pattern, style in (*_COLOURS, (_kafka_errors(), "red")):
        text.highlight_regex(pattern, style)
    console = _console()
    with console.capture() as captured:
        console.print(text, end="", soft_wrap=True)
    return captured.get()


@functools.cache
def _kafka_errors() -> str:
    """A regular expression for the names of Kafka's errors that consist of several words."""
    from wire.errors import ErrorCode

    return rf"\b(?:{'|'.join(code.name for code in ErrorCode if '_' in code.name)})\b"


@functools.cache
def _console() -> Console:
    from rich.console import Console

    return Console(force_terminal=True, highlight=False, markup=False, emoji=False)


def printable(value: str) -> str:
    """Text from elsewhere with control characters escaped as `\\x1b` and the like, to protect a terminal."""
    if value.isprintable():
        return value
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in value
    )


def terminal_width(stream: TextIO) -> int | None:
    """The columns of the stream's terminal; None for a pipe or file, whose width is unlimited."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


class Screen:
    """Text that is shown repeatedly: in place on a terminal, elsewhere one below the other."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty() and os.environ.get("TERM", "") != "dumb"
        self._is_clear = False

    @property
    def room(self) -> int | None:
        """The lines below the title; None if there is no limit."""
        return max(shutil.get_terminal_size().lines - 3, 1) if self._is_terminal else None

    def show(self, title: str, lines: Sequence[str]) -> None:
        if not self._is_terminal:
            print(f"---- {title}", *lines, "", sep="\n", file=self._stream, flush=True)
            return
        room = self.room or len(lines)
        paint = painted if use_colour(self._stream) else str
        shown = [title[: shutil.get_terminal_size().columns], "", *map(paint, lines[:room])]
        if len(lines) > room:
            shown[-1] = f"… {len(lines) - room + 1} more lines: make the window taller, or leave out --watch"
        text = "".join(f"{line}\x1b[K\n" for line in shown)
        before = "\x1b[H" if self._is_clear else "\x1b[2J\x1b[H"
        self._stream.write(f"{before}{text}\x1b[J")
        self._stream.flush()
        self._is_clear = True
