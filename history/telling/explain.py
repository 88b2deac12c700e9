"""`explain`: why each epoch of a group began, from one node's log.

The answer is made of facts and of the node's notes outside its log, and carries what it rests on (`Basis`),
so that "nothing happened" and "nothing is known" never look the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from history.diagnoses import RULES, findings_of, words_of
from history.facts.group import facts_of, windowed
from history.facts.rows import GroupFinding, GroupRows
from history.facts.transactions import transactions_of
from history.moments import WHOLE_LOG, LogWindow
from history.protocols import CALLED
from history.reading.catalog import CatalogHistory
from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.reading.source import Basis
from history.render import LOCAL, TimeStyle
from records import Trigger

from .counterfactuals import counterfactuals
from .evidence import UNKNOWN, GroupNotes, with_notes
from .filters import NO_FILTERS, Filters, chosen
from .known import Counterfactual
from .member_labels import MemberLabels
from .story import EpochStep, Focus, NoteStep, Step, Teller
from .transactions import transaction_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One group's history: its steps in the order of the log, and what they rest on."""

    group_id: str
    shard: int
    protocols: tuple[str, ...] = ()
    """The older protocols that the group spoke, in plain words."""
    said: tuple[str, ...] = ()
    """The answer in a few lines, if a moment, a member or a partition was asked for."""
    findings: tuple[GroupFinding, ...] = ()
    """The findings in the selected part, in order of their beginning; ``words`` use the members' names."""
    steps: tuple[Step, ...]
    members: dict[str, str]
    """Compact name -> member id and client description, for names that differ from the id."""
    counterfactuals: tuple[Counterfactual, ...] = ()
    basis: Basis
    notes: tuple[str, ...] = ()

    @property
    def epochs(self) -> tuple[EpochStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, EpochStep))


def explain(
    path: str | NodeLog,
    group_id: str,
    *,
    shard: int | None = None,
    window: LogWindow = WHOLE_LOG,
    filters: Filters = NO_FILTERS,
    style: TimeStyle = LOCAL,
) -> Explanation:
    """Explain each epoch of ``group_id`` in a window, narrowed by filters.

    ``shard`` is only needed if a partial copy does not say how many shards the cluster has. Raises
    `NothingToRead` if the directory or the shard is missing, the log does not know the group, or it has
    nothing that was chosen.
    """
    log = open_node(path)
    whole = facts_of(log, group_id, shard=shard, to_index=window.to_index, to_ms=window.to_ms)
    return explanation_of(log, whole, window=window, filters=filters, style=style)


