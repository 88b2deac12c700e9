"""How commands print: aligned text for people, one JSON document for programs, never both.

Text goes out without colour codes unless standard output is a terminal; that decision is taken here only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from history.render import ranges


def print_json(value: object, *, stream: TextIO | None = None) -> None:
    """Print `value` as one line of JSON and flush, so that a reader on a pipe sees it at once."""
    print(json.dumps(value, ensure_ascii=False), file=stream or sys.stdout, flush=True)


def print_now(line: str) -> None:
    """A line that a reader on a pipe sees at once."""
    print(line, flush=True)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "nothing") -> None:
    """Print rows under headings, columns aligned; numbers to the right. Without rows, print `empty`."""
    if not rows:
        print(empty)
        return
    for line in table_lines(headings, rows):
        print(line)


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """The lines of a table, without trailing blanks."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(headings[i]), *(len(row[i]) for row in cells)) for i in range(len(headings))]
    rights = [
        all(row[i] is None or isinstance(row[i], int) for row in rows)
        and any(row[i] is not None for row in rows)
        for i in range(len(headings))
    ]
    lines = []
    for row in [list(headings), *cells]:
        padded = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, rights, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def assignment_text(partitions_by_topic: Mapping[str, Sequence[int]]) -> str:
    """An assignment as `orders:0-2 payments:1`, or `-` when it is empty."""
    named = [f"{topic}:{ranges(p)}" for topic, p in sorted(partitions_by_topic.items()) if p]
    return " ".join(named) or "-"


def use_colour(stream: TextIO) -> bool:
    """True if the stream is a terminal that wants colour (https://no-color.org, TERM=dumb)."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM", "") != "dumb"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return str(value)
