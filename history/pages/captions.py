"""The texts beside the lanes: epochs, terms and findings in words, few enough to be read.

The sentences come from `history.words`. Here they get the members' short names, and long lists are cut, with
the number of omitted items in their place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from history.diagnoses import words_of, worst_first
from history.facts.naming import member_names
from history.facts.rows import (
    EpochRow,
    GroupFinding,
    GroupRows,
    MemberProgress,
    TermRow,
    TopicPartition,
    WaitEnd,
    begun_ms,
    time_to_stable_ms,
)
from history.protocols import PUSH, epoch_noun, progress_verbs
from history.reading.notes import Note
from history.render import TimeStyle, duration, plural, ranges, sentence_list
from history.telling.evidence import fault_steps
from history.telling.member_labels import term_of
from history.words import Formatter, partitions_words, reasons_words, term_words
from records import Certainty, ReasonKind

EPOCHS_MAX = 5_000
"""Maximum number of epochs described, the newest; older ones appear in the lanes only."""
LINES_MAX = 60_000
"""Maximum number of lines about moves, waits and steps in all epochs together: about 5 MB."""
LINES_PER_EPOCH_MAX = 60
LINES_PER_EPOCH_MIN = 4
SPAN_MS_MIN = 1_000
"""Minimum period in ms that a picture shows, even for a log of one entry."""
NAMED_MAX = 3
FINDINGS_MAX = 300
"""Maximum number of findings described, most severe first."""

_BRIEFLY: dict[int, str] = {
    ReasonKind.MEMBER_JOINED: "{member} joined",
    ReasonKind.MEMBER_LEFT: "{member} left",
    ReasonKind.SESSION_EXPIRED: "{member} expired",
    ReasonKind.REBALANCE_EXPIRED: "{member} too slow",
    ReasonKind.SUBSCRIPTION_CHANGED: "{member} changed its subscription",
    ReasonKind.REGEX_CHANGED: "{member} changed its subscription",
    ReasonKind.TOPIC_CREATED: "{topic} created",
    ReasonKind.TOPIC_GROWN: "{topic} grew",
    ReasonKind.TOPIC_DELETED: "{topic} deleted",
    ReasonKind.TOPIC_RECREATED: "{topic} recreated",
    ReasonKind.ASSIGNOR_CHANGED: "assignor changed",
    ReasonKind.MEMBER_REMOVED: "{member} removed",
    ReasonKind.JOIN_TIMED_OUT: "{member} did not join",
}
_WAIT_ENDS = {
    WaitEnd.RELEASED: "until {holder} gave {them} up",
    WaitEnd.FENCED: "until {holder} was fenced",
    WaitEnd.LEFT: "until {holder} left",
    WaitEnd.OVERTAKEN: "until the next target",
    WaitEnd.OPEN: "and still did at the end",
    WaitEnd.UNKNOWN: "its end is in entries that are missing",
}


class Captions:
    """The texts of one group's page; members are called by their numbers (`history.facts.naming`)."""

    def __init__(self, facts: GroupRows, style: TimeStyle, whole: GroupRows | None = None) -> None:
        """``whole`` also has what precedes ``facts``, so that a window does not change the members' names."""
        self.names = member_names(whole or facts)
        self._clients: dict[str, str] = {}
        self._facts = facts
        self._style = style
        for session in (whole or facts).sessions:
            self._clients[session.member_id] = session.client_id
        came = [session.member_id for session in facts.sessions]
        self.members = tuple(self.names.in_order([*came, *_others(facts)]))
        """Every member id that the facts name, by number."""
        for member_id in self.members:
            self.names.name(member_id)

    def faults(self, notes: Iterable[Note], begin: int, end: int) -> list[tuple[int, str]]:
        """The times at which an operator's faults were applied within a window, and their effects."""
        within = [note for note in notes if begin <= note.get("at_ms", -1) <= end]
        steps = fault_steps(within, self._facts.group_id, self.member, self._style)
        return [(one.timestamp_ms, one.text) for one in steps]

    def member(self, member_id: str | None) -> str:
        """``m2 (app-2)``."""
        if member_id is None:
            return "nobody"
        if not member_id:
            return "a member that the log does not name"
        client = self._clients.get(member_id)
        return f"{self.names.name(member_id)} ({client})" if client else self.names.name(member_id)

    def client(self, member_id: str) -> str:
        return self._clients.get(member_id, "")

    def epochs(self, from_ms: int, to_ms: int) -> list[dict[str, Any]]:
        """The newest `EPOCHS_MAX` epochs that overlap a window, oldest first."""
        told = [
            row
            for row in self._facts.epochs
            if row.timestamp_ms <= to_ms and (row.end_ms is None or row.end_ms >= from_ms)
        ][-EPOCHS_MAX:]
        lines = max(LINES_PER_EPOCH_MIN, min(LINES_PER_EPOCH_MAX, LINES_MAX // max(len(told), 1)))
        return [self._epoch(row, lines) for row in told]

    def why(self, row: EpochRow) -> tuple[str, ...]:
        """The reasons of an epoch as sentences."""
        changes = {change.name: change.words() for change in row.topics}
        formatter = Formatter(
            self._style,
            self.member,
            topic_changes=changes,
            away=frozenset(row.away),
            protocol=row.protocol,
        )
        if not row.is_begin_known:
            return ("it began in entries that are missing",)
        inferred = " (inferred, not recorded)" if row.cause.certainty != Certainty.RECORDED else ""
        said = reasons_words(row.cause, row.timestamp_ms, formatter)
        return tuple(text.removesuffix(inferred) + inferred for text in said)

    def _epoch(self, row: EpochRow, lines: int) -> dict[str, Any]:
        return {
            "epoch": row.epoch,
            "noun": epoch_noun(row.protocol),
            "before": row.epoch_before,
            "index": row.index,
            "at": row.timestamp_ms,
            "began": begun_ms(row),
            "target": row.target_ms,
            "settled": row.settled_ms,
            "toStable": time_to_stable_ms(row),
            "settledIndex": row.settled_index,
            "end": row.end_ms,
            "state": row.state,
            "overtaken": row.overtaken_by,
            "members": row.num_members,
            "brief": self._brief(row),
            "why": _cut(self.why(row), lines),
            "moved": len(row.moves),
            "moves": _cut(self._moves(row), lines),
            "steps": _cut(self._steps(row), lines),
            "waits": _cut(self._waits(row), lines),
        }

    def _brief(self, row: EpochRow) -> str:
        """The reason in about three words; empty if that is not possible."""
        if not row.cause.reasons:
            return ""
        first = row.cause.reasons[0]
        words = _BRIEFLY.get(first.kind, "")
        said = words.format(member=self.names.name(first.member_id), topic=first.topic) if words else ""
        more = len(row.cause.reasons) - 1
        return f"{said} +{more}" if said and more else said

    def _moves(self, row: EpochRow) -> list[str]:
        together: dict[tuple[str, str | None, str | None], list[int]] = defaultdict(list)
        for move in row.moves:
            together[move.partition.topic, move.source, move.target].append(move.partition.partition)
        return [
            f"{topic} {ranges(numbers)}: {self.member(source)} → {self.member(target)}"
            for (topic, source, target), numbers in together.items()
        ]

    def _steps(self, row: EpochRow) -> list[list[Any]]:
        """``[at, index, words]`` of each action of a member."""
        said: list[list[Any]] = []
        came: list[MemberProgress] = []
        told, released, took, _ = progress_verbs(row.protocol)
        for step in row.progress:
            if step.reached and step.index != row.index and not (step.told or step.released or step.took):
                # Most members only reach the epoch: successive ones share a line.
                came.append(step)
                continue
            self._say_came(row, came, said)
            came = []
            parts = [
                f"{told} {partitions_words(step.told)}" if step.told else "",
                f"{released} {partitions_words(step.released)}" if step.released else "",
                f"{took} {partitions_words(step.took)}" if step.took else "",
                _arrived(row) if step.reached else "",
            ]
            done = ", ".join(part for part in parts if part)
            if done:
                said.append([step.timestamp_ms, step.index, f"{self.member(step.member_id)} {done}"])
        self._say_came(row, came, said)
        return said

    def _say_came(self, row: EpochRow, came: Sequence[MemberProgress], said: list[list[Any]]) -> None:
        """Add a line such as ``m1, m2 and 17 more came to epoch 4 within 320 ms``."""
        if came:
            shown = [self.member(step.member_id) for step in came[:NAMED_MAX]]
            rest = [f"{len(came) - NAMED_MAX} more"] if len(came) > NAMED_MAX else []
            within = came[-1].timestamp_ms - came[0].timestamp_ms
            words = f"{sentence_list([*shown, *rest])} {_arrived(row)}"
            words += f" within {duration(within)}" if within else ""
            said.append([came[0].timestamp_ms, came[0].index, words])

    def _waits(self, row: EpochRow) -> list[list[Any]]:
        """``[from, to, words]`` of each wait of a member for another."""
        together: dict[tuple[Any, ...], list[TopicPartition]] = defaultdict(list)
        for wait in row.waits:
            key = (wait.from_ms, wait.to_ms, wait.waiter, wait.holder, wait.end)
            together[key].append(wait.partition)
        said: list[list[Any]] = []
        for (from_ms, to_ms, waiter, holder, end), partitions in together.items():
            until = self._facts.last_ms if to_ms is None else to_ms
            them = "it" if len(partitions) == 1 else "them"
            ended = _WAIT_ENDS[end].format(holder=self.member(holder), them=them)
            waited = duration(max(until - from_ms, 0))
            what = partitions_words(partitions)
            said.append([from_ms, to_ms, f"{self.member(waiter)} waited {waited} for {what}, {ended}"])
        return said

    def finding(self, finding: GroupFinding) -> str:
        """The finding's words, with member ids replaced by the names on this page."""
        return words_of(finding, self.member)

    def term(self, row: TermRow) -> dict[str, Any]:
        words = term_words(term_of(row), row.gap_ms if row.is_takeover else None)
        return {
            "at": row.timestamp_ms,
            "index": row.index,
            "node": row.node_id,
            "takeover": row.is_takeover,
            "gap": row.gap_ms,
            "words": words,
        }


def bounds_of(facts: GroupRows, from_ms: int | None, to_ms: int | None) -> tuple[int, int]:
    """Start and exclusive end of a picture: those of the facts, unless a window was given.

    The end is after the last entry, so that the picture includes the effect of that entry.
    """
    told = [row.timestamp_ms for row in facts.epochs]
    told += (session.from_ms for session in facts.sessions)
    begin = min((ms for ms in told if ms >= 0), default=max(facts.last_ms, 0))
    last = max([*told, facts.last_ms, begin])
    begin = begin if from_ms is None else max(from_ms, 0)
    last = last if to_ms is None else min(to_ms, max(last, begin))
    return begin, max(last + 1, begin + SPAN_MS_MIN)


def shown_findings(findings: Iterable[GroupFinding]) -> list[GroupFinding]:
    """The findings that are described, the most severe first."""
    return worst_first(findings)[:FINDINGS_MAX]


def _arrived(row: EpochRow) -> str:
    """``came to epoch 4``; in a push group ``answered Start of round 4``."""
    verb = "answered Start of" if row.protocol == PUSH else "came to"
    return f"{verb} {epoch_noun(row.protocol)} {row.epoch}"


def _others(facts: GroupRows) -> list[str]:
    """Members that rows name but that have no session, as in a log that begins in the middle."""
    named = [span.member_id for span in facts.spans if span.member_id is not None]
    for epoch in facts.epochs:
        named += epoch.members
        named += (wait.holder for wait in epoch.waits)
        named += (wait.waiter for wait in epoch.waits)
        named += (step.member_id for step in epoch.progress)
    return list(dict.fromkeys(named))


def _cut(lines: Sequence[Any], most: int) -> dict[str, Any]:
    return {"lines": list(lines[:most]), "more": max(len(lines) - most, 0)}


def left_out_words(facts: GroupRows, findings: Sequence[GroupFinding]) -> list[str]:
    """The omissions of the texts, each in a sentence."""
    said = []
    if len(facts.epochs) > EPOCHS_MAX:
        older = plural(len(facts.epochs) - EPOCHS_MAX, "older epoch")
        said.append(f"{older} left out and shown only as lanes: --until shows them")
    if len(findings) > FINDINGS_MAX:
        said.append(f"{plural(len(findings) - FINDINGS_MAX, 'less severe finding')} left out")
    return said
