"""Runs in which nothing is wrong: no rule may find anything, with evidence or without."""

from __future__ import annotations

from itertools import product

import pytest

from history.diagnoses import findings_of

from .quiet import QUIET
from .score import read

SEEDS = range(100, 104)
ONCE_WRONG = (("planned leaves", 1010), ("planned leaves", 1021))
"""Seeds whose leaves were once diagnosed as a storm, because of the joins before."""


@pytest.mark.parametrize(("name", "seed"), [*product(QUIET, SEEDS), *ONCE_WRONG])
def test_nothing_is_found_where_nothing_is_wrong(name: str, seed: int) -> None:
    known = QUIET[name].run(seed)
    for with_evidence in (True, False):
        facts, notes = read(known, with_evidence=with_evidence)
        assert [(one.kind, one.words) for one in findings_of(facts, notes)] == []


def test_there_are_fifty_such_runs() -> None:
    assert len(QUIET) * len(SEEDS) >= 50
