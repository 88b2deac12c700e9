"""`findings`: what is odd in one group, or in every group that the log knows.

A diagnosis may rest on entries far apart, so all rows of a group are in memory together; the number of rows
in memory at once is bounded (`facts_of_all`). A window selects the findings that touch it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from history.diagnoses import RULES, findings_of, words_of
from history.facts.group import facts_of
from history.facts.rows import GroupFinding, GroupRows, Severity, shared_noun
from history.facts.shard import facts_of_all
from history.moments import WHOLE_LOG, LogWindow
from history.reading.node import NodeLog
from history.reading.notes import Note, by_group
from history.reading.source import Basis, Walk
from history.render import LOCAL, MemberNames, TimeStyle, duration, plural, ranges
from history.telling.member_labels import client_words
from records.ids import METADATA_SHARD

NO_EVIDENCE = (
    "there is no evidence file: refused requests, failed assignors and gaps between heartbeats are unknown"
)
MEMBERS_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFindings:
    """The findings in one group, in the order in which they began."""

    group_id: str
    shard: int
    members: dict[str, str]
    """Compact name -> member id and client description, for the members in the findings."""
    findings: tuple[GroupFinding, ...]
    noun: str = "epoch"
    """What the group's protocol calls its epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The findings, and what they rest on."""

    groups: tuple[GroupFindings, ...]
    """Groups with findings; a group that was asked for is included without any."""
    groups_read: int
    basis: tuple[Basis, ...]
    notes: tuple[str, ...]
    """Limitations of the answer, in words."""


def findings(log: NodeLog, group_id: str | None = None, window: LogWindow = WHOLE_LOG) -> Findings:
    """The findings of one group, or of all; raises `NothingToRead` for an unknown group.

    The log is read only to the window's end, so later entries are not considered.
    """
    if group_id is not None:
        facts = facts_of(log, group_id, to_index=window.to_index, to_ms=window.to_ms)
        notes = log.reader(facts.shard).evidence(group_id)
        assert facts.basis is not None
        facts.basis.demand(window.from_index, window.to_index)
        return Findings(
            groups=(_of_group(facts, notes, window),),
            groups_read=1,
            basis=(facts.basis,),
            notes=() if notes else (NO_EVIDENCE,),
        )
    return _of_all(log, window)


def _of_all(log: NodeLog, window: LogWindow) -> Findings:
    found: list[GroupFindings] = []
    basis: list[Basis] = []
    count, is_noted = 0, False
    for shard in log.shards:
        if shard == METADATA_SHARD:
            continue
        notes = by_group(log.reader(shard).evidence())
        is_noted = is_noted or bool(notes)
        rests_on: Basis | None = None
        for facts in facts_of_all(log, shard, to_index=window.to_index, to_ms=window.to_ms):
            count += 1
            rests_on = rests_on or facts.basis
            mine = notes.get(facts.group_id, []) if notes else None
            told = _of_group(facts, mine, window)
            if told.findings:
                found.append(told)
        basis.append(rests_on or _basis_of(log, shard, window))
    return Findings(
        groups=tuple(sorted(found, key=lambda one: one.group_id)),
        groups_read=count,
        basis=tuple(basis),
        notes=() if is_noted else (NO_EVIDENCE,),
    )


def _basis_of(log: NodeLog, shard: int, window: LogWindow) -> Basis:
    """The basis of a shard without groups."""
    walk = Walk(shard, log.reader(shard), to_index=window.to_index, to_ms=window.to_ms)
    for _ in walk:
        pass
    return walk.basis


def _of_group(facts: GroupRows, notes: Sequence[Note] | None, window: LogWindow) -> GroupFindings:
    found = tuple(
        one for one in findings_of(facts, notes or None) if window.holds_end(one.to_index, one.to_ms)
    )
    names = MemberNames()
    described = {}
    for session in facts.sessions:
        described[session.member_id] = (names.name(session.member_id), client_words(session))
    shown = dict.fromkeys(member_id for one in found for member_id in one.members)
    members = {}
    for member_id in shown:
        name, said_of_it = described.get(member_id, (names.name(member_id), ""))
        members[name] = f"{member_id} ({said_of_it})" if said_of_it else member_id
    return GroupFindings(
        group_id=facts.group_id,
        shard=facts.shard,
        members=members,
        findings=found,
        noun=shared_noun(facts.epochs),
    )


# Words.


def findings_text(answer: Findings, style: TimeStyle = LOCAL) -> Iterator[str]:
    """Lines of text: each finding with what it rests on and what to do about it."""
    for basis in answer.basis:
        yield f"from {basis.words()}"
    for note in answer.notes:
        yield f"note: {note}"
    for group in answer.groups:
        yield ""
        yield from _group_text(group, style)
    yield ""
    odd = sum(bool(group.findings) for group in answer.groups)
    total = sum(len(group.findings) for group in answer.groups)
    read = plural(answer.groups_read, "group")
    yield f"{read} read: " + (f"{plural(total, 'finding')} in {odd} of them" if total else "nothing odd")


def _group_text(group: GroupFindings, style: TimeStyle) -> Iterator[str]:
    count = plural(len(group.findings), "finding") if group.findings else "nothing odd"
    yield f"Group {group.group_id}: {count}"
    for name, described in list(group.members.items())[:MEMBERS_SHOWN_MAX]:
        yield f"  {name} is {described}"
    if len(group.members) > MEMBERS_SHOWN_MAX:
        yield f"  and {plural(len(group.members) - MEMBERS_SHOWN_MAX, 'more member')} (--json has them)"
    names = {described.split(" ", 1)[0]: name for name, described in group.members.items()}
    for found in group.findings:
        yield ""
        yield from finding_text(found, names, style, group.noun)


def finding_text(
    found: GroupFinding, names: Mapping[str, str], style: TimeStyle = LOCAL, noun: str = "epoch"
) -> Iterator[str]:
    """Lines for one finding; ``names`` maps member ids to compact names, ``noun`` is what it calls epochs."""
    rule = RULES[found.kind]
    yield f"{style.full(found.from_ms)}  {found.severity.value.upper()}  {found.kind}: {rule.title}"
    said = words_of(found, lambda member_id: names.get(member_id, member_id))
    yield f"  what      {said}"
    lasted = "" if found.to_ms is None else f", over after {duration(found.to_ms - found.from_ms)}"
    epochs = f"{noun} {ranges(found.epochs)}" if found.epochs else f"no {noun}"
    yield f"  where     {epochs}{lasted or ', still going on at the end of what was read'}"
    entries = ", ".join(str(index) for index in found.rests_on[:MEMBERS_SHOWN_MAX])
    more = len(found.rests_on) - MEMBERS_SHOWN_MAX
    yield f"  rests on  entries {entries}" + (f" and {more} more" if more > 0 else "")
    yield f"  to do     {rule.do}"


def rules_text() -> Iterator[str]:
    """Every rule, as lines of text."""
    for rule in RULES.values():
        yield f"{rule.name}  {rule.severity.value}"
        yield f"  means     {rule.means}"
        yield f"  reads     {rule.reads}"
        for bound in rule.thresholds:
            yield f"  bound     {bound.name} = {bound:,}: {bound.reason}"
        yield f"  to do     {rule.do}"
        yield ""


def worst(found: Iterable[GroupFinding]) -> Severity | None:
    """The highest severity among the findings."""
    return max((one.severity for one in found), key=list(Severity).index, default=None)
