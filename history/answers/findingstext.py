"""`findings` as text: a summary by severity and kind, then the findings, the gravest first.

More than `IN_FULL_MAX` findings are, without `--all`, told in at most `LINES_MAX` lines: one for each, or, if
these do not fit, for those of one kind in one group. A finding in full has what it rests on and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from history.diagnoses import RULES, words_of
from history.facts.rows import GroupFinding, Severity
from history.reading.source import Basis
from history.render import LOCAL, TimeStyle, duration, plural, ranges, sentence_list
from history.words import shard_name

from .findings import Findings, GroupFindings

IN_FULL_MAX = 3
LINES_MAX = 30
"""Limit on the lines of a text without `--all`: a screen."""
KINDS_SHOWN_MAX = 10
"""Limit on the kinds in the summary of such a text."""
LISTED_MIN = 5
"""Lines that such a text lists even if its head is long: damage, or many notes."""
MEMBERS_SHOWN_MAX = 20
ENTRIES_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class _Told:
    """One finding and its group, which is None for a finding of a shard."""

    found: GroupFinding
    group: GroupFindings | None

    @property
    def place(self) -> str:
        return shard_name(self.found.shard) if self.group is None else self.group.group_id

    def said(self, *, with_clients: bool) -> str:
        """The finding's sentence, with members by name, and with their clients unless it names these."""
        described = {} if self.group is None else _described(self.group)

        def name_of(member_id: str) -> str:
            name, client = described.get(member_id, (member_id, ""))
            return f"{name} ({client})" if with_clients and client not in self.found.words else name

        return words_of(self.found, name_of)


def findings_text(
    answer: Findings,
    style: TimeStyle = LOCAL,
    *,
    whole: bool = False,
    again: str = "quorate log findings DIR",
) -> Iterator[str]:
    """The answer as lines; ``again`` is the command that asks the same, for a hint at what is left out."""
    told = _by_severity(answer)
    head = list(_head(answer, told, style, kinds_max=None if whole else KINDS_SHOWN_MAX))
    yield from head
    if whole or len(told) <= IN_FULL_MAX:
        yield from _in_full(told, style)
        return
    room = max(LINES_MAX - len(head) - 3, LISTED_MIN)
    alike = [[one] for one in told] if len(told) <= room else _alike(told)
    shown, rest = alike[:room], alike[room:]
    yield ""
    for some in shown:
        yield _line(some, style)
    yield ""
    more = f"{_counted(one for some in rest for one in some)} are not in this list; " if rest else ""
    yield f"{more}every finding in full: {again} --all"


def _alike(told: Iterable[_Told]) -> list[list[_Told]]:
    """The findings of one kind in one group together, in the place of the first of them."""
    found: dict[tuple[str, str], list[_Told]] = {}
    for one in told:
        found.setdefault((one.found.kind, one.place), []).append(one)
    return list(found.values())


def _by_severity(answer: Findings) -> list[_Told]:
    """All findings, the gravest first, then in the order of the log."""
    told = [
        *(_Told(found, None) for shard in answer.shards for found in shard.findings),
        *(_Told(found, group) for group in answer.groups for found in group.findings),
    ]
    rank = list(Severity)[::-1].index
    return sorted(told, key=lambda one: (rank(one.found.severity), one.found.from_ms, one.place))


# The head.


def _head(
    answer: Findings, told: Sequence[_Told], style: TimeStyle, *, kinds_max: int | None
) -> Iterator[str]:
    span = ""
    if answer.from_ms < answer.until_ms:
        ends = f"{style.full(answer.from_ms)} to {style.full(answer.until_ms)}"
        span = f" from {ends} ({duration(answer.until_ms - answer.from_ms)})"
    groups = f"group {answer.groups[0].group_id}" if answer.is_of_one else plural(answer.groups_read, "group")
    milder = f"; {plural(answer.milder, 'milder finding')} left out" if answer.milder else ""
    cut = [basis for basis in answer.basis if basis.gaps]
    yield from (f"damaged: {basis.words()}" for basis in cut)
    groups = f"what could be read of {groups}" if cut else groups
    if told:
        yield f"{plural(len(told), 'finding')}{span}"
        yield f"{_counted(told)} in {_places(answer, told, groups)}{milder}"
    else:
        yield f"nothing odd in {groups}{span}{milder}"
    yield from _rests_on([basis for basis in answer.basis if not basis.gaps])
    for note in answer.notes:
        yield f"note: {note}"
    if told:
        yield ""
        yield from _kinds(told, kinds_max)


def _places(answer: Findings, told: Sequence[_Told], groups: str) -> str:
    if answer.is_of_one:
        return groups
    odd = len({one.place for one in told if one.group is not None})
    shards = len({one.place for one in told if one.group is None})
    places = [groups if odd == answer.groups_read else f"{odd} of {groups}"] if odd else []
    return sentence_list([*places, *([plural(shards, "shard")] if shards else [])])


