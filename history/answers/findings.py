"""`findings`: what is odd in one group, or in every group that the log knows.

All rows of a group are in memory together; the number of rows in memory at once is bounded (`facts_of_all`).
A window selects the findings that touch it. A change of leader concerns every group of its shard: it is
listed once, for the shard, unless one group is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from history.diagnoses import Rule, findings_of
from history.diagnoses.shards import ShardFindings
from history.diagnoses.table import GROUP_RULES
from history.facts.group import facts_of
from history.facts.naming import member_names
from history.facts.rows import GroupFinding, GroupRows, Severity, shared_noun
from history.facts.shard import facts_of_all
from history.facts.terms import ShardTerms
from history.moments import WHOLE_LOG, LogWindow
from history.reading.node import NodeLog
from history.reading.notes import Note, by_group
from history.reading.source import Basis, Walk
from history.telling.member_labels import client_words
from records.ids import METADATA_SHARD

NO_EVIDENCE = (
    "there is no evidence file: refused requests, failed assignors and gaps between heartbeats are unknown"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFindings:
    """The findings in one group, in the order in which they began."""

    group_id: str
    shard: int
    members: dict[str, str]
    """Compact name -> member id and client description, for the members in the findings."""
    findings: tuple[GroupFinding, ...]
    noun: str = "epoch"
    """The word of the group's protocol for its epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderFindings:
    """The findings about the leaders of one shard, in the order in which they began."""

    shard: int
    findings: tuple[GroupFinding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The findings, and what they rest on."""

    from_ms: int
    until_ms: int
    """The time that was looked at: the window, cut where the log begins and ends; -1: there is no entry."""
    groups: tuple[GroupFindings, ...]
    """Groups with findings; a group that was asked for is included without any."""
    groups_read: int
    is_of_one: bool
    """Whether one group was asked for."""
    basis: tuple[Basis, ...]
    notes: tuple[str, ...]
    """Limitations of the answer, in words."""
    shards: tuple[LeaderFindings, ...] = ()
    """Shards with findings about their leaders; none if one group was asked for, whose findings have them."""
    milder: int = 0
    """Findings that `at_least` left out."""

    def at_least(self, severity: Severity) -> Findings:
        """The answer with only the findings of this severity or a graver one."""
        rank = list(Severity).index
        left_out = 0

        def grave(found: tuple[GroupFinding, ...]) -> tuple[GroupFinding, ...]:
            nonlocal left_out
            kept = tuple(one for one in found if rank(one.severity) >= rank(severity))
            left_out += len(found) - len(kept)
            return kept

        groups = [_only(group, grave(group.findings)) for group in self.groups]
        shards = [replace(shard, findings=grave(shard.findings)) for shard in self.shards]
        return replace(
            self,
            groups=tuple(group for group in groups if group.findings or self.is_of_one),
            shards=tuple(shard for shard in shards if shard.findings),
            milder=self.milder + left_out,
        )


def findings(log: NodeLog, group_id: str | None = None, window: LogWindow = WHOLE_LOG) -> Findings:
    """The findings of one group, or of all; raises `NothingToRead` for an unknown group.

    The log is read only to the window's end, so later entries are not considered.
    """
    if group_id is not None:
        facts = facts_of(log, group_id, to_index=window.to_index, to_ms=window.to_ms)
        notes = log.reader(facts.shard).evidence(group_id)
        assert facts.basis is not None
        facts.basis.demand(window.from_index, window.to_index)
        from_ms, until_ms = _looked_at(log, window, (facts.basis,))
        return Findings(
            from_ms=from_ms,
            until_ms=until_ms,
            groups=(_of_group(facts, notes, window),),
            groups_read=1,
            is_of_one=True,
            basis=(facts.basis,),
            notes=(*(() if notes else (NO_EVIDENCE,)), *window.notes),
        )
    return _of_all(log, window)


def _of_all(log: NodeLog, window: LogWindow) -> Findings:
    found: list[GroupFindings] = []
    basis: list[Basis] = []
    of_shards: list[LeaderFindings] = []
    count, is_noted = 0, False
    for shard in log.shards:
        if shard == METADATA_SHARD:
            continue
        notes = by_group(log.reader(shard).evidence())
        is_noted = is_noted or bool(notes)
        leaders, rests_on = _leaders(log, shard, window)
        if leaders.findings:
            of_shards.append(leaders)
        for facts in facts_of_all(log, shard, to_index=window.to_index, to_ms=window.to_ms):
            count += 1
            mine = notes.get(facts.group_id, []) if notes else None
            told = _of_group(facts, mine, window, GROUP_RULES)
            if told.findings:
                found.append(told)
        basis.append(rests_on)
    from_ms, until_ms = _looked_at(log, window, basis)
    return Findings(
        from_ms=from_ms,
        until_ms=until_ms,
        groups=tuple(sorted(found, key=lambda one: one.group_id)),
        groups_read=count,
        is_of_one=False,
        basis=tuple(basis),
        notes=(*(() if is_noted else (NO_EVIDENCE,)), *window.notes),
        shards=tuple(of_shards),
    )


def _looked_at(log: NodeLog, window: LogWindow, bases: Sequence[Basis]) -> tuple[int, int]:
    """The beginning and the end of what was looked at."""
    until_ms = max((basis.last_timestamp_ms for basis in bases), default=-1)
    begins = [at for basis in bases if (at := log.first_ms(basis.shard)) >= 0]
    from_ms = max(min(begins, default=-1), -1 if window.from_ms is None else window.from_ms)
    return min(from_ms, until_ms), until_ms


def _leaders(log: NodeLog, shard: int, window: LogWindow) -> tuple[LeaderFindings, Basis]:
    """The findings about the leaders of a shard, and the basis of a walk over it."""
    walk = Walk(shard, log.reader(shard), to_index=window.to_index, to_ms=window.to_ms)
    terms, leaders = ShardTerms(shard), ShardFindings()
    found: list[GroupFinding] = []
    for item in walk:
        if (term := terms.take(item)) is not None:
            found += leaders.take((term,), term.timestamp_ms)
    found += leaders.open()
    held = tuple(one for one in found if window.holds_end(one.to_index, one.to_ms))
    return LeaderFindings(shard=shard, findings=held), walk.basis


def _only(group: GroupFindings, found: tuple[GroupFinding, ...]) -> GroupFindings:
    """A group with some of its findings, and only the members that these name."""
    ids = {member_id for one in found for member_id in one.members}
    members = {
        name: described for name, described in group.members.items() if described.partition(" (")[0] in ids
    }
    return replace(group, findings=found, members=members)


def _of_group(
    facts: GroupRows, notes: Sequence[Note] | None, window: LogWindow, rules: Iterable[Rule] | None = None
) -> GroupFindings:
    found = tuple(
        one for one in findings_of(facts, notes or None, rules) if window.holds_end(one.to_index, one.to_ms)
    )
    names = member_names(facts)
    described = {}
    for session in facts.sessions:
        described[session.member_id] = (names.name(session.member_id), client_words(session))
    members = {}
    for member_id in names.in_order(member_id for one in found for member_id in one.members):
        name, said_of_it = described.get(member_id, (names.name(member_id), ""))
        members[name] = f"{member_id} ({said_of_it})" if said_of_it else member_id
    return GroupFindings(
        group_id=facts.group_id,
        shard=facts.shard,
        members=members,
        findings=found,
        noun=shared_noun(facts.epochs),
    )
