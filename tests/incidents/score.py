"""Holds what is told of a run against what happened in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from history.diagnoses import RULES, Rule, findings_of
from history.facts.group import facts_of
from history.facts.rows import EpochRow, Finding, GroupFacts
from records import ReasonKind

from .rig import GROUP, SHARD
from .truth import Known, Truth

SCORE: dict[str, Counter[str]] = {}
"""What came of the incidents of each name; printed at the end of the run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was made of one truth; `missing` says what was not named, and is empty if all was."""

    truth: Truth
    missing: str


@dataclass(frozen=True, slots=True)
class Judged:
    verdicts: tuple[Verdict, ...]
    inventions: tuple[Finding, ...]
    """Diagnoses of what did not happen."""


def read(known: Known, *, with_evidence: bool = True) -> tuple[GroupFacts, list[dict[str, Any]] | None]:
    log = known.rig.node(with_evidence=with_evidence)
    return facts_of(log, GROUP), log.reader(SHARD).evidence(GROUP) if with_evidence else None


def judge(known: Known, *, with_evidence: bool = True, rules: Iterable[Rule] = RULES.values()) -> Judged:
    """What the rules make of a run."""
    facts, notes = read(known, with_evidence=with_evidence)
    findings = findings_of(facts, notes, rules)
    truths = known.truths if with_evidence else _without_evidence(known.truths)
    verdicts = tuple(
        Verdict(truth, _missing_in_epochs(truth, facts) if truth.is_reason else _missing(truth, findings))
        for truth in truths
    )
    expected = {truth.kind for truth in truths} | known.besides
    return Judged(verdicts, tuple(one for one in findings if one.kind not in expected))


def _without_evidence(truths: Iterable[Truth]) -> list[Truth]:
    """What of it the log alone can tell."""
    return [
        replace(truth, kind=truth.alone) if truth.needs_evidence else truth
        for truth in truths
        if truth.alone or not truth.needs_evidence
    ]


def _missing(truth: Truth, findings: Sequence[Finding]) -> str:
    found = [one for one in findings if one.kind == truth.kind and _is_then(truth, one)]
    if not found:
        return f"cause: {truth.kind} among {[one.kind for one in findings]}"
    best = min(found, key=lambda one: len(set(truth.members) - set(one.members)))
    if who := set(truth.members) - set(best.members):
        return f"members {who} among {best.members}"
    if what := set(truth.partitions) - set(best.partitions):
        return f"partitions {sorted(map(str, what))} among {[str(one) for one in best.partitions]}"
    return ""


def _is_then(truth: Truth, finding: Finding) -> bool:
    return finding.from_ms <= truth.until_ms and (finding.to_ms is None or truth.at_ms <= finding.to_ms + 1)


def _missing_in_epochs(truth: Truth, facts: GroupFacts) -> str:
    rows = [
        row
        for row in facts.epochs
        if truth.at_ms <= row.timestamp_ms <= truth.until_ms
        and any(ReasonKind(reason.kind).name == truth.kind for reason in row.cause.reasons)
    ]
    if not rows:
        return f"cause: no epoch because of {truth.kind}"
    row = rows[0]
    named = _members_of(row)
    if who := set(truth.members) - named:
        return f"members {who} among {named}"
    if what := set(truth.partitions) - {move.partition for move in row.moves}:
        return f"partitions {sorted(map(str, what))}"
    return ""


def _members_of(row: EpochRow) -> set[str]:
    ends = {end for move in row.moves for end in (move.source, move.target) if end is not None}
    return ends | {reason.member_id for reason in row.cause.reasons}
