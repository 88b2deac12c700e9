"""C.14: the topics that expressions match, in bounded time, and the errors of costly or wide ones."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.limits import Limits
from coordinator.regex.expressions import (
    AT_ONCE,
    OUT_OF_TIME,
    TOO_COSTLY,
    Budget,
    match,
)

HOSTILE = ["(a+)+$", "(a|aa)+b", "(.*a){50}", "((((a?){10}){10}){10})", "(a?){300}a{300}", "(.?){500}"]


@pytest.mark.parametrize("regex", HOSTILE)
def test_a_pathological_expression_is_matched_in_linear_time_or_given_up(regex: str) -> None:
    """Expressions that backtrack for ever elsewhere are automata here."""
    names = ["a" * length for length in range(200, 249)]
    looks = 0

    def stopwatch_ms() -> float:
        nonlocal looks
        looks += 1
        return float(looks)

    (found,) = match([regex], names, Limits(), Budget(1_000.0, 2_000.0), stopwatch_ms)
    assert found == [place for place, name in enumerate(names) if _matches(regex, name)]
    assert looks < 10


def _matches(regex: str, name: str) -> bool:
    """Whether these expressions match a name that consists of the letter a."""
    return {
        "(a+)+$": True,
        "(a|aa)+b": False,
        "(.*a){50}": True,
        "((((a?){10}){10}){10})": True,
        "(a?){300}a{300}": False,
        "(.?){500}": True,
    }[regex]


def test_a_costly_expression_spoils_its_own_resolution_only() -> None:
    """Expressions that take too long together are tried in halves, so that the others have their result."""
    now_ms = 0.0

    def stopwatch_ms() -> float:
        nonlocal now_ms
        now_ms += 1.0
        return now_ms

    good = [f"t-{number}" for number in range(AT_ONCE - 1)]
    names = [f"t-{number}" for number in range(40)]
    too_large = r"(\pL|\pN){900}"  # for an automaton
    found = match([*good[:50], too_large, *good[50:]], names, Limits(), Budget(100, 10_000), stopwatch_ms)
    assert found[50] == TOO_COSTLY
    assert [found[number] for number in (0, 39, 49, 51)] == [[0], [39], [], []]
    assert match(["a", "b"], ["a"], Limits(), Budget(-1, 10_000), stopwatch_ms) == [TOO_COSTLY] * 2
    assert match(["a", "b"], ["a"], Limits(), Budget(10, -1), stopwatch_ms) == [OUT_OF_TIME] * 2


def test_what_matches_too_much_says_so() -> None:
    names = [f"t-{number}" for number in range(30)]
    limits = Limits(resolved_topics_max=10, resolved_names_max=12)
    found = match(["t-1.", "t-.*", "t-.", "t-2"], names, limits, Budget(100, 100), lambda: 0.0)
    assert found[0] == list(range(10, 20))
    assert found[1] == "matches 30 topics; at most 10 are allowed"
    assert found[2] == "is not resolved: the group's expressions match more than 12 topics"
    assert found[3] == [2]


pieces = st.one_of(
    st.text(alphabet="abc-_", min_size=1, max_size=3),
    st.sampled_from([".", ".*", "[ab]", "[^a]", "a?", "(ab)*", "(a|b-)", "b+", "c{2}", "[a-c]{1,2}"]),
)
patterns = st.lists(pieces, min_size=1, max_size=4).map("".join)
topic_names = st.lists(st.text(alphabet="abc-_", min_size=1, max_size=6), max_size=20, unique=True)


@settings(max_examples=200, deadline=None)
@given(st.lists(patterns, max_size=8), topic_names)
def test_a_resolution_is_what_an_independent_matcher_says(regexes: list[str], names: list[str]) -> None:
    """Expressions that both understand alike match the same, one by one in Python and together in RE2."""
    found = match(regexes, names, Limits(), Budget(1e9, 1e9), lambda: 0.0)
    assert found == [
        [place for place, name in enumerate(names) if re.fullmatch(regex, name)] for regex in regexes
    ]


def test_more_expressions_than_fit_into_one_automaton() -> None:
    regexes = [f"t-{number}(-.*)?" for number in range(3 * AT_ONCE + 7)]
    names = [f"t-{number}-x" for number in range(200)]
    found = match(regexes, names, Limits(), Budget(1e9, 1e9), lambda: 0.0)
    assert found == [[number] if number < 200 else [] for number in range(len(regexes))]
