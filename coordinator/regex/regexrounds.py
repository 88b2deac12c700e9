"""One round of resolution: its request, the answers, and how these differ from the group's state.

A round matches many expressions against many names, and most results are already known to the group. So
answers are small, with positions instead of names, and are compared with the group in parts of a given number
of names, each in its own turn of the event loop. Differences are written after all answers have been
compared, so that a round changes the group once.

Invariants: positions refer to the names in the request, in their order, however the catalog has changed
since. An invalid answer is detected before any part of it is written.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

from coordinator.limits import Limits
from coordinator.regex import expressions
from coordinator.regex.expressions import Budget
from coordinator.state.model import Group
from coordinator.topics import CatalogView

AT_ONCE_MS, AT_ONCE_NAME_MS = 300.0, 0.02
"""Time that a child may spend on up to a hundred expressions, in ms: a base, and an addition per name. A
reasonable set of a hundred takes a twentieth of it."""

CHILD_TOTAL_MS = 10_000.0
"""Time budget in ms for each of the two halves of a round (fresh and stale expressions)."""

AUTOMATON_COST = 10
"""Cost of building an expression's automaton, in names that could be matched in the same time."""

LOOK_COST = 10
"""Overhead of each expression when answers are compared, in names that could be compared in the same time."""

POSITION = "I"
"""Type code of positions: 4 bytes in native byte order, as both processes run on the same machine."""

Answer = bytes | str
"""The answer for one expression: positions of the names that it matches, ascending, as an array of
`POSITION`; or an error message."""

Resolved = dict[str, tuple[str, ...] | str]
"""By expression: all names that it matches, sorted; or an error message."""


@dataclass(frozen=True, slots=True)
class RegexRound:
    """A request to resolve expressions.

    `fresh` expressions are matched against all `names`. `stale` ones, whose result is known for an older
    catalog, are only matched against the topics `changed` since. `version` is the catalog's."""

    version: int
    is_full: bool
    fresh: tuple[str, ...]
    names: tuple[str, ...]
    stale: tuple[str, ...]
    changed: tuple[str, ...]

    @property
    def cost(self) -> int:
        """Estimated cost in matches of one name by one expression, plus `AUTOMATON_COST` per expression."""
        cost = len(self.fresh) * (AUTOMATON_COST + len(self.names))
        if self.changed:
            cost += len(self.stale) * (AUTOMATON_COST + len(self.changed))
        return cost

    def question(self, limits: Limits) -> dict[str, Any]:
        """The request to a child process; see `answer_round`."""
        return {
            "fresh": self.fresh,
            "names": self.names,
            "stale": self.stale,
            "changed": self.changed,
            "topics_max": limits.resolved_topics_max,
            "names_max": limits.resolved_names_max,
        }

    def answers(self, limits: Limits, budget: Budget, stopwatch_ms: Callable[[], float]) -> list[Answer]:
        """Answers for each fresh and then each stale expression, computed here within the budget."""
        return _answers(self.fresh, self.names, limits, budget, stopwatch_ms) + _answers(
            self.stale, self.changed, limits, budget, stopwatch_ms
        )


def answer_round(request: Mapping[str, Any], stopwatch_ms: Callable[[], float]) -> list[Answer]:
    """Compute a child process's answers: for each fresh and then each stale expression."""
    limits = Limits(resolved_topics_max=request["topics_max"], resolved_names_max=request["names_max"])
    answers: list[Answer] = []
    for regexes, names in ((request["fresh"], request["names"]), (request["stale"], request["changed"])):
        budget = Budget(AT_ONCE_MS + AT_ONCE_NAME_MS * len(names), CHILD_TOTAL_MS)
        answers += _answers(regexes, names, limits, budget, stopwatch_ms)
    return answers


def _answers(
    regexes: Any, names: Any, limits: Limits, budget: Budget, stopwatch_ms: Callable[[], float]
) -> list[Answer]:
    return [
        found if isinstance(found, str) else array(POSITION, found).tobytes()
        for found in expressions.match(regexes, names, limits, budget, stopwatch_ms)
    ]


@dataclass(slots=True)
class Taking:
    """An answer whose results are being compared with the group and written to the log."""

    asked: RegexRound
    cost_ms: float
    """Time that the computation of the answer took, in ms."""
    unread: Iterator[tuple[str, bool, object]]
    """Results that were not compared with the group yet: expression, whether it is fresh, answer."""
    changed: frozenset[str]
    """The names against which stale expressions were matched."""
    new_results: Resolved = field(default_factory=dict)
    """Results that differ from the group's and are not in the log yet."""

    @classmethod
    def of(cls, asked: RegexRound, answers: object, cost_ms: float) -> Taking:
        """Begin to process an answer. Raises TypeError or ValueError if it does not fit the request."""
        if not isinstance(answers, list):
            raise TypeError(f"not a list: {type(answers).__name__}")
        num_fresh, num_stale = len(asked.fresh), len(asked.stale)
        if len(answers) != num_fresh + num_stale:
            raise ValueError(f"{len(answers)} answers for {num_fresh + num_stale} expressions")
        is_fresh = chain(repeat(True, num_fresh), repeat(False, num_stale))
        unread = zip(chain(asked.fresh, asked.stale), is_fresh, answers, strict=True)
        return cls(asked, cost_ms, unread, frozenset(asked.changed))

    def look(self, group: Group, errors: Container[str], catalog: CatalogView, names_max: int) -> bool:
        """Compare some answers with the group, up to about `names_max` names; return whether none is left.

        `errors` are the expressions that have an error so far, so that any answer for them is a difference.
        Raises TypeError, ValueError or LookupError for invalid answers."""
        num_looked_at = 0
        for regex, is_fresh, answer in self.unread:
            old = group.regexes.get(regex)
            old_names = old.topics if old is not None else ()
            names = self._names(is_fresh, old_names, answer, catalog)
            if isinstance(names, str) or old is None or names != old_names or regex in errors:
                self.new_results[regex] = names
            num_looked_at += LOOK_COST + max(len(names), len(old_names))
            if num_looked_at > names_max:
                return False
        return True

    def _names(
        self, is_fresh: bool, old: tuple[str, ...], answer: object, catalog: CatalogView
    ) -> tuple[str, ...] | str:
        """All names that the expression matches, or an error message."""
        if isinstance(answer, str):
            return answer
        if not isinstance(answer, bytes):
            raise TypeError(f"positions are bytes, not {type(answer).__name__}")
        positions = array(POSITION, answer)
        if is_fresh:
            asked = self.asked.names
            return tuple(sorted([asked[position] for position in positions]))
        asked = self.asked.changed
        kept = {name for name in old if name not in self.changed and catalog.topic(name) is not None}
        return tuple(sorted(kept.union([asked[position] for position in positions])))
