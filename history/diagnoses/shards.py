"""The findings of a shard, from its terms alone: failovers, and leaders that do not last.

A change of leader concerns all groups of the shard, so it is one finding of the shard, without a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from history.facts.rows import GroupFinding, TermRow
from history.words import shard_name

from .case import HOUR_MS, Horizon
from .findings import by_begin, finding_of, uncovered
from .leaders import failovers, flapping
from .table import RULES

LEADERS = Horizon(look_back_ms=4 * HOUR_MS, look_ahead_ms=4 * HOUR_MS)
"""Covers a run of terms (at most two hours) with what decides where it ends, to both sides."""


def shard_findings(terms: Sequence[TermRow], *, has_first: bool = True) -> tuple[GroupFinding, ...]:
    """The findings about the leaders of one shard, in the order in which they began.

    ``terms`` are by index; ``has_first``: the first of them is the first one that the log has, which replaced
    no leader.
    """
    if not terms:
        return ()
    shard = terms[0].shard
    later = terms[1:] if has_first else terms
    found = [
        *(("FAILOVER", one) for one in failovers(terms, shard_name(shard))),
        *(("LEADER_FLAPPING", one) for one in flapping(later, shard_name(shard))),
    ]
    rows = uncovered(finding_of(RULES[name], one, shard, None) for name, one in found)
    return tuple(sorted(rows, key=by_begin))


@dataclass(slots=True)
class ShardFindings:
    """The same as the terms come; only those within the horizon are remembered."""

    terms: list[TermRow] = field(default_factory=list)
    has_first: bool = True
    known_ms: int = -1
    """Time up to which findings were concluded, when their look-ahead is added."""

    @classmethod
    def going_on(cls, terms: Sequence[TermRow], known_ms: int) -> Self:
        """As after all ``terms`` were taken up to ``known_ms`` (-1: nothing was)."""
        if known_ms < 0:
            return cls()
        kept = _within(terms, known_ms)
        return cls(terms=kept, has_first=len(kept) == len(terms), known_ms=known_ms)

    def take(self, terms: Iterable[TermRow], now_ms: int) -> tuple[GroupFinding, ...]:
        """Take the next terms, all of them up to a time of the log; the findings that are now concluded."""
        self.terms += terms
        now_ms = max(now_ms, self.known_ms)
        before_ms, until_ms = self.known_ms - LEADERS.look_ahead_ms, now_ms - LEADERS.look_ahead_ms
        found = shard_findings(self.terms, has_first=self.has_first)
        self.known_ms = now_ms
        kept = _within(self.terms, now_ms)
        self.has_first = self.has_first and len(kept) == len(self.terms)
        self.terms = kept
        return tuple(one for one in found if before_ms < _ms(one) <= until_ms)

    def open(self) -> tuple[GroupFinding, ...]:
        """The findings that later terms may still change."""
        until_ms = self.known_ms - LEADERS.look_ahead_ms
        found = shard_findings(self.terms, has_first=self.has_first)
        return tuple(one for one in found if _ms(one) > until_ms)


def _within(terms: Sequence[TermRow], now_ms: int) -> list[TermRow]:
    """The terms that findings may still rest on."""
    from_ms = now_ms - LEADERS.look_ahead_ms - LEADERS.look_back_ms
    return [one for one in terms if one.timestamp_ms >= from_ms]


def _ms(one: GroupFinding) -> int:
    assert one.to_ms is not None
    return one.to_ms
