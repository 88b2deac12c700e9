"""JSON in slices: the same text as `json.dumps`, for answers that may describe ten thousand members.

Only the outer containers are walked in Python; their elements go to the C encoder, one at a time. Elements at
that depth (a member, a topic) are small compared with a slice.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import Any, Final

DEPTH: Final = 3
"""Nesting of an answer's containers: the answer, the group in it, its members."""

PIECE_CHARS: Final = 16_384
"""Characters between two steps: a fraction of a millisecond. Most answers are smaller."""


def json_text(answer: Any) -> Generator[None, None, str]:
    """Return the text of an answer, which must not change meanwhile."""
    pieces: list[str] = []
    num_chars = 0
    for piece in _pieces(answer, DEPTH):
        pieces.append(piece)
        num_chars += len(piece)
        if num_chars >= PIECE_CHARS:
            num_chars = 0
            yield
    return "".join(pieces)


def _pieces(value: Any, depth: int) -> Iterator[str]:
    if depth and value and isinstance(value, dict):
        before = "{"
        for key, inner in value.items():
            yield f"{before}{json.dumps(key)}: "
            yield from _pieces(inner, depth - 1)
            before = ", "
        yield "}"
    elif depth and value and isinstance(value, list):
        before = "["
        for inner in value:
            yield before
            yield from _pieces(inner, depth - 1)
            before = ", "
        yield "]"
    else:
        yield json.dumps(value)
