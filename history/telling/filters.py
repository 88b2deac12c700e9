"""Selects a part of a group's story: an epoch, a member, a partition, a moment.

Several choices narrow each other. If something does not exist, the error message says what does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from history.facts.rows import (
    EpochRow,
    GroupRows,
    MemberSession,
    OwnershipSpan,
    SessionEnd,
    SpanKind,
    TopicPartition,
    shared_noun,
    waits_during,
)
from history.protocols import epoch_noun
from history.reading.source import NothingToRead
from history.render import TimeStyle, duration, plural, ranges

from .member_labels import MemberLabels
from .story import Focus

SPANS_TOLD_MAX = 20
"""Maximum number of spans listed, the newest. `owner` lists all spans of a partition."""
TOPICS_NAMED_MAX = 8
_STRANGER = "no entry names it; its requests were refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The user's filters, as typed; a moment is an index or a time in epoch ms."""

    epoch: int | None = None
    member: str | None = None
    partition: str | None = None
    at_index: int | None = None
    at_ms: int | None = None

    @property
    def is_everything(self) -> bool:
        return self == NO_FILTERS


NO_FILTERS = Filters()


def chosen(facts: GroupRows, labels: MemberLabels, filters: Filters) -> tuple[Focus, tuple[str, ...]]:
    """Return the focus of the story, and lines to print first; raises `NothingToRead`."""
    rows: list[EpochRow] = list(facts.epochs)
    said: list[str] = []
    if filters.epoch is not None:
        rows = [row for row in rows if row.epoch == filters.epoch]
        if not rows:
            raise NothingToRead(_no_epoch(facts, filters.epoch))
    if filters.at_index is not None or filters.at_ms is not None:
        around = _around(facts, filters.at_index, filters.at_ms, labels.style)
        rows = [row for row in rows if row in around]
        said.append(_at_words(facts, around, labels, filters))
    members = None
    if filters.member is not None:
        members = frozenset(labels.find(filters.member))
        said += (line for s in facts.sessions if s.member_id in members for line in _session_words(s, labels))
        said += (f"{labels.short(one)}: {_STRANGER}" for one in sorted(members) if labels.is_stranger(one))
        rows = [row for row, waits in waits_during(rows) if _concerns(row, members) or any(
            wait.waiter in members or wait.holder in members for wait in waits
        )]  # fmt: skip
    partition = None
    if filters.partition is not None:
        partition = _partition(facts, filters.partition)
        said += _span_words([span for span in facts.spans if span.partition == partition], labels)
        rows = [row for row in rows if _touches(row, partition)]
    is_all = filters.is_everything
    return Focus(None if is_all else frozenset(row.index for row in rows), members, partition), tuple(said)


def _no_epoch(facts: GroupRows, epoch: int) -> str:
    have = ranges(row.epoch for row in facts.epochs)
    noun = shared_noun(facts.epochs)
    return f"no {noun} {epoch} of group {facts.group_id!r} in what was read: it has {noun}s {have}"


def _concerns(row: EpochRow, members: frozenset[str]) -> bool:
    return (
        any(reason.member_id in members for reason in row.cause.reasons)
        or any(moved.source in members or moved.target in members for moved in row.moves)
        or any(step.member_id in members for step in row.progress)
    )


def _touches(row: EpochRow, partition: TopicPartition) -> bool:
    return (
        any(moved.partition == partition for moved in row.moves)
        or any(wait.partition == partition for wait in row.waits)
        or any(partition in (*step.released, *step.told, *step.took) for step in row.progress)
    )


# A moment.


def _around(facts: GroupRows, index: int | None, ms: int | None, style: TimeStyle) -> list[EpochRow]:
    """The epoch in force at a moment.

    If the group was not stable then, the epochs back to the last stable one and on to the next stable one are
    included.
    """
    rows = list(facts.epochs)
    now = next((n for n in reversed(range(len(rows))) if _has_begun(rows[n], index, ms)), None)
    if now is None or (rows[now].end_index is not None and _is_over(rows[now], index, ms)):
        moment = f"at index {index}" if index is not None else f"at {style.full(ms or 0)}"
        raise NothingToRead(_not_there(facts, now, moment, style))
    if _was_settled(rows[now], index, ms):
        return [rows[now]]
    first = last = now
    while first > 0 and _follows(rows[first], rows[first - 1]):
        first -= 1
        if rows[first].settled_index is not None:
            break
    while rows[last].settled_index is None and last + 1 < len(rows) and _follows(rows[last + 1], rows[last]):
        last += 1
    return rows[first : last + 1]


def _follows(row: EpochRow, before: EpochRow) -> bool:
    return before.end_index == row.index


def _has_begun(row: EpochRow, index: int | None, ms: int | None) -> bool:
    return row.index <= index if index is not None else row.timestamp_ms <= (ms or 0)


def _is_over(row: EpochRow, index: int | None, ms: int | None) -> bool:
    """Whether the group ended before the moment; ``row`` is the last epoch that had begun."""
    assert row.end_index is not None
    assert row.end_ms is not None
    return row.end_index <= index if index is not None else row.end_ms <= (ms or 0)


def _was_settled(row: EpochRow, index: int | None, ms: int | None) -> bool:
    if row.settled_index is None or row.settled_ms is None:
        return False
    return row.settled_index <= index if index is not None else row.settled_ms <= (ms or 0)


