"""Output of commands: aligned text for people, one JSON document for programs, never both.

Text has no colour codes unless standard output is a terminal; only this module decides that.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import TextIO

from history.render import ranges
from quorate.errors import CommandError, ExitCode

TEXT_WIDTH_MIN = 20
COLUMN_WIDTH_MIN = 6
"""Narrower columns are not legible; a terminal too narrow for this wraps the lines itself."""

_PIECES = re.compile(r"[^ ,]*[ ,]+|[^ ,]+")


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


def drop_output() -> None:
    """Discard pending output, which has no reader."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def flush_output() -> None:
    with writing():
        sys.stdout.flush()


def put(line: str, *, now: bool = False) -> None:
    """Print a line unchanged; `now` flushes it, so that a reader on a pipe sees it at once."""
    with writing():
        print(line, flush=now)


def put_json(text: str, *, now: bool = False) -> None:
    """Print a line of JSON, escaped so that foreign names are as harmless to a terminal as in text."""
    put(_harmless_json(text, sys.stdout), now=now)


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


def say(line: str = "") -> None:
    """Print a line with names chosen by clients, with control characters escaped."""
    put(printable(line))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "nothing") -> None:
    """Print rows under headings in aligned columns, numbers to the right; without rows, print `empty`."""
    if not rows:
        put(empty)
        return
    for line in table_lines(headings, rows):
        put(line)


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """The lines of a table, without trailing blanks."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = _widths(headings, cells)
    rights = [_is_number_column([row[i] for row in rows]) for i in range(len(headings))]
    lines = []
    for row in [list(headings), *cells]:
        padded = [_padded(text, width, right) for text, width, right in zip(row, widths, rights, strict=True)]
        lines.append("  ".join(padded).rstrip())
    return lines


def _widths(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(display_width, column)) for column in zip(headings, *cells, strict=True)]


def assignment_text(partitions_by_topic: Mapping[str, Sequence[int]]) -> str:
    """An assignment as `orders:0-2 payments:1`, or `-` if it is empty."""
    named = [f"{topic}:{ranges(p)}" for topic, p in sorted(partitions_by_topic.items()) if p]
    return " ".join(named) or "-"


def use_colour(stream: TextIO) -> bool:
    """Whether the stream is a terminal that wants colour (https://no-color.org, TERM=dumb)."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM", "") != "dumb"


def _cell(value: object) -> str:
    return "-" if value is None else printable(str(value))


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - display_width(text))
    return blanks + text if right else text + blanks


def _is_number_column(values: Sequence[object]) -> bool:
    """Whether a column holds numbers only, apart from unknown values and wrapped lines of other cells."""
    known = [value for value in values if value is not None and value != ""]
    return bool(known) and all(isinstance(value, int) for value in known)


def printable(value: str) -> str:
    """Text from elsewhere with control characters escaped as `\\x1b` and the like, to protect a terminal."""
    if value.isprintable():
        return value
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in value
    )


def display_width(text: str) -> int:
    """The number of terminal columns of a text: two for wide letters, none for combining marks."""
    if text.isascii():
        return len(text)
    return sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def terminal_width(stream: TextIO) -> int | None:
    """The columns of the stream's terminal; None for a pipe or file, whose width is unlimited."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def wrapped(text: str, width: int | None, *, indent: str = "") -> list[str]:
    """A sentence as lines of at most `width` columns, the later ones indented."""
    if width is None:
        return [indent + text]
    parts = _cut(text, max(width - len(indent) - 2, TEXT_WIDTH_MIN))
    return [indent + ("  " if place else "") + part for place, part in enumerate(parts)]


def wrapped_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    width: int | None,
    *,
    cell_lines_max: int | None = None,
) -> list[str]:
    """The lines of a table no wider than `width`: the widest columns shrink, and their cells wrap.

    A cell of more than `cell_lines_max` lines is truncated, with a note that says so.
    """
    lines = table_lines(headings, rows)
    if width is None or all(display_width(line) <= width for line in lines):
        return lines
    cells = [[_cell(value) for value in row] for row in rows]
    widths = _fitted(_widths(headings, cells), width)
    narrow: list[Sequence[object]] = []
    for row, row_cells in zip(rows, cells, strict=True):
        columns = [
            _capped(_cut(cell, size), cell_lines_max) for cell, size in zip(row_cells, widths, strict=True)
        ]
        first, *rest = zip_longest(*columns, fillvalue="")
        # Numbers stay numbers, since alignment depends on it.
        narrow.append([a if a is None or isinstance(a, int) else b for a, b in zip(row, first, strict=True)])
        narrow += rest
    return table_lines(headings, narrow)


def _fitted(wanted: list[int], width: int) -> list[int]:
    """Column widths that fit the width as far as columns can shrink, the widest first."""
    widths = list(wanted)
    excess = sum(widths) + 2 * (len(widths) - 1) - width
    while excess > 0 and max(widths) > COLUMN_WIDTH_MIN:
        widest = widths.index(max(widths))
        widths[widest] -= 1
        excess -= 1
    return widths


def _capped(column: list[str], lines_max: int | None) -> list[str]:
    return column if lines_max is None or len(column) <= lines_max else [*column[: lines_max - 1], "…"]


def _cut(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, broken after blanks and commas, else anywhere."""
    lines, line, line_width = [], "", 0
    for piece in _PIECES.findall(text):
        piece_width = display_width(piece)
        if line and line_width + display_width(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line, line_width = "", 0
        while piece_width > width and display_width(piece.rstrip()) > width:
            head = _head(piece, width)
            lines.append(head)
            piece = piece[len(head) :]
            piece_width = display_width(piece)
        line, line_width = line + piece, line_width + piece_width
    return [*lines, line.rstrip()] if line.strip() or not lines else lines


def _head(text: str, width: int) -> str:
    """The longest prefix that fits, at least one letter."""
    used = 0
    for place, letter in enumerate(text):
        used += _letter_width(letter)
        if used > width and place:
            return text[:place]
    return text


class Screen:
    """Text that is shown repeatedly: in place on a terminal, elsewhere one below the other."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty() and os.environ.get("TERM", "") != "dumb"
        self._is_clear = False

    def show(self, title: str, lines: Sequence[str]) -> None:
        if not self._is_terminal:
            print(f"---- {title}", *lines, "", sep="\n", file=self._stream, flush=True)
            return
        size = shutil.get_terminal_size()
        room = max(size.lines - 3, 1)
        shown = [title, "", *lines[:room]]
        if len(lines) > room:
            shown[-1] = f"… {len(lines) - room + 1} more lines: make the window taller, or leave out --watch"
        text = "".join(f"{line}\x1b[K\n" for line in shown)
        before = "\x1b[H" if self._is_clear else "\x1b[2J\x1b[H"
        self._stream.write(f"{before}{text}\x1b[J")
        self._stream.flush()
        self._is_clear = True
