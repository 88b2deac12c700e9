"""Regular expressions over topic names: validation and matching.

The engine is RE2, whose time is linear in the name whatever the expression, so no expression can block a
node. Matching can still be slow by a large factor, so size and memory are bounded, and matching has a time
budget. Many expressions are matched at once as one automaton. An automaton that runs out of memory reports
"no match", so each automaton has an additional expression that matches everything, and a result without a
match of that one is rejected. A set that is too costly is split in halves, so that one costly expression only
prevents its own resolution.

The module is pure: the clock is passed in as a stopwatch. RE2's logging is disabled, because it would write
to stderr.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import re2

from coordinator.limits import Limits

AT_ONCE = 100
"""Expressions in one automaton. This size was the fastest for 1,000 expressions over 10,000 names, and keeps
automata small."""

MEMORY_BYTES_MAX = 8 * 1024 * 1024
"""Memory bound of one automaton, RE2's own default; the largest valid expression needs an eighth of it."""

NAMES_PER_LOOK = 50
"""Names matched between two checks of the stopwatch: 0.1 ms for any reasonable expression."""

EVERYTHING = "(?s).*"

TOO_COSTLY = "takes too long to match: simplify it"
OUT_OF_TIME = "is not resolved: the group's other expressions used up the time limit"


class InvalidExpression(ValueError):
    """An invalid expression; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Time bounds for matching, in ms: for one automaton, and for all of them."""

    at_once_ms: float
    total_ms: float


Found = list[int] | str
"""Positions of the names that an expression matches, ascending; or an error message."""


def check_expression(expression: str, limits: Limits) -> None:
    """Raise `InvalidExpression` if RE2 cannot compile the expression within its bounds."""
    size = len(expression.encode(errors="surrogatepass"))
    if size > limits.regex_bytes_max:
        raise InvalidExpression(f"it has {size} bytes; the maximum is {limits.regex_bytes_max}")
    try:
        re2.compile(expression, _options(limits.regex_program_bytes_max))
    except UnicodeEncodeError as error:
        raise InvalidExpression("it is not valid UTF-8") from error
    except re2.error as error:
        raise InvalidExpression(_words(error)) from error
    finally:
        re2.purge()  # its cache would hold 128 programs of any size


def match(
    expressions: Sequence[str],
    names: Sequence[str],
    limits: Limits,
    budget: Budget,
    stopwatch_ms: Callable[[], float],
) -> list[Found]:
    """The matches of each expression. An expression must match a name as a whole."""
    return _Matching(expressions, names, limits, budget, stopwatch_ms).run()


Names = TypeVar("Names", bound=Sequence[object])


def within_bounds(names: Names, num_others: int, limits: Limits) -> Names | str:
    """Return the names that one expression matches, or an error message if these are too many.

    The number is bounded for one expression (10,000 by default) and for all of a group together."""
    if len(names) > limits.resolved_topics_max:
        return f"matches {len(names)} topics; at most {limits.resolved_topics_max} are allowed"
    if num_others + len(names) > limits.resolved_names_max:
        return f"is not resolved: the group's expressions match more than {limits.resolved_names_max} topics"
    return names


class _Matching:
    """The state of one call of `match`."""

    def __init__(
        self,
        expressions: Sequence[str],
        names: Sequence[str],
        limits: Limits,
        budget: Budget,
        stopwatch_ms: Callable[[], float],
    ) -> None:
        self._expressions = expressions
        self._limits = limits
        self._names = [name.encode() for name in names]
        self._budget = budget
        self._now_ms = stopwatch_ms
        self._end_ms = stopwatch_ms() + budget.total_ms
        self._found: list[Found] = [OUT_OF_TIME] * len(expressions)
        self._num_found = 0

    def run(self) -> list[Found]:
        waiting = [
            range(start, min(start + AT_ONCE, len(self._expressions)))
            for start in range(0, len(self._expressions), AT_ONCE)
        ]
        while waiting and self._now_ms() <= self._end_ms:
            part = waiting.pop(0)
            found = self._together(part)
            if found is not None:
                for number, positions in zip(part, found, strict=True):
                    self._found[number] = within_bounds(positions, self._num_found, self._limits)
                    self._num_found += len(self._found[number]) if self._found[number] is positions else 0
            elif len(part) == 1:
                self._found[part[0]] = TOO_COSTLY
            else:
                middle = len(part) // 2
                waiting += [part[:middle], part[middle:]]  # after those that may be cheap
        return self._found

    def _together(self, part: range) -> list[list[int]] | None:
        """Match these expressions in one automaton; None if that costs too much time or memory."""
        automaton = re2.Set.FullMatchSet(_options(MEMORY_BYTES_MAX))
        try:
            for number in part:
                automaton.Add(self._expressions[number])
            everything = automaton.Add(EVERYTHING)
            automaton.Compile()
        except re2.error:
            return None
        found: list[list[int]] = [[] for _ in part]
        end_ms = min(self._now_ms() + self._budget.at_once_ms, self._end_ms)
        for position, name in enumerate(self._names):
            if position % NAMES_PER_LOOK == 0 and self._now_ms() > end_ms:
                return None
            matches = automaton.Match(name) or ()
            if everything not in matches:
                return None
            for place in matches:
                if place != everything:
                    found[place].append(position)
        return found


def _options(memory_bytes_max: int) -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = memory_bytes_max
    return options


def _words(error: Exception) -> str:
    """RE2's error message, which comes as bytes."""
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
