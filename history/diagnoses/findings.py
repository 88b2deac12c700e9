"""Applies the rules to one group and selects among their findings.

Two rules may match the same entries: the expiries of a flapping member are also expiries. Only the more
informative finding is kept (`Rule.covers`), so that one incident is one finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from history.facts.rows import GroupFinding, GroupRows, Severity
from history.reading.notes import Note

from .case import Case, Found
from .rule import Rule
from .table import RULES, RUNS_FAR


def findings_of(
    facts: GroupRows, notes: Sequence[Note] | None, rules: Iterable[Rule] | None = None
) -> tuple[GroupFinding, ...]:
    """The findings in a group, in the order in which they began.

    ``notes`` are the node's notes outside its log, of all groups or of this one. If it is ``None``, there is
    no evidence file: rules that need one find nothing, and other findings say that the information is
    missing.
    """
    return tuple(sorted(uncovered(found_in(Case(facts, notes), rules or RULES.values())), key=by_begin))


def found_in(case: Case, rules: Iterable[Rule]) -> list[GroupFinding]:
    """All findings of the rules, also those that another finding covers."""
    facts = case.facts
    return [finding_of(rule, one, facts.shard, facts.group_id) for rule in rules for one in rule.find(case)]


def uncovered(found: Iterable[GroupFinding], told: Collection[int] = ()) -> list[GroupFinding]:
    """The findings that no other one covers.

    A finding is covered by one that rests on all of its entries. One of a rule with the horizon `FAR` may be
    covered by several together, as its run may be longer than theirs; ``told`` are further entries of those.
    """
    found = list(found)
    all_of: dict[str, set[int]] = {kind: set(told) for kind in RUNS_FAR}
    covering: dict[tuple[str, int], list[frozenset[int]]] = {}
    """By the covered kind and each entry of the basis."""
    for one in found:
        basis = frozenset(one.rests_on)
        for kind in RULES[one.kind].covers:
            if kind in all_of:
                all_of[kind] |= basis
            for index in basis:
                covering.setdefault((kind, index), []).append(basis)

    def is_covered(one: GroupFinding) -> bool:
        if one.kind in all_of:
            return all_of[one.kind].issuperset(one.rests_on)
        first = one.rests_on[0] if one.rests_on else -1
        return any(basis.issuperset(one.rests_on) for basis in covering.get((one.kind, first), ()))

    return [one for one in found if not is_covered(one)]


def by_begin(one: GroupFinding) -> tuple[int, int, str]:
    """Sort key of findings: the order in which they began."""
    return one.from_ms, one.from_index, one.kind


def worst_first(findings: Iterable[GroupFinding]) -> list[GroupFinding]:
    """The findings, the most severe first, then in the order of the log."""
    rank = list(Severity)[::-1].index
    return sorted(findings, key=lambda one: (rank(one.severity), one.from_ms))


def finding_of(rule: Rule, found: Found, shard: int, group_id: str | None) -> GroupFinding:
    """A rule's result as a row; without a group it is a finding of the shard."""
    return GroupFinding(
        kind=rule.name,
        severity=rule.severity,
        group_id=group_id,
        shard=shard,
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


def called(words: str, names: Mapping[str, str]) -> str:
    """A finding's words with names in place of the member ids that have one."""
    return _NAMED.sub(lambda found: names.get(found[1], found[0]), words)
