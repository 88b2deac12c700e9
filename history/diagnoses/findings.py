"""The rules applied to one group, and what becomes of what they find.

Two rules may see the same entries: a flapping member's expiries are expiries too. Then the one that says more
speaks (`Rule.covers`), so that one incident is one finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from history.facts.rows import Finding, GroupFacts

from .case import Case, Found, Note
from .rule import Rule
from .table import RULES


def findings_of(
    facts: GroupFacts, notes: Sequence[Note] | None, rules: Iterable[Rule] | None = None
) -> tuple[Finding, ...]:
    """What is odd in a group, in the order in which it began.

    ``notes`` are what the node noted beside its log (of all groups, or of this one); ``None`` where there is
    no evidence file: what only that could tell is not found then, and where it is a part of an answer the
    finding says that it is unknown.
    """
    case = Case(facts, notes)
    found = [_finding(rule, one, facts) for rule in rules or RULES.values() for one in rule.find(case)]
    covering = [(RULES[one.kind].covers, set(one.rests_on)) for one in found]
    kept = [
        one
        for one in found
        if not any(one.kind in covers and basis.issuperset(one.rests_on) for covers, basis in covering)
    ]
    return tuple(sorted(kept, key=lambda one: (one.from_ms, one.from_index, one.kind)))


def _finding(rule: Rule, found: Found, facts: GroupFacts) -> Finding:
    return Finding(
        kind=rule.name,
        severity=rule.severity,
        group_id=facts.group_id,
        shard=facts.shard,
        epochs=tuple(dict.fromkeys(found.epochs)),
        members=found.members,
        partitions=tuple(sorted(set(found.partitions))),
        from_index=found.from_index,
        from_ms=found.from_ms,
        to_index=found.to_index,
        to_ms=found.to_ms,
        words=found.words,
        rests_on=tuple(sorted({index for index in found.rests_on if index is not None})),
        is_certain=found.is_certain,
    )


_NAMED = re.compile(r"`([^`]+)`")


def words_of(finding: Finding, say_member: Callable[[str], str]) -> str:
    """A finding's words with the members called as the reader calls them."""
    ids = set(finding.members)

    def said(found: re.Match[str]) -> str:
        return say_member(found[1]) if found[1] in ids else found[0]

    return _NAMED.sub(said, finding.words)
