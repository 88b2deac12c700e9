"""Partitions that change owner too slowly, or not at all.

A partition moves in three steps: its owner is asked to revoke it (REVOKING); the owner reports that it has
(UNOWNED, for a heartbeat interval at most); its new owner takes it (OWNED). Each step waits for one client,
which these rules name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from history.facts.rows import MemberSession, OwnershipSpan, SessionEnd, SpanKind, TopicPartition
from history.protocols import PUSH
from history.render import duration

from .case import LOOK_BACK_MS, Case, Found, Threshold, clusters, member, members, parts, unique

SLOW_REVOCATION_MS = Threshold(
    10_000,
    "SLOW_REVOCATION_MS",
    "A client acknowledges a revocation at once. Ten seconds are more than it takes to commit and to close "
    "the resources of a partition, and twice the default heartbeat interval of Kafka's brokers.",
)

STUCK_MS = Threshold(
    60_000,
    "STUCK_MS",
    "Longer than the default session timeout (45 s), after which a dead member no longer blocks others.",
)


def slow_revoker(case: Case) -> Iterator[Found]:
    """Members that revoked partitions as asked, but slowly."""
    for (holder, told), spans in _revocations(case).items():
        session = case.session_at(holder, told)
        slow = [
            span
            for span in spans
            if span.to_ms is not None
            and span.to_ms - span.from_ms >= SLOW_REVOCATION_MS
            and not _ended_with(session, span)
            and not _was_left_it(case, span)
        ]
        for given_up in clusters(slow, lambda span: span.to_ms or 0, STUCK_MS):
            yield _slow(case, holder, told, session, given_up)


def _slow(
    case: Case, holder: str, told: int, session: MemberSession | None, slow: list[OwnershipSpan]
) -> Found:
    given = [span.partition for span in slow]
    last = max(slow, key=lambda span: span.to_index or 0)
    took_ms = (last.to_ms or 0) - last.from_ms
    share = ""
    if session is not None and session.rebalance_timeout_ms:
        share = f", of a rebalance timeout of {duration(session.rebalance_timeout_ms)}"
    waiting = _waiting(case, holder, slow)
    return Found(
        members=unique((holder, *waiting)),
        partitions=given,
        epochs=case.epochs_between(told, (last.to_index or told) - 1, last.to_ms or 0),
        from_index=told,
        from_ms=last.from_ms,
        to_index=last.to_index,
        to_ms=last.to_ms,
        words=(
            f"{member(holder)} took {duration(took_ms)} to give up {parts(given)} after it was told to"
            f"{share}; {members(waiting)} waited for it"
        ),
        rests_on=unique((told, *(span.to_index for span in slow))),
    )


def revocation_timed_out(case: Case) -> Iterator[Found]:
    """Members that did not revoke partitions in time and were removed for it."""
    for session in case.facts.sessions:
        if session.end is not SessionEnd.REBALANCE_EXPIRED or session.to_index is None:
            continue
        spans = [s for s in case.spans_of(session.member_id) if s.to_index == session.to_index]
        asked = [s for s in spans if s.kind is SpanKind.REVOKING]
        held = [span.partition for span in asked]
        told = min((span.from_index for span in asked), default=session.to_index)
        from_ms = min((span.from_ms for span in asked), default=session.to_ms or 0)
        waiting = _waiting(case, session.member_id, asked)
        limit = duration(session.timeout_ms or 0)
        lost = [span.partition for span in spans if span.kind is not SpanKind.REVOKING]
        yield Found(
            members=unique((session.member_id, *waiting)),
            partitions=held,
            epochs=case.epochs_between(told, session.to_index, session.to_ms or 0),
            from_index=told,
            from_ms=from_ms,
            to_index=session.to_index,
            to_ms=session.to_ms,
            words=(
                f"{member(session.member_id)} did not give up {parts(held)} within its rebalance timeout of "
                f"{limit} and was removed, also losing {parts(lost)}; {members(waiting)} waited for it"
            ),
            rests_on=unique((*(span.from_index for span in asked), session.to_index)),
        )


def stuck_reconciliation(case: Case) -> Iterator[Found]:
    """Partitions that wait for one member, longer than anything that ends by itself."""
    yield from _not_given_up(case)
    yield from _not_fetched(case)


def _not_given_up(case: Case) -> Iterator[Found]:
    for (holder, told), spans in _revocations(case).items():
        open_ = [span for span in spans if span.to_ms is None]
        if not open_ or case.known_until_ms - open_[0].from_ms < STUCK_MS:
            continue
        held = [span.partition for span in open_]
        waiting = _waiting(case, holder, open_)
        since = duration(case.known_until_ms - open_[0].from_ms)
        yield Found(
            members=unique((holder, *waiting)),
            partitions=held,
            epochs=case.epochs_between(told, None, case.known_until_ms),
            from_index=told,
            from_ms=open_[0].from_ms,
            words=(
                f"{member(holder)} was told to give up {parts(held)} and had not done so after {since}, at "
                f"the end of what was read; {members(waiting)} cannot continue without it"
            ),
            rests_on=(told,),
        )


def _not_fetched(case: Case) -> Iterator[Found]:
    wanted = _Wanted(case)
    waiting: dict[tuple[str, bool], list[_Free]] = {}
    for span in case.spans_of(None, SpanKind.UNOWNED):
        until_ms = case.known_until_ms if span.to_ms is None else span.to_ms
        if until_ms - span.from_ms >= STUCK_MS:
            free = wanted.by(span)
            if free is not None and until_ms - free.from_ms >= STUCK_MS:
                waiting.setdefault((free.taker, span.to_ms is None), []).append(free)
    for (taker, is_open), of_taker in waiting.items():
        ended = () if is_open else clusters(of_taker, lambda free: free.span.to_ms or 0, STUCK_MS)
        for spans in ended or [of_taker]:
            yield _fetched_late(case, taker, spans)


def _fetched_late(case: Case, taker: str, spans: list[_Free]) -> Found:
    partitions = [free.span.partition for free in spans]
    first = min(spans, key=lambda free: free.from_index)
    to_index, to_ms = max(
        ((free.span.to_index, free.span.to_ms) for free in spans), key=lambda end: end[0] or 0
    )
    until_ms = case.known_until_ms if to_ms is None else to_ms
    until = ", until the end of what was read" if to_ms is None else ""
    return Found(
        members=(taker,),
        partitions=partitions,
        epochs=case.epochs_between(first.from_index, to_index, until_ms),
        from_index=first.from_index,
        from_ms=first.from_ms,
        to_index=to_index,
        to_ms=to_ms,
        words=(
            f"{member(taker)} was assigned {parts(partitions)} and did not take it over for "
            f"{duration(until_ms - first.from_ms)}{until}; "
            "during that time nobody owned it"
        ),
        rests_on=unique(index for free in spans for index in (free.from_index, free.span.to_index)),
    )


@dataclass(frozen=True, slots=True)
class _Free:
    """A partition without an owner that one member could take, since an entry."""

    span: OwnershipSpan
    taker: str
    from_index: int
    from_ms: int


class _Wanted:
    """The owner of each partition in the target, by log index."""

    def __init__(self, case: Case) -> None:
        self._moves: dict[TopicPartition, list[tuple[int, int, str | None]]] = {}
        for one in case.earlier.given:
            self._moves[one.partition] = [(one.index, one.ms, one.taker)]
        for row in case.facts.epochs:
            if row.target_index is None or row.target_ms is None:
                continue
            for move in row.moves:
                given = (row.target_index, row.target_ms, move.target)
                self._moves.setdefault(move.partition, []).append(given)
        for moves in self._moves.values():
            moves.sort(key=lambda given: given[0])

    def by(self, span: OwnershipSpan) -> _Free | None:
        """The member that should own it at the span's end, and since when it could have taken it."""
        free: _Free | None = None
        for index, ms, taker in self._moves.get(span.partition, ()):
            if span.to_index is not None and index >= span.to_index:
                break
            free = None
            if taker is not None:
                free = _Free(span, taker, max(index, span.from_index), max(ms, span.from_ms))
        return free


