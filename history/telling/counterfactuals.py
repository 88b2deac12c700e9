"""What would have been otherwise, where the records prove it, and where not: what is unknown.

The log proves when a member was removed and by which deadline it could have prevented that; that it was late,
and by how much, only what came of it afterwards does: a heartbeat that was refused (evidence), or its own
return. Of an epoch that waited for one member the log proves when all else was done, hence how much sooner it
could have been stable at most; how much sooner at least follows from how often the one that waited was heard
of (evidence). Nothing else is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from history.facts.rows import (
    EpochRow,
    GroupFacts,
    MemberSession,
    OwnershipSpan,
    SessionEnd,
    SpanKind,
    Wait,
    WaitEnd,
    waits_during,
)
from history.render import duration, sentence_list
from wire.apis import ApiKey
from wire.errors import ErrorCode

from .evidence import HEARTBEAT_GAP, REFUSED
from .story import Focus
from .voice import Voice, partitions_words

Notes = Sequence[Mapping[str, Any]]
SOONER_MS_MIN = 5_000
"""Waits that cost less, one heartbeat interval of Kafka's, are how the protocol works."""
MINUTE_MS = 60_000
NOTED_LATE_MS = 6_000
"""A gap between heartbeats may be noted so much later, hence in the next minute."""

_HEARTBEATS = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT)
_REMOVED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """One "had it been otherwise", of one epoch."""

    kind: str
    """``heartbeat``, ``return``, ``acknowledgement`` or ``wait``."""
    index: int
    """The entry that opened the epoch."""
    epoch: int
    member_id: str
    deadline_ms: int | None = None
    """Epoch ms by which it could have prevented its removal."""
    late_ms: int | None = None
    """How much too late it came; ``None``: not known."""
    sooner_ms: int | None = None
    """How much sooner the epoch could have been stable at most; ``None``: not known."""
    sooner_ms_min: int | None = None
    """And at least."""
    at_ms: int | None = None
    """When it came, or when all else was done."""
    is_certain: bool
    """The records prove all of it; otherwise ``words`` say what is unknown."""
    words: str


def counterfactuals(
    facts: GroupFacts, notes: Notes | None, voice: Voice, focus: Focus
) -> tuple[Counterfactual, ...]:
    """Of the epochs and members in focus; ``notes`` is None where there is no evidence."""
    told: list[Counterfactual] = []
    ended: dict[int, list[MemberSession]] = {}
    for session in facts.sessions:
        if session.to_index is not None and session.deadline_ms is not None:
            ended.setdefault(session.to_index, []).append(session)
    for row, waits in waits_during(facts.epochs):
        if not focus.has_row(row) or focus.partition is not None:
            continue
        for session in ended.get(row.index, ()):
            if focus.has_member(session.member_id):
                told.append(_of_removal(row, session, facts, notes, voice))
        told += [one for one in _of_waits(row, waits, notes, voice) if focus.has_member(one.member_id)]
    return tuple(told)


# Removals.


def _of_removal(
    row: EpochRow, session: MemberSession, facts: GroupFacts, notes: Notes | None, voice: Voice
) -> Counterfactual:
    if session.end is SessionEnd.REBALANCE_EXPIRED:
        return _if_acknowledged(row, session, facts, notes, voice)
    if session.aways and session.aways[-1].to_ms is None:
        return _if_returned(row, session, facts, voice)
    return _if_heard(row, session, facts, notes, voice)


def _if_heard(
    row: EpochRow, session: MemberSession, facts: GroupFacts, notes: Notes | None, voice: Voice
) -> Counterfactual:
    deadline_ms = session.deadline_ms or 0
    who, by = voice.short(session.member_id), voice.style.clock(deadline_ms)
    came, back = _first_refused(session, facts, notes), _back_again(session, facts)
    at_ms: int | None = None
    if came is not None:
        at_ms = came["at_ms"]
        said = (
            f"had the heartbeat of {who} that was refused at {voice.style.clock(at_ms)} come before {by}"
            f" (it was {duration(at_ms - deadline_ms)} late) it would not have been removed"
        )
        if session.last_heartbeat_ms is not None and session.timeout_ms is not None:
            between = duration(at_ms - session.last_heartbeat_ms)
            said += f"; it came {between} after the last one, and the session timeout is"
            said += f" {duration(session.timeout_ms)}"
    else:
        said = f"had a heartbeat of {who} come before {by} it would not have been removed"
        if back is not None:
            said += (
                f"; it was late and not gone, by {duration(back.from_ms - deadline_ms)} at most: it joined"
            )
            said += f" again at {voice.style.clock(back.from_ms)} (index {back.from_index})"
        else:
            said += f"; whether it was late or gone is not known: {_why_unknown(notes)}"
    return Counterfactual(
        kind="heartbeat",
        index=row.index,
        epoch=row.epoch,
        member_id=session.member_id,
        deadline_ms=deadline_ms,
        late_ms=None if at_ms is None else at_ms - deadline_ms,
        at_ms=at_ms,
        is_certain=at_ms is not None,
        words=said,
    )


