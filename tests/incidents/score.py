"""Compare what is reported of a run with what happened in it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from history.diagnoses import RULES, Rule, findings_of
from history.diagnoses.case import MEMBERS_NAMED_MAX
from history.facts.group import facts_of
from history.facts.rows import GroupRows, TopicPartition
from history.render import UTC_STYLE
from history.telling.explain import explain
from history.telling.prose import explanation_text
from quorate.commands.log.common import plain
from tests.support.incidents.truth import Known, Truth
from tests.support.incidents.world import GROUP, SHARD

Found = Sequence[dict[str, Any]]
"""Findings in their JSON form."""

REASONS_SAID = {
    "TOPIC_GROWN": "grew from",
    "TOPIC_CREATED": "was created",
    "TOPIC_DELETED": "was deleted",
    "REGEX_RESOLUTION_CHANGED": "a subscription by regular expression matches other topics",
    "MEMBER_REMOVED": "was removed by an operator",
}
"""Words by which the text states the reason of an epoch."""

SCORE: dict[str, Counter[str]] = {}
"""Results by the name of the incident, printed at the end of the run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one truth; `missing` says what was not named, and is empty if everything was."""

    truth: Truth
    missing: str


@dataclass(frozen=True, slots=True)
class Judged:
    verdicts: tuple[Verdict, ...]
    inventions: tuple[str, ...]
    """Diagnoses of incidents that did not happen."""


def read(known: Known, *, with_evidence: bool = True) -> tuple[GroupRows, list[dict[str, Any]] | None]:
    log = known.world.node(with_evidence=with_evidence)
    return facts_of(log, GROUP), log.reader(SHARD).evidence(GROUP) if with_evidence else None


def judge(known: Known, *, with_evidence: bool = True, rules: Iterable[Rule] = RULES.values()) -> Judged:
    """Judge the findings of the rules alone; they say nothing of the reasons of epochs."""
    facts, notes = read(known, with_evidence=with_evidence)
    found = plain(findings_of(facts, notes, rules))
    truths = [one for one in _truths(known, with_evidence=with_evidence) if not one.is_reason]
    verdicts = tuple(Verdict(truth, _missing(truth, found)) for truth in truths)
    return Judged(verdicts, _inventions(known, truths, found))


def judge_explanation(known: Known, *, with_evidence: bool = True) -> Judged:
    """Judge the answer of `explain`: it must name every truth in its JSON and in its text."""
    told = explain(known.world.node(with_evidence=with_evidence), GROUP, style=UTC_STYLE)
    answer = json.loads(json.dumps(plain(told)))
    text = list(explanation_text(told, UTC_STYLE))
    names = {said.split(" ", 1)[0]: name for name, said in answer["members"].items()}
    truths = _truths(known, with_evidence=with_evidence)
    verdicts = []
    for truth in truths:
        if truth.is_reason:
            missing = _missing_in_epochs(truth, answer["steps"], text, names)
        else:
            missing = _missing(truth, answer["findings"]) or _missing_in_text(truth, text, names)
        verdicts.append(Verdict(truth, missing))
    return Judged(tuple(verdicts), _inventions(known, truths, answer["findings"]))


def _truths(known: Known, *, with_evidence: bool) -> list[Truth]:
    """Return the truths that can be reported; without evidence, those that the log alone shows."""
    if with_evidence:
        return known.truths
    return [
        replace(truth, kind=truth.alone) if truth.needs_evidence else truth
        for truth in known.truths
        if truth.alone or not truth.needs_evidence
    ]


def _inventions(known: Known, truths: Iterable[Truth], findings: Found) -> tuple[str, ...]:
    expected = {truth.kind for truth in truths} | known.besides
    return tuple(f"{one['kind']}: {one['words']}" for one in findings if one["kind"] not in expected)


# Findings, as JSON has them.


def _missing(truth: Truth, findings: Found) -> str:
    found = [one for one in findings if one["kind"] == truth.kind and _is_then(truth, one)]
    if not found:
        return f"cause: {truth.kind} among {[one['kind'] for one in findings]}"
    best = min(found, key=lambda one: len(set(truth.members) - set(one["members"])))
    if who := set(truth.members) - set(best["members"]):
        return f"members {who} among {best['members']}"
    if what := set(truth.partitions) - {TopicPartition(**one) for one in best["partitions"]}:
        return f"partitions {sorted(map(str, what))} among {best['partitions']}"
    return ""


def _is_then(truth: Truth, found: dict[str, Any]) -> bool:
    is_over = found["to_ms"] is not None and found["to_ms"] + 1 < truth.at_ms
    return bool(found["from_ms"] <= truth.until_ms and not is_over)


# Epochs with a reason that is no incident, as JSON and the text have them


def _missing_in_epochs(
    truth: Truth, steps: list[dict[str, Any]], text: list[str], names: dict[str, str]
) -> str:
    said = REASONS_SAID[truth.kind]
    epochs = [
        step
        for step in steps
        if step["kind"] == "epoch"
        and truth.at_ms <= step["timestamp_ms"] <= truth.until_ms
        and any(said in why for why in step["why"])
    ]
    if not epochs:
        return f"cause: no epoch with {said!r}"
    moves = epochs[0]["moves"]
    ends = {move["source"] for move in moves} | {move["target"] for move in moves}
    called = {names.get(member, member) for member in truth.members}
    if who := called - ends - set(_words(" ".join(epochs[0]["why"]))):
        return f"members {who} among {ends}"
    moved = {(move["topic"], number) for move in moves for number in move["partitions"]}
    if what := {(one.topic, one.partition) for one in truth.partitions} - moved:
        return f"partitions {what} among {moved}"
    head = f"epoch {epochs[0]['epoch_before']} -> {epochs[0]['epoch']}"
    begins = next(at for at, line in enumerate(text) if line.endswith(head))
    ends_at = next((at for at in range(begins, len(text)) if not text[at]), len(text))
    return _not_in(truth, text[begins:ends_at], said, called)


def _missing_in_text(truth: Truth, text: list[str], names: dict[str, str]) -> str:
    lines = [line for line in text if truth.kind in line and not line.startswith("  finding ")]
    called = [names.get(member, member) for member in truth.members]
    return _not_in(truth, lines, truth.kind, called if len(called) <= MEMBERS_NAMED_MAX else ())


def _not_in(truth: Truth, lines: list[str], said: str, called: Iterable[str]) -> str:
    passage = "\n".join(lines)
    if said not in passage:
        return f"cause in the text: {said!r}"
    if who := set(called) - set(_words(passage)):
        return f"members {who} in the text: {passage}"
    if what := set(truth.partitions) - partitions_in(passage):
        return f"partitions {sorted(map(str, what))} in the text: {passage}"
    return ""


def _words(text: str) -> list[str]:
    return re.findall(r"[\w-]+", text)


_PARTS = re.compile(r"([A-Za-z][\w.-]*) (\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)(?![\d.]*\d| min| s\b| ms)")


def partitions_in(text: str) -> set[TopicPartition]:
    """Return the partitions that a text names, as in ``orders 0-3,7``."""
    found = set()
    for topic, numbers in _PARTS.findall(text):
        for part in numbers.split(","):
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                found.add(TopicPartition(topic=topic, partition=number))
    return found
