"""Counterfactuals: what would have happened otherwise, where the records prove it, and what is unknown.

The log proves when a member was removed, and the deadline by which it could have prevented that. That the
member was late, and by how much, is only proved by later events: a heartbeat that was refused (evidence), or
its own return. For an epoch that waited for one member, the log proves when everything else was done, and so
at most how much sooner it could have been stable. At least how much sooner follows from the heartbeat
intervals of the waiting member (evidence). Nothing else is claimed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from history.facts.rows import EpochRow, GroupRows, MemberSession, OwnershipSpan, SessionEnd, waits_during
from history.protocols import PUSH
from history.reading.notes import has_none_of, is_of_removed, owned_in
from history.render import duration
from history.words import partitions_words

from .evidence import GroupNotes
from .known import Counterfactual, Known
from .member_labels import MemberLabels
from .story import Focus
from .wait_impact import of_waits


def counterfactuals(
    facts: GroupRows, noted: GroupNotes, labels: MemberLabels, focus: Focus
) -> tuple[Counterfactual, ...]:
    """Counterfactuals for the epochs and members in focus."""
    known = Known(facts, noted, labels)
    told: list[Counterfactual] = []
    ended: dict[int, list[MemberSession]] = {}
    for session in facts.sessions:
        if session.to_index is not None and session.deadline_ms is not None:
            ended.setdefault(session.to_index, []).append(session)
    for row, waits in waits_during(facts.epochs):
        if not focus.has_row(row) or focus.partition is not None:
            continue
        for session in ended.get(row.index, ()):
            # no single event removes a consumer of a push group: several of its answers have to be missing
            if focus.has_member(session.member_id) and session.protocol != PUSH:
                told.append(_of_removal(row, session, known))
        told += [one for one in of_waits(row, waits, known) if focus.has_member(one.member_id)]
    return tuple(told)


def _of_removal(row: EpochRow, session: MemberSession, known: Known) -> Counterfactual:
    if session.end is SessionEnd.REBALANCE_EXPIRED:
        return _if_acknowledged(row, session, known)
    if session.end in (SessionEnd.JOIN_EXPIRED, SessionEnd.SYNC_EXPIRED):
        return _if_joined(row, session, known)
    if session.aways and session.aways[-1].to_ms is None:
        return _if_returned(row, session, known)
    return _if_heard(row, session, known)


def _if_heard(row: EpochRow, session: MemberSession, known: Known) -> Counterfactual:
    deadline_ms = session.deadline_ms or 0
    labels = known.labels
    who, by = labels.short(session.member_id), labels.style.clock(deadline_ms)
    kept = "it would not have been removed"
    if known.owed(session):
        kept += " for its silence"  # it might still have been removed for partitions that it had not given up
    came, back = _first_refused(session, known), known.back_again(session)
    at_ms: int | None = None
    if came is not None:
        at_ms = came["at_ms"]
        said = (
            f"had the heartbeat of {who} that was refused at {labels.style.clock(at_ms)} come before {by}"
            f" (it was {duration(at_ms - deadline_ms)} late) {kept}"
        )
        if session.last_heartbeat_ms is not None and session.timeout_ms is not None:
            between = duration(at_ms - session.last_heartbeat_ms)
            said += f"; it came {between} after the last one, and the session timeout is"
            said += f" {duration(session.timeout_ms)}"
    else:
        said = f"had a heartbeat of {who} come before {by} {kept}"
        if back is not None:
            said += (
                f"; it was late and not gone, by {duration(back.from_ms - deadline_ms)} at most: it joined"
            )
            said += f" again at {labels.style.clock(back.from_ms)} (index {back.from_index})"
        else:
            said += f"; whether it was late or gone is not known: {_why_unknown(known.noted)}"
    return _told("heartbeat", row, session, at_ms, said)


def _if_returned(row: EpochRow, session: MemberSession, known: Known) -> Counterfactual:
    deadline_ms = session.deadline_ms or 0
    labels = known.labels
    by = labels.style.clock(deadline_ms)
    had = f"had {labels.short(session.member_id)} returned before {by}, it would have kept its partitions"
    back = known.instance_again(session)
    if back is None:
        had += "; it did not return in what was read"
    else:
        late = duration(back.from_ms - deadline_ms)
        had += f": its instance came {late} too late, at {labels.style.clock(back.from_ms)}"
        had += f" (index {back.from_index})"
    return _told("return", row, session, None if back is None else back.from_ms, had)


def _if_joined(row: EpochRow, session: MemberSession, known: Known) -> Counterfactual:
    labels, by = known.labels, known.labels.style.clock(session.deadline_ms or 0)
    sent = "JoinGroup" if session.end is SessionEnd.JOIN_EXPIRED else "SyncGroup"
    said = f"had {labels.short(session.member_id)} sent {sent} before {by} it would not have been removed"
    back = known.instance_again(session)
    if back is not None:
        said += f"; it joined again at {labels.style.clock(back.from_ms)} (index {back.from_index})"
    return _told("join", row, session, None, said, is_certain=True)


def _if_acknowledged(row: EpochRow, session: MemberSession, known: Known) -> Counterfactual:
    deadline_ms = session.deadline_ms or 0
    labels = known.labels
    who, by = labels.short(session.member_id), labels.style.clock(deadline_ms)
    owed = known.owed(session)
    what = f" of {partitions_words(span.partition for span in owed)}" if owed else ""
    came = _first_refused(session, known)
    at_ms: int | None = None if came is None else came["at_ms"]
    is_certain = came is not None and _acknowledges(came, owed)
    if at_ms is not None and is_certain:
        said = (
            f"had {who} acknowledged the revocation{what} before {by} it would not have been fenced:"
            f" its acknowledgement came at {labels.style.clock(at_ms)}, {duration(at_ms - deadline_ms)} late"
        )
    else:
        said = f"had {who} acknowledged the revocation{what} before {by} it would not have been fenced; "
        if at_ms is None:
            said += f"whether it was late or never would have is not known: {_why_unknown(known.noted)}"
        else:
            after = duration(at_ms - deadline_ms)
            said += f"a heartbeat of it came {after} after that and was refused, "
            said += _no_acknowledgement(came, owed)
    return _told("acknowledgement", row, session, at_ms, said, is_certain=is_certain)


def _told(
    kind: str,
    row: EpochRow,
    session: MemberSession,
    at_ms: int | None,
    words: str,
    *,
    is_certain: bool | None = None,
) -> Counterfactual:
    """The event that would have kept the member. ``at_ms`` is when it came too late: a proof by default."""
    deadline_ms = session.deadline_ms or 0
    is_certain = at_ms is not None if is_certain is None else is_certain
    return Counterfactual(
        kind=kind,
        index=row.index,
        epoch=row.epoch,
        member_id=session.member_id,
        deadline_ms=deadline_ms,
        late_ms=at_ms - deadline_ms if at_ms is not None and is_certain else None,
        at_ms=at_ms,
        is_certain=is_certain,
        words=words,
    )


def _acknowledges(note: Mapping[str, Any], owed: Sequence[OwnershipSpan]) -> bool:
    """Whether the refused heartbeat listed the member's partitions, and none of ``owed`` among them."""
    return bool(owed) and has_none_of(
        owned_in(note), [(span.topic_id, span.partition.partition) for span in owed]
    )


def _no_acknowledgement(note: Mapping[str, Any] | None, owed: Sequence[OwnershipSpan]) -> str:
    if owed and note is not None and owned_in(note) is not None:
        return "and said that it still had some of it"
    return "and whether that was the acknowledgement is not known"


def _first_refused(session: MemberSession, known: Known) -> Mapping[str, Any] | None:
    """The first heartbeat of a removed member that was refused because it had been removed."""
    back = known.back_again(session)
    for note in known.noted.refusals(session.member_id):
        at_ms = note["at_ms"]
        is_between = at_ms >= (session.to_ms or 0) and (back is None or at_ms <= back.from_ms)
        if is_between and is_of_removed(note):
            return note
    return None


def _why_unknown(noted: GroupNotes) -> str:
    if noted.is_empty:
        return "there is no evidence of the group"
    return "the evidence file has no later heartbeat of it that was refused for that"