def _if_returned(row: EpochRow, session: MemberSession, facts: GroupFacts, voice: Voice) -> Counterfactual:
    deadline_ms = session.deadline_ms or 0
    by = voice.style.clock(deadline_ms)
    had = f"had {voice.short(session.member_id)} come back before {by} it would have kept its place"
    back = next(
        (
            one
            for one in facts.sessions
            if one.instance_id == session.instance_id and one.from_index >= (session.to_index or 0)
        ),
        None,
    )
    late_ms = None if back is None else back.from_ms - deadline_ms
    if back is None or late_ms is None:
        had += "; it did not come back in what was read"
    else:
        had += f": its instance came {duration(late_ms)} too late, at {voice.style.clock(back.from_ms)}"
        had += f" (index {back.from_index})"
    return Counterfactual(
        kind="return",
        index=row.index,
        epoch=row.epoch,
        member_id=session.member_id,
        deadline_ms=deadline_ms,
        late_ms=late_ms,
        at_ms=None if back is None else back.from_ms,
        is_certain=back is not None,
        words=had,
    )


def _if_acknowledged(
    row: EpochRow, session: MemberSession, facts: GroupFacts, notes: Notes | None, voice: Voice
) -> Counterfactual:
    deadline_ms = session.deadline_ms or 0
    who, by = voice.short(session.member_id), voice.style.clock(deadline_ms)
    owed = [
        span
        for span in facts.spans
        if span.kind is SpanKind.REVOKING
        and (span.member_id, span.to_index) == (session.member_id, session.to_index)
    ]
    what = f" of {partitions_words(span.partition for span in owed)}" if owed else ""
    came = _first_refused(session, facts, notes)
    at_ms: int | None = None if came is None else came["at_ms"]
    is_certain = came is not None and _acknowledges(came, owed)
    if at_ms is not None and is_certain:
        said = (
            f"had {who} acknowledged the revocation{what} before {by} it would not have been fenced:"
            f" its acknowledgement came at {voice.style.clock(at_ms)}, {duration(at_ms - deadline_ms)} late"
        )
    else:
        said = f"had {who} acknowledged the revocation{what} before {by} it would not have been fenced; "
        if at_ms is None:
            said += f"whether it was late or never would have is not known: {_why_unknown(notes)}"
        else:
            after = duration(at_ms - deadline_ms)
            said += f"a heartbeat of it came {after} after that and was refused, "
            said += _no_acknowledgement(came, owed)
    late_ms = at_ms - deadline_ms if at_ms is not None and is_certain else None
    return Counterfactual(
        kind="acknowledgement",
        index=row.index,
        epoch=row.epoch,
        member_id=session.member_id,
        deadline_ms=deadline_ms,
        late_ms=late_ms,
        at_ms=at_ms,
        is_certain=is_certain,
        words=said,
    )


def _acknowledges(note: Mapping[str, Any], owed: Sequence[OwnershipSpan]) -> bool:
    """Whether the refused heartbeat said what the member owns, and nothing that it owed was in it."""
    owned = note.get("owned")
    if not owed or not isinstance(owned, Mapping):
        return False
    return all(span.partition.partition not in owned.get(span.topic_id, ()) for span in owed)


def _no_acknowledgement(note: Mapping[str, Any] | None, owed: Sequence[OwnershipSpan]) -> str:
    owned = None if note is None else note.get("owned")
    if owed and isinstance(owned, Mapping):
        return "and said that it still had some of it"
    return "and whether that was the acknowledgement is not known"


def _first_refused(
    session: MemberSession, facts: GroupFacts, notes: Notes | None
) -> Mapping[str, Any] | None:
    """The first heartbeat of a removed member that was refused because it was removed."""
    back = _back_again(session, facts)
    for note in notes or ():
        if note.get("kind") != REFUSED or note.get("group") != facts.group_id:
            continue
        at_ms = note["at_ms"]
        is_between = at_ms >= (session.to_ms or 0) and (back is None or at_ms <= back.from_ms)
        is_its = note.get("member") == session.member_id
        if is_between and is_its and note["api"] in _HEARTBEATS and note["error"] in _REMOVED:
            return note
    return None


def _back_again(session: MemberSession, facts: GroupFacts) -> MemberSession | None:
    """The next session under the same member id: ids are chosen at the start of a process."""
    for one in facts.sessions:
        if one.member_id == session.member_id and one.from_index > (session.to_index or 0):
            return one
    return None


def _why_unknown(notes: Notes | None) -> str:
    if notes is None:
        return "no evidence of the group is here"
    return "the evidence file has no later request of it"


# Waits.


def _of_waits(
    row: EpochRow, waits: Sequence[Wait], notes: Notes | None, voice: Voice
) -> Iterator[Counterfactual]:
    """How much sooner the epoch could have been stable without the wait for one member."""
    by_holder: dict[str, list[Wait]] = {}
    for wait in waits:
        by_holder.setdefault(wait.holder, []).append(wait)
    for holder, held in by_holder.items():
        if row.settled_ms is None or row.settled_index is None:
            lasted = max((wait.to_ms or wait.from_ms) - max(wait.from_ms, row.timestamp_ms) for wait in held)
            if row.overtaken_by is not None and lasted >= SOONER_MS_MIN:
                yield _overtaken(row, holder, lasted, voice)
            continue
        yield from _without(row, row.settled_ms, holder, held, waits, notes, voice)