def _revocations(case: Case) -> dict[tuple[str, int], list[OwnershipSpan]]:
    """(member, index of the entry that asked it) -> its spans of revocation."""
    found: dict[tuple[str, int], list[OwnershipSpan]] = {}
    for span in case.facts.spans:
        if span.kind is SpanKind.REVOKING and span.member_id is not None:
            found.setdefault((span.member_id, span.from_index), []).append(span)
    return found


def _ended_with(session: MemberSession | None, span: OwnershipSpan) -> bool:
    """Whether the span ended because its member was removed."""
    return session is not None and session.to_index == span.to_index


def _was_left_it(case: Case, span: OwnershipSpan) -> bool:
    """Whether a newer target let the member keep it, so that the revocation time is unknown."""
    return any(
        later.member_id == span.member_id and later.from_index == span.to_index
        for later in case.spans_by_partition[span.partition]
    )


def _waiting(case: Case, holder: str, spans: list[OwnershipSpan]) -> tuple[str, ...]:
    """Members that waited for these partitions meanwhile."""
    if not spans:
        return ()
    until_ms = max(case.known_until_ms if span.to_ms is None else span.to_ms for span in spans)
    row = case.epoch_since(spans[0].from_index, spans[0].from_ms, until_ms)
    if row is not None and row.protocol == PUSH:  # nobody is sent Start before everybody has stopped
        return tuple(one for one in row.members if one != holder)
    wanted = {span.partition: span for span in spans}
    found = [
        wait.waiter
        for row in case.facts.epochs
        for wait in row.waits
        if wait.holder == holder
        and wait.partition in wanted
        and (wait.to_index is None or wait.to_index > wanted[wait.partition].from_index)
        and (wait.to_ms is None or wait.to_ms >= until_ms - LOOK_BACK_MS)
        and (
            wanted[wait.partition].to_index is None
            or wait.from_index < (wanted[wait.partition].to_index or 0)
        )
    ]
    return unique(found)
