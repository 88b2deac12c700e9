"""Tables and sentences that fit a width: the one place that lays out columns.

A table has its natural width if there is room. Otherwise its widest columns shrink, and their cells wrap
after blanks and commas, as long as no word has to be broken. If that is not enough, each row becomes a block
of lines, a heading and its value on each.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import zip_longest

GAP = "  "
TEXT_WIDTH_MIN = 20
LABEL_PART = 3
"""A label that takes more than this part of the width has its text below it and not beside it."""
WORD_WIDTH_MAX = 24
"""A word that is longer, and longer than a third of the width, may be broken: a name that a client chose."""

_PIECES = re.compile(r"[^ ,]*[ ,]+|[^ ,]+")


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    width: int | None = None,
    *,
    numbers: Sequence[int] | None = None,
    cell_lines_max: int | None = None,
) -> list[str]:
    """The lines of a table no wider than `width` columns (None: without limit), without trailing blanks.

    Headings are written in capitals, so that they stand out, also without colour.
    `numbers` are the positions of columns that are aligned to the right; None: those that hold integers only.
    None in a cell is shown as `-`. A cell of more than `cell_lines_max` lines ends with `…`.
    """
    headings = [heading.upper() for heading in headings]
    cells = [["-" if value is None else str(value) for value in row] for row in rows]
    columns = list(zip(headings, *cells, strict=True))
    widths = [max(map(display_width, column)) for column in columns]
    if width is not None and _total(widths) > width:
        least = [max(_longest_word(cell, width) for cell in column) for column in columns]
        if _total(least) > width:
            return _blocks(headings, cells, width, cell_lines_max)
        widths = _fitted(widths, least, width)
    if numbers is None:
        numbers = [place for place in range(len(headings)) if _is_number_column([row[place] for row in rows])]
    lines = []
    for row in [headings, *cells]:
        wrapped_cells = [
            _capped(cut(cell, size), cell_lines_max) for cell, size in zip(row, widths, strict=True)
        ]
        for level in zip_longest(*wrapped_cells, fillvalue=""):
            padded = [
                _padded(text, size, place in numbers)
                for place, (text, size) in enumerate(zip(level, widths, strict=True))
            ]
            lines.append(GAP.join(padded).rstrip())
    return lines


def wrapped(line: str, width: int | None) -> list[str]:
    """A line as lines of at most `width` columns (None: without limit).

    The later ones are indented by two more blanks; below a label such as `  because   ` they are indented to
    the text behind it.
    """
    if width is None or display_width(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip(" "))
    label_end = line.find("  ", indent)
    text_at = len(line) - len(line[label_end:].lstrip(" "))
    if label_end > 0 and text_at <= width // LABEL_PART:
        hanging = display_width(line[:text_at])
    else:
        text_at, hanging = indent, indent + 2
    first, *rest = cut(line[text_at:], max(width - hanging, TEXT_WIDTH_MIN))
    return [line[:text_at] + first, *(" " * hanging + part for part in rest)]


def cut(text: str, width: int) -> list[str]:
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


def display_width(text: str) -> int:
    """The number of terminal columns of a text: two for wide letters, none for combining marks."""
    if text.isascii():
        return len(text)
    return sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _blocks(
    headings: Sequence[str], cells: Sequence[Sequence[str]], width: int, lines_max: int | None
) -> list[str]:
    """A block for each row, with a heading and its value on each line, and a blank line between blocks."""
    title_width = max(map(display_width, headings))
    if title_width + len(GAP) + TEXT_WIDTH_MIN > width:
        title_width = max(width // 3, 1)
    room = max(width - title_width - len(GAP), 1)
    lines: list[str] = []
    for row in cells:
        lines += [""] if lines else []
        for heading, cell in zip(headings, row, strict=True):
            value = _capped(cut(cell, room), lines_max)
            for title, text in zip_longest(cut(heading, title_width), value, fillvalue=""):
                lines.append((_padded(title, title_width, False) + GAP + text).rstrip())
    return lines


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _longest_word(text: str, width: int) -> int:
    longest = max((display_width(piece.rstrip()) for piece in _PIECES.findall(text)), default=0)
    return min(longest, max(width // 3, WORD_WIDTH_MAX))


def _fitted(wanted: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Column widths that fit the width: the widest of those that may still shrink gives way first."""
    widths = list(wanted)
    for _ in range(_total(wanted) - width):
        widest = max((size, place) for place, size in enumerate(widths) if size > least[place])[1]
        widths[widest] -= 1
    return widths


def _capped(column: list[str], lines_max: int | None) -> list[str]:
    return column if lines_max is None or len(column) <= lines_max else [*column[: lines_max - 1], "…"]


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - display_width(text))
    return blanks + text if right else text + blanks


def _is_number_column(values: Sequence[object]) -> bool:
    """Whether a column holds numbers only, apart from unknown values."""
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int) for value in known)


def _head(text: str, width: int) -> str:
    """The longest prefix that fits, at least one letter."""
    used = 0
    for place, letter in enumerate(text):
        used += _letter_width(letter)
        if used > width and place:
            return text[:place]
    return text
