"""The missing entries of a log, divided into pieces by plain functions, without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from quorate.spark.runs.ingesting import Run
from quorate.spark.runs.losses import Hole, Range, holes_in, pieces

HOLE = Hole(shard=0, first=40, last=49, from_ms=400, to_ms=500)
TORN = "entries after index 41 cannot be read: torn"


def undecodable(index: int) -> tuple[int, str]:
    return (
        index,
        f"entries after index {index - 1} cannot be read: entry {index} cannot be decoded: no such type",
    )


def taken_apart(*said: tuple[int, str]) -> list[tuple[int, int, int]]:
    found = list(pieces(HOLE, said))
    assert all(replace(one, first=40, last=49) == HOLE for one, _ in found)
    assert [words for _, several in found for words in several] == [words for _, words in said]
    return [(one.first, one.last, len(words)) for one, words in found]


def test_what_is_lost_together_is_one_piece() -> None:
    assert taken_apart() == [(40, 49, 0)]
    assert taken_apart((40, TORN), (45, TORN)) == [(40, 49, 2)]


def test_entries_that_cannot_be_decoded_are_pieces_by_themselves() -> None:
    """Two neighbouring pieces leave no gap, and entries lost beside one make a piece of their own."""
    assert taken_apart(*map(undecodable, range(40, 50))) == [(at, at, 1) for at in range(40, 50)]
    assert taken_apart(undecodable(40), (41, TORN)) == [(40, 40, 1), (41, 49, 1)]
    assert taken_apart((40, TORN), undecodable(44)) == [(40, 43, 1), (44, 44, 1), (45, 49, 0)]
    assert taken_apart((40, TORN), undecodable(49)) == [(40, 48, 1), (49, 49, 1)]


def test_holes_are_between_what_was_read() -> None:
    asked = Range(from_index=10, to_index=20)

    def holes(*runs: tuple[int, int]) -> list[tuple[int, int, int, int | None]]:
        read = [Run(first, last, first * 10, last * 10) for first, last in runs]
        return [(one.first, one.last, one.from_ms, one.to_ms) for one in holes_in(0, asked, read)]

    assert holes((10, 20)) == []
    assert holes() == [(10, 20, 0, None)]
    assert holes((12, 14), (16, 18)) == [(10, 11, 120, 120), (15, 15, 140, 160), (19, 20, 180, None)]