def _not_there(facts: GroupRows, now: int | None, moment: str, style: TimeStyle) -> str:
    if now is None:
        when = ""
        if facts.epochs:
            first = facts.epochs[0]
            began = f"began at {style.full(first.timestamp_ms)} (index {first.index})"
            when = f": its first {epoch_noun(first.protocol)} {began}"
        return f"group {facts.group_id!r} was not there yet {moment}{when}"
    row = facts.epochs[now]
    gone = f"its {epoch_noun(row.protocol)} {row.epoch} ended at index {row.end_index}"
    return f"group {facts.group_id!r} was not there {moment}: {gone}"


def _at_words(facts: GroupRows, around: Sequence[EpochRow], labels: MemberLabels, filters: Filters) -> str:
    index, ms = filters.at_index, filters.at_ms
    row = next(row for row in reversed(around) if _has_begun(row, index, ms))
    when = f"at index {index}" if index is not None else f"at {labels.style.full(ms or 0)}"
    if ms is not None and ms > facts.last_ms:
        last = labels.style.full(facts.last_ms)
        when = f"the log that was read ends at {last}, before that moment; at its end"
    said = f"{when} {epoch_noun(row.protocol)} {row.epoch} was in force, since index {row.index}"
    if _was_settled(row, index, ms):
        since = labels.style.full(row.settled_ms or 0)
        return f"{said}, and the group at rest since {since} (index {row.settled_index})"
    end = around[-1]
    if end.settled_index is None or end.settled_ms is None:
        return f"{said}, and the group was not stable; nor was it at the end of what was read"
    lasted = duration(end.settled_ms - _unrest_ms(around))
    since = labels.style.full(end.settled_ms)
    settled = f"{epoch_noun(end.protocol)} {end.epoch}"
    return (
        f"{said}, and the group was not stable; it was again with {settled} at {since}"
        f" (index {end.settled_index}), after {lasted} of unrest"
    )


def _unrest_ms(around: Sequence[EpochRow]) -> int:
    """Time at which the group stopped being stable: the start of the epoch after the last settled one."""
    if len(around) > 1 and around[0].settled_index is not None:
        return around[1].timestamp_ms
    return around[0].timestamp_ms


# A member.


def _session_words(session: MemberSession, labels: MemberLabels) -> Iterator[str]:
    who = labels.member(session.member_id)
    came = "was there at" if not session.is_begin_known else "came at"
    said = f"{who} {came} {labels.style.full(session.from_ms)} (index {session.from_index})"
    if session.replaced is not None:
        said += f", replacing {labels.short(session.replaced)}"
    if session.rejoins:
        said += f", joined again {plural(session.rejoins, 'time')}"
    if session.to_index is None or session.to_ms is None:
        yield f"{said} and was there at the end of what was read"
    else:
        stayed = duration(session.to_ms - session.from_ms)
        yield f"{said} and {_ENDS[session.end]} at index {session.to_index}, after {stayed}"


_ENDS = {
    SessionEnd.LEFT: "left",
    SessionEnd.SESSION_EXPIRED: "was removed because its session expired,",
    SessionEnd.REBALANCE_EXPIRED: "was removed because it did not give up its partitions in time,",
    SessionEnd.REMOVED: "was removed by an operator",
    SessionEnd.FORGOTTEN: "was forgotten by a new coordinator",
    SessionEnd.JOIN_EXPIRED: "was removed because it did not join again in time,",
    SessionEnd.SYNC_EXPIRED: "was removed because it did not send SyncGroup in time,",
    SessionEnd.REPLACED: "was replaced by another process with its instance id",
    SessionEnd.OPEN: "was there",
    SessionEnd.UNKNOWN: "was gone (the log does not say how)",
}


# A partition.


def _partition(facts: GroupRows, text: str) -> TopicPartition:
    known = {span.partition for span in facts.spans}
    known.update(moved.partition for row in facts.epochs for moved in row.moves)
    topic, _, number = text.rpartition("-")
    if topic and number.isdecimal():
        asked = TopicPartition(topic=topic, partition=int(number))
        if asked in known:
            return asked
    topics: dict[str, list[int]] = {}
    for one in known:
        topics.setdefault(one.topic, []).append(one.partition)
    shown = sorted(topics)[:TOPICS_NAMED_MAX]
    have = "; ".join(f"{name} {ranges(topics[name])}" for name in shown) or "none"
    rest = f" and {plural(len(topics) - len(shown), 'more topic')}" if len(topics) > len(shown) else ""
    raise NothingToRead(
        f"no partition {text!r} in group {facts.group_id!r}: it has {have}{rest} (orders 0-3 means orders-0 "
        "to orders-3)"
    )


def _span_words(spans: Sequence[OwnershipSpan], labels: MemberLabels) -> Iterator[str]:
    if len(spans) > SPANS_TOLD_MAX:
        yield f"{len(spans) - SPANS_TOLD_MAX:,} earlier owners are left out"
    for span in spans[-SPANS_TOLD_MAX:]:
        since = f"{labels.style.full(span.from_ms)} (index {span.from_index})"
        lasted = "to the end" if span.to_ms is None else f"for {duration(span.to_ms - span.from_ms)}"
        match span.kind:
            case SpanKind.UNOWNED:
                said = "nobody had it"
            case SpanKind.REVOKING:
                said = f"{labels.short(span.member_id)} was told to give it up"
            case _:
                said = f"{labels.member(span.member_id or '')} had it"
        yield f"{span.partition}: {said} from {since} on, {lasted}"
