"""Applies the rules to one group and selects among their findings.

Two rules may match the same entries: the expiries of a flapping member are also expiries. Only the more
informative finding is kept (`Rule.covers`), so that one incident is one finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from history.facts.rows import GroupFinding, GroupRows, Severity
from history.reading.notes import Note

from .case import Case, Found
from .rule import Rule
from .table import RULES


def findings_of(
    facts: GroupRows, notes: Sequence[Note] | None, rules: Iterable[Rule] | None = None
) -> tuple[GroupFinding, ...]:
    """The findings in a group, in the order in which they began.

    ``notes`` are the node's notes outside its log, of all groups or of this one. If it is ``None``, there is
    no evidence file: rules that need one find nothing, and other findings say that the information is
    missing.
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


def worst_first(findings: Iterable[GroupFinding]) -> list[GroupFinding]:
    """The findings, the most severe first, then in the order of the log."""
    rank = list(Severity)[::-1].index
    return sorted(findings, key=lambda one: (rank(one.severity), one.from_ms))


def _finding(rule: Rule, found: Found, facts: GroupRows) -> GroupFinding:
    return GroupFinding(
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


def words_of(finding: GroupFinding, say_member: Callable[[str], str]) -> str:
    """A finding's words with members named by ``say_member``."""
    ids = set(finding.members)

    def said(found: re.Match[str]) -> str:
        return say_member(found[1]) if found[1] in ids else found[0]

    return _NAMED.sub(said, finding.words)