def explanation_of(
    log: NodeLog,
    whole: GroupRows,
    *,
    window: LogWindow = WHOLE_LOG,
    filters: Filters = NO_FILTERS,
    style: TimeStyle = LOCAL,
) -> Explanation:
    """The same as `explain`, from facts that begin with the group's oldest entry and carry their basis."""
    assert whole.basis is not None
    whole.basis.demand(window.from_index, window.to_index, filters.at_index)
    group_id = whole.group_id
    facts = windowed(whole, window.from_index, window.from_ms)
    catalog = log.catalog()
    notes = log.reader(facts.shard).evidence(group_id)
    labels = MemberLabels(
        whole, catalog, style, [note.get("member") or "" for note in notes if note.get("member")]
    )
    focus, said = chosen(facts, labels, filters)
    noted = GroupNotes(notes, group_id)
    what_if = counterfactuals(facts, noted, labels, focus)
    shown = _Shown.of(facts, focus, window)
    teller = Teller(facts, labels, focus)
    findings = [one for one in findings_of(whole, notes or None) if shown.has_finding(one, focus)]
    findings = [replace(one, words=words_of(one, labels.member)) for one in findings]
    asides = _Asides(whole, noted, what_if, findings)
    epochs = [asides.beside(step) for step in teller.epochs()]
    between: list[Step] = [*teller.terms(), *teller.notes()]
    if (catalog.has_transactions or not catalog.present) and focus.members is None:
        made = transactions_of(log, group_id, facts.shard, window.to_index, window.to_ms)
        mine = [one for one in made if focus.has_partition(one.partitions)]
        between += transaction_steps(mine, whole.last_index, whole.last_ms)
    beside = [step for step in between if shown.has_step(step)]
    steps = with_notes(
        sorted([*epochs, *beside], key=_place),
        [note for note in notes if shown.has(note["at_ms"], note.get("member") or "")],
        group_id,
        labels.member,
        style,
    )
    return Explanation(
        group_id=group_id,
        shard=facts.shard,
        protocols=tuple(
            dict.fromkeys(CALLED[row.protocol] for row in facts.epochs if row.protocol in CALLED)
        ),
        said=said,
        findings=tuple(findings),
        steps=steps,
        members=labels.legend(),
        counterfactuals=what_if,
        basis=whole.basis,
        notes=(
            *_limits(catalog, group_id),
            *(() if notes else (UNKNOWN,)),
            *window.notes,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Shown:
    """Selects the notes, terms and findings to include besides the epochs."""

    whole: tuple[int, int | None]
    """Start and exclusive end in epoch ms; ``None``: open."""
    times: tuple[tuple[int, int | None], ...]
    """The periods of the selected epochs, within ``whole``."""
    from_index: int
    members: frozenset[str] | None
    has_partition: bool

    @classmethod
    def of(cls, facts: GroupRows, focus: Focus, window: LogWindow) -> _Shown:
        start = window.from_ms or -1
        if window.from_index is not None and facts.epochs:
            start = facts.epochs[0].timestamp_ms
        end = None
        if (window.to_index, window.to_ms) != (None, None):
            end = (facts.last_ms if window.to_ms is None else window.to_ms) + 1
        times: tuple[tuple[int, int | None], ...] = ((start, end),)
        if focus.rows is not None:
            rows = [row for row in facts.epochs if focus.has_row(row)]
            times = tuple((max(row.timestamp_ms, start), row.end_ms or end) for row in rows)
        return cls((start, end), times, window.from_index or 0, focus.members, focus.partition is not None)

    def has(self, ms: int, member_id: str) -> bool:
        """Whether to include an event at this time; all events of a requested member are included."""
        if self.has_partition or (self.members is not None and member_id):
            return self.members is not None and member_id in self.members and _overlap(self.whole, ms, ms)
        return self.has_time(ms, ms)

    def has_step(self, step: Step) -> bool:
        if step.index is not None and step.index < self.from_index:
            return False
        if isinstance(step, NoteStep) and step.members:
            return any(self.has(step.timestamp_ms, member_id) for member_id in step.members)
        return self.has_time(step.timestamp_ms, step.timestamp_ms)

    def has_finding(self, one: GroupFinding, focus: Focus) -> bool:
        """Whether the finding belongs to the selected part."""
        if not (focus.has_member(*one.members) and focus.has_partition(one.partitions)):
            return False
        if focus.members is not None or focus.partition is not None:
            return _overlap(self.whole, one.from_ms, one.to_ms)
        return self.has_time(one.from_ms, one.to_ms)

    def has_time(self, from_ms: int, to_ms: int | None) -> bool:
        """Whether any part of a period is selected."""
        return any(_overlap(time, from_ms, to_ms) for time in self.times)


def _overlap(time: tuple[int, int | None], from_ms: int, to_ms: int | None) -> bool:
    start, end = time
    return (to_ms is None or start <= to_ms) and (end is None or from_ms < end)


def _place(step: Step) -> tuple[int, int]:
    """Sort key: log order; terms and notes about members precede the epoch of the same entry."""
    if isinstance(step, EpochStep):
        return step.index, 1
    is_about_all = isinstance(step, NoteStep) and not step.members
    return step.index or 0, 2 if is_about_all else 0


class _Asides:
    """Remarks about an epoch besides its facts."""

    def __init__(
        self,
        facts: GroupRows,
        noted: GroupNotes,
        what_if: Iterable[Counterfactual],
        findings: Iterable[GroupFinding],
    ) -> None:
        self._noted = noted
        self._timeouts = {(one.to_index, one.member_id): one.timeout_ms or inf for one in facts.sessions}
        self._what_if: dict[int, list[str]] = {}
        self._stands_out: dict[int, dict[str, None]] = {}
        for one in what_if:
            self._what_if.setdefault(one.index, []).append(one.words)
        for finding in findings:
            said = f"{finding.kind}: {RULES[finding.kind].title}"
            for epoch in finding.epochs:
                self._stands_out.setdefault(epoch, {})[said] = None

    def beside(self, step: EpochStep) -> EpochStep:
        evidence: list[str | None] = []
        if step.trigger == Trigger.SESSION_EXPIRED.name:
            silent = [member for member in step.members if member not in step.away]
            evidence = [
                self._noted.longest_gap(one, step.timestamp_ms, self._timeouts.get((step.index, one), inf))
                for one in silent
            ]
        return replace(
            step,
            evidence=tuple(gap for gap in evidence if gap is not None),
            what_if=tuple(self._what_if.get(step.index, ())),
            stands_out=tuple(self._stands_out.get(step.epoch, ())),
        )


def _limits(catalog: CatalogHistory, group_id: str) -> tuple[str, ...]:
    if catalog.present:
        return ()
    said = "the metadata shard is not in this directory: topic changes are shown without their details"
    return (f"{said}, and topic names come from the records of group {group_id}",)