def _counted(told: Iterable[_Told]) -> str:
    """``2 errors, 5 warnings and 1 note``."""
    counts = dict.fromkeys(reversed(Severity), 0)
    for one in told:
        counts[one.found.severity] += 1
    return sentence_list([plural(count, severity.value) for severity, count in counts.items() if count])


def _rests_on(bases: Sequence[Basis]) -> Iterator[str]:
    """The basis of the answer; shards that are read from the same place and lack nothing share a line."""
    whole: dict[str, list[Basis]] = {}
    for basis in bases:
        if basis.whole and not basis.undecided and not basis.remarks and basis.first_index is not None:
            whole.setdefault(basis.node, []).append(basis)
        else:
            yield f"from {basis.words()}"
    for node, some in whole.items():
        if len(some) == 1:
            yield f"from {some[0].words()}"
            continue
        shards = ranges(basis.shard for basis in some)
        entries = sum((basis.last_index or 0) - (basis.first_index or 0) + 1 for basis in some)
        of_node = f" of {node}" if node else ""
        yield f"from shards {shards}{of_node}: {plural(entries, 'entry')}, nothing missing"


def _kinds(told: Sequence[_Told], kinds_max: int | None) -> Iterator[str]:
    """A line for each kind, the gravest first, then the most frequent."""
    by_kind: dict[str, list[_Told]] = {}
    for one in told:
        by_kind.setdefault(one.found.kind, []).append(one)
    rank = list(Severity)[::-1].index
    kinds = sorted(by_kind, key=lambda kind: (rank(RULES[kind].severity), -len(by_kind[kind]), kind))
    shown = kinds[:kinds_max]
    width = max(len(kind) for kind in shown)
    for kind in shown:
        some, rule = by_kind[kind], RULES[kind]
        yield f"{rule.severity.value:<7}  {len(some):>5,}  {kind:<{width}}  {rule.title}{_in_places(some)}"
    if rest := kinds[len(shown) :]:
        yield f"and {plural(len(rest), 'more kind')}"


def _in_places(some: Sequence[_Told]) -> str:
    places = list(dict.fromkeys(one.place for one in some))
    if len(places) == 1:
        return f" ({places[0]})"
    noun = "shard" if some[0].group is None else "group"
    return f" ({plural(len(places), noun)})"


# The findings.


def _line(some: Sequence[_Told], style: TimeStyle) -> str:
    """The findings of one kind in one group: how many, when the first one began, and its sentence."""
    found = some[0].found
    times = f" {len(some)} times, first" if len(some) > 1 else ""
    at, said = style.full(found.from_ms)[:19], some[0].said(with_clients=True)
    return f"{found.severity.value:<7}  {some[0].place}  {found.kind}{times} {at}: {said}"


def _in_full(told: Sequence[_Told], style: TimeStyle) -> Iterator[str]:
    for one in told:
        yield ""
        yield from _finding_text(one, style)
    named = {one.group.group_id: one.group for one in told if one.group is not None and one.group.members}
    if named:
        yield ""
    for group in named.values():
        of_group = "" if len(named) == 1 else f" of {group.group_id}"
        for name, described in list(group.members.items())[:MEMBERS_SHOWN_MAX]:
            yield f"{name}{of_group} is {described}"
        if len(group.members) > MEMBERS_SHOWN_MAX:
            more = plural(len(group.members) - MEMBERS_SHOWN_MAX, "more member")
            yield f"and {more}{of_group} (--json has them)"


def _finding_text(one: _Told, style: TimeStyle) -> Iterator[str]:
    found, rule = one.found, RULES[one.found.kind]
    yield f"{style.full(found.from_ms)}  {found.severity.value.upper()}  {found.kind}: {rule.title}"
    yield f"  what      {one.said(with_clients=False)}"
    lasted = "" if found.to_ms is None else f", over after {duration(found.to_ms - found.from_ms)}"
    where = one.place
    if one.group is not None:
        noun = one.group.noun
        where = f"group {where}, " + (f"{noun} {ranges(found.epochs)}" if found.epochs else f"no {noun}")
    yield f"  where     {where}{lasted or ', still going on at the end of what was read'}"
    entries = ", ".join(str(index) for index in found.rests_on[:ENTRIES_SHOWN_MAX])
    more = len(found.rests_on) - ENTRIES_SHOWN_MAX
    yield f"  rests on  entries {entries}" + (f" and {more} more" if more > 0 else "")
    yield f"  to do     {rule.do}"


def _described(group: GroupFindings) -> Mapping[str, tuple[str, str]]:
    """Member id -> its name, and its client's id."""
    found = {}
    for name, described in group.members.items():
        member_id, _, said = described.partition(" (")
        client = said.partition(",")[0].removesuffix(")")
        found[member_id] = (name, client.removeprefix("client ") if client.startswith("client ") else "")
    return found


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
