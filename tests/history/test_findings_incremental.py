"""Findings concluded as facts come are those of all facts together, wherever the facts are cut."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from history.diagnoses.findings import findings_of
from history.diagnoses.incremental import GroupDiagnosis, dump_findings, load_findings
from history.diagnoses.table import GROUP_RULES
from history.facts.rows import GroupFinding, GroupRows, SessionEnd

from .random_facts import START_MS, RandomFacts, as_of


def parts_of(facts: GroupRows, cuts: list[int]) -> Iterator[tuple[GroupRows, GroupRows]]:
    """Yield, for each cut, the rows that were concluded since the cut before, and the open ones."""
    taken: set[object] = set()
    terms = 0
    for cut in cuts:
        now = as_of(facts, cut)
        done: dict[str, list[Any]] = {
            "epochs": [r for r in now.epochs[:-16] if r.end_index and all(w.to_index for w in r.waits)],
            "spans": [r for r in now.spans if r.to_index is not None],
            "sessions": [r for r in now.sessions if r.to_index is not None],
        }
        new = {name: tuple(r for r in rows if r not in taken) for name, rows in done.items()}
        ended = {row for rows in done.values() for row in rows}
        open_ = {name: tuple(r for r in getattr(now, name) if r not in ended) for name in done}
        taken |= ended
        yield replace(now, **new, terms=now.terms[terms:]), replace(now, **open_, terms=())
        terms = len(now.terms)


def told(findings: list[GroupFinding]) -> Counter[GroupFinding]:
    return Counter(findings)


def concluded_of(made: RandomFacts, cuts: list[int]) -> tuple[Counter[GroupFinding], int]:
    """All findings, concluded and open, after taking the facts up to each cut."""
    facts, run = made.rows(), GroupDiagnosis()
    found: list[GroupFinding] = []
    open_: list[GroupFinding] = []
    run.note(made.notes)
    cuts = [*cuts, facts.last_index]
    for cut, (part, rest) in zip(cuts, parts_of(facts, cuts), strict=True):
        run.take(part)
        is_last = cut == facts.last_index
        rest = replace(rest, last_ms=facts.last_ms) if is_last else rest
        now = run.conclude(rest, is_last=is_last)
        found += now.concluded
        open_ = now.open
        run = load_findings(dump_findings(run))
    return told([*found, *open_]), len(found)


@pytest.mark.parametrize("seed", range(40))
def test_findings_concluded_and_open_are_those_of_all_facts(seed: int) -> None:
    made = RandomFacts(seed)
    rng = random.Random(seed)
    facts = made.rows()
    expected = told(list(findings_of(facts, made.notes or None, GROUP_RULES)))
    cuts = sorted(rng.randint(1, facts.last_index - 1) for _ in range(rng.choice((1, 5, 40))))
    found, _ = concluded_of(made, cuts)
    assert found - expected == Counter()
    assert expected - found == Counter()


def test_random_facts_meet_every_rule() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(40):
        made = RandomFacts(seed)
        kinds += Counter(one.kind for one in findings_of(made.rows(), made.notes, GROUP_RULES))
    missing = {rule.name for rule in GROUP_RULES} - kinds.keys()
    assert missing == {"STATIC_MEMBER_GONE"}


def flapping_part(first: int, count: int) -> GroupRows:
    """The rows of a member that leaves and joins every 20 s."""
    made = RandomFacts(1, steps=30)
    row, session = made.rows().epochs[0], made.rows().sessions[0]
    epochs, sessions = [], []
    for number in range(first, first + count):
        at, end = (
            (2 * number + 1, START_MS + number * 20_000),
            (2 * number + 3, START_MS + number * 20_000 + 20_000),
        )
        place = {"index": at[0], "timestamp_ms": at[1], "end_index": end[0], "end_ms": end[1]}
        target = {"target_index": at[0], "target_ms": at[1], "settled_index": at[0], "settled_ms": at[1]}
        epochs.append(replace(row, epoch=number, waits=(), moves=(), **place, **target))
        if number % 2 == 0:
            stay = {"from_index": at[0], "from_ms": at[1], "to_index": end[0], "to_ms": end[1]}
            who = {"member_id": f"m{number}", "instance_id": None, "client_id": "app", "rejoined": ()}
            sessions.append(replace(session, end=SessionEnd.LEFT, **stay, **who))
    return replace(
        made.rows(),
        epochs=tuple(epochs),
        spans=(),
        sessions=tuple(sessions),
        terms=(),
        last_index=end[0],
        last_ms=end[1],
    )


def test_what_is_remembered_does_not_grow_with_the_log() -> None:
    run, sizes, found = GroupDiagnosis(), [], []
    for first in range(0, 40_000, 1_000):
        part = flapping_part(first, 1_000)
        run.take(part)
        found += run.conclude(replace(part, epochs=(), spans=(), sessions=())).concluded
        sizes.append(len(dump_findings(run)))
    assert max(sizes[10:]) < 1.2 * max(sizes[:10])
    assert max(sizes) < 150_000
    flapping = [one for one in found if one.kind == "FLAPPING_MEMBER"]
    assert len(flapping) > 400
    assert max(len(one.rests_on) for one in flapping) < 500


def test_a_late_note_changes_nothing_that_is_concluded() -> None:
    run = GroupDiagnosis()
    part = flapping_part(0, 2_000)
    run.take(part)
    run.conclude(replace(part, epochs=(), spans=(), sessions=()))
    old, new = (
        {"group": "g", "kind": "refused", "at_ms": part.last_ms - hours * 3_600_000} for hours in (6, 1)
    )
    assert not run.note([old])
    assert run.note([new])
    assert not run.note([new])
