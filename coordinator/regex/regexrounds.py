"""One round of resolution: what is asked, what is answered, and what of the answer is news to the group.

A round asks for many expressions over many names, and mostly hears what the group knows. So answers are
small, positions in place of names, and are looked through a named part at a time, each part in a turn of the
loop of its own; what is news is written when all has been looked through, so that a round is one change of
the group.

What must stay true: positions are of the names that were asked, in their order, whatever the catalog has
become since; an answer that makes no sense is found out before anything of it is written.
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
"""What a child spends on a hundred expressions at most, and what of that on each name; a sensible set of a
hundred takes a twentieth."""

CHILD_TOTAL_MS = 10_000.0
"""For each of the two halves of a round."""

AUTOMATON_COST = 10
"""Names that could be matched in the time that it takes to make an expression's automaton."""

LOOK_COST = 10
"""Names that could be looked at in the time that an expression takes besides."""

POSITION = "I"
"""4 bytes, in the order of the machine that both processes run on."""

Answer = bytes | str
"""For one expression: positions of the names that it matches, ascending, as an array of `POSITION`; or why
that could not be said."""

Resolved = dict[str, tuple[str, ...] | str]
"""By expression: all names that it matches, sorted; or why that could not be said."""


@dataclass(frozen=True, slots=True)
class Round:
    """What is asked: `fresh` expressions against all `names`; `stale` ones, whose result is known as of an
    older catalog, only against the topics that `changed` since. `version` is the catalog's."""

    version: int
    is_full: bool
    fresh: tuple[str, ...]
    names: tuple[str, ...]
    stale: tuple[str, ...]
    changed: tuple[str, ...]

    @property
    def cost(self) -> int:
        """Matches of one name by one expression; making an expression's automaton counts as some more."""
        cost = len(self.fresh) * (AUTOMATON_COST + len(self.names))
        if self.changed:
            cost += len(self.stale) * (AUTOMATON_COST + len(self.changed))
        return cost

    def question(self, limits: Limits) -> dict[str, Any]:
        """For a child process; see `answer_round`."""
        return {
            "fresh": self.fresh,
            "names": self.names,
            "stale": self.stale,
            "changed": self.changed,
            "topics_max": limits.resolved_topics_max,
            "names_max": limits.resolved_names_max,
        }

    def answers(self, limits: Limits, budget: Budget, stopwatch_ms: Callable[[], float]) -> list[Answer]:
        """For each fresh and then each stale expression, worked out here and within the budget."""
        return _answers(self.fresh, self.names, limits, budget, stopwatch_ms) + _answers(
            self.stale, self.changed, limits, budget, stopwatch_ms
        )


def answer_round(request: Mapping[str, Any], stopwatch_ms: Callable[[], float]) -> list[Answer]:
    """What a child process answers to the question: for each fresh and then each stale expression."""
    limits = Limits(resolved_topics_max=request["topics_max"], resolved_names_max=request["names_max"])
    answers: list[Answer] = []
    for regexes, names in (
        (request["fresh"], request["names"]),
        (request["stale"], request["changed"]),
    ):
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
    """An answer on its way into the log."""

    asked: Round
    cost_ms: float
    """What it took to find it."""
    unread: Iterator[tuple[str, bool, object]]
    """What has not been compared with what the group has: expression, whether it is fresh, answer."""
    changed: frozenset[str]
    """The names that were asked for stale expressions."""
    news: Resolved = field(default_factory=dict)
    """What differs from what the group has, and is not in the log yet."""

    @classmethod
    def of(cls, asked: Round, answers: object, cost_ms: float) -> Taking:
        """TypeError or ValueError for what answers something else."""
        if not isinstance(answers, list):
            raise TypeError(f"not a list: {type(answers).__name__}")
        num_fresh, num_stale = len(asked.fresh), len(asked.stale)
        if len(answers) != num_fresh + num_stale:
            raise ValueError(f"{len(answers)} answers for {num_fresh + num_stale} expressions")
        is_fresh = chain(repeat(True, num_fresh), repeat(False, num_stale))
        unread = zip(chain(asked.fresh, asked.stale), is_fresh, answers, strict=True)
        return cls(asked, cost_ms, unread, frozenset(asked.changed))

    def look(self, group: Group, errors: Container[str], catalog: CatalogView, names_max: int) -> bool:
        """Compares some answers with what the group has, about `names_max` names; whether none is left.

        `errors` are the expressions that had none so far, so that any answer for them is news. TypeError,
        ValueError or LookupError for answers that make no sense."""
        num_looked_at = 0
        for regex, is_fresh, answer in self.unread:
            old = group.regexes.get(regex)
            old_names = old.topics if old is not None else ()
            names = self._names(is_fresh, old_names, answer, catalog)
            if isinstance(names, str) or old is None or names != old_names or regex in errors:
                self.news[regex] = names
            num_looked_at += LOOK_COST + max(len(names), len(old_names))
            if num_looked_at > names_max:
                return False
        return True

    def _names(
        self, is_fresh: bool, old: tuple[str, ...], answer: object, catalog: CatalogView
    ) -> tuple[str, ...] | str:
        """All that the expression matches, or why that could not be said."""
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