def _overtaken(row: EpochRow, holder: str, lasted_ms: int, voice: Voice) -> Counterfactual:
    return Counterfactual(
        kind="wait",
        index=row.index,
        epoch=row.epoch,
        member_id=holder,
        is_certain=False,
        words=f"others waited {duration(lasted_ms)} for {voice.short(holder)}; whether the epoch would have"
        f" been stable without is not known, as epoch {row.overtaken_by} overtook it",
    )


def _without(
    row: EpochRow,
    settled_ms: int,
    holder: str,
    held: Sequence[Wait],
    waits: Sequence[Wait],
    notes: Notes | None,
    voice: Voice,
) -> Iterator[Counterfactual]:
    """All steps of others that do not rest on what the holder had show when all else was done."""
    theirs = {wait.partition for wait in held}
    done_ms, done_index = max((row.timestamp_ms, row.index), (row.target_ms or 0, row.target_index or 0))
    for step in row.progress:
        rests_on_it = step.member_id == holder or not theirs.isdisjoint(step.took)
        if not rests_on_it and (step.timestamp_ms, step.index) > (done_ms, done_index):
            done_ms, done_index = step.timestamp_ms, step.index
    sooner_ms = settled_ms - done_ms
    ended = [wait for wait in held if wait.to_ms is not None and wait.to_ms <= settled_ms]
    waited_ms = max((wait.to_ms or 0) - max(wait.from_ms, row.timestamp_ms) for wait in ended) if ended else 0
    if min(sooner_ms, waited_ms) < SOONER_MS_MIN:
        return
    sooner_ms = min(sooner_ms, settled_ms - max(done_ms, min(wait.from_ms for wait in ended)))
    least_ms = _at_least(row, settled_ms, done_ms, held, waits, notes)
    at = f"{voice.style.clock(done_ms)} (index {done_index})"
    said = (
        f"without the {duration(waited_ms)} wait for {voice.short(holder)} the epoch would have been stable"
    )
    if least_ms is not None and least_ms > 0:
        said += f" between {duration(least_ms)} and {duration(sooner_ms)} sooner: all else was done at {at}"
    else:
        waiters = sentence_list(sorted({voice.short(wait.waiter) for wait in held}))
        said += f" up to {duration(sooner_ms)} sooner: all else was done at {at};"
        said += f" how soon {waiters} would have come for what it gave up is not known: {_no_rhythm(notes)}"
    yield Counterfactual(
        kind="wait",
        index=row.index,
        epoch=row.epoch,
        member_id=holder,
        sooner_ms=sooner_ms,
        sooner_ms_min=least_ms,
        at_ms=done_ms,
        is_certain=least_ms is not None,
        words=said,
    )


def _at_least(
    row: EpochRow,
    settled_ms: int,
    done_ms: int,
    held: Sequence[Wait],
    waits: Sequence[Wait],
    notes: Notes | None,
) -> int | None:
    """How much sooner for certain, had the holder given up when it was told: whoever waited was heard of
    at least once in its longest gap between heartbeats, and took it then."""
    if any(wait.told_ms is None or wait.end is not WaitEnd.RELEASED for wait in held):
        return None
    holder = held[0].holder
    if any(step.member_id == holder and step.took for step in row.progress):
        return None  # when it would have taken that, had it given up sooner, is another question
    freed_ms = max(wait.told_ms or 0 for wait in held)
    waiters = {wait.waiter for wait in held}
    others_ms = [wait.to_ms for wait in waits if wait not in held and wait.waiter in waiters]
    if any(ms is None for ms in others_ms):
        return None
    gaps = [_longest_gap(row, waiter, freed_ms, settled_ms, notes) for waiter in waiters]
    known = [gap for gap in gaps if gap is not None]
    if len(known) < len(gaps):
        return None
    free_ms = max([freed_ms, *(ms for ms in others_ms if ms is not None)])
    return settled_ms - max(done_ms, free_ms + round(max(known)))


def _longest_gap(
    row: EpochRow, member_id: str, from_ms: int, to_ms: int, notes: Notes | None
) -> float | None:
    """Between two heartbeats of a member in all minutes of a time; ``None``: one of them is not noted."""
    first = from_ms // MINUTE_MS * MINUTE_MS
    last = (to_ms + NOTED_LATE_MS) // MINUTE_MS * MINUTE_MS
    noted: dict[int, float] = {}
    for note in notes or ():
        if note.get("kind") != HEARTBEAT_GAP or note.get("group") != row.group_id:
            continue
        minute = note["minute_ms"]
        if note.get("member") == member_id and first <= minute <= last:
            noted[minute] = max(noted.get(minute, 0.0), note["gap_ms"])
    minutes = range(first, last + 1, MINUTE_MS)
    return max(noted.values()) if noted and all(minute in noted for minute in minutes) else None


def _no_rhythm(notes: Notes | None) -> str:
    if notes is None:
        return "no evidence of the group is here"
    return "the evidence file does not say how often it was heard of then"
