"""Members that expired without leaving, and members that repeatedly join and leave.

The log proves that an expired member was silent, but not why. A member that came back under the same member
id had been alive. A member that expired under a leader that never received its heartbeat was lost around the
change of leader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from history.facts.rows import MemberSession, SessionEnd, TermRow
from history.protocols import OLD, PUSH
from history.render import duration, plural

from .case import (
    LOOK_BACK_MS,
    MEMBERS_NAMED_MAX,
    NO_EVIDENCE,
    RETURN_MS,
    SETTLE_MS,
    Case,
    Found,
    Threshold,
    clusters,
    member,
    members,
    parts,
    unique,
)

EXPIRED_TOGETHER_MS = Threshold(
    15_000,
    "EXPIRED_TOGETHER_MS",
    "Longest time between two expiries of one finding, the longest heartbeat interval of clients: members "
    "that die together expire at most one interval apart.",
)

FLAP_PAUSE_MS = Threshold(
    300_000,
    "FLAP_PAUSE_MS",
    "Longest time between two returns of one finding: a session timeout and the start of a process take "
    "less.",
)
UNHEARD_PAUSE_MS = Threshold(
    300_000,
    "UNHEARD_PAUSE_MS",
    "Longest time between two expiries of one finding: session timeouts of a group differ by less.",
)
FLAPS_MIN = Threshold(3, "FLAPS_MIN", "An operator restarts a process once, or twice if the restart failed.")


def session_expired(case: Case) -> Iterator[Found]:
    """Members whose session expired, that were not away, and that did not come back."""
    lost = [s for s in case.facts.sessions if _how(case, s) == "lost"]
    for together in clusters(lost, _lost_ms, EXPIRED_TOGETHER_MS):
        held = [part for session in together for part in case.held_at_end(session)]
        who = members(session.member_id for session in together)
        said = f"{who} {_fell_silent(together[0])} and did not return"
        if len(together) > 1:
            said += ", all at about the same time: check what they share (a host, a network, a deployment)"
        said += f"; until then {parts(held)} had no other owner" if held else "; it had no partitions"
        yield _expiry(case, together, said + _regularity(case, together))


def _lost_ms(session: MemberSession) -> int:
    """The time at which it should have expired; a leader that comes late removes it later."""
    return max(session.deadline_ms or 0, (session.to_ms or 0) - SETTLE_MS)


def member_paused(case: Case) -> Iterator[Found]:
    """Members whose session expired and that came back under the same id: they had been alive."""
    for session in case.facts.sessions:
        if _how(case, session) != "paused":
            continue
        back = _comes_back(case, session)
        assert back is not None
        held = case.held_at_end(session)
        was = "alive, but paused or unable to reach the node"
        if session.protocol == PUSH:  # consumers choose their ids, and keep them when they start again
            was += ", or it was started again"
        said = (
            f"{member(session.member_id)} {_fell_silent(session)}, lost {parts(held)} and "
            f"returned with the same id {duration(back.from_ms - (session.to_ms or 0))} after it was "
            f"removed: its process was {was}"
        )
        found = _expiry(case, [session], said + _regularity(case, [session]))
        yield replace(found, rests_on=(*found.rests_on, back.from_index))


def expired_after_failover(case: Case) -> Iterator[Found]:
    """Members that expired under the leader of a new term, which never received a heartbeat of theirs."""
    by_term: dict[int, list[MemberSession]] = {}
    for session in case.facts.sessions:
        term = _unheard_since(case, session) if _how(case, session) == "unheard" else None
        if term is not None:
            by_term.setdefault(term.index, []).append(session)
    groups = [
        (term, together)
        for term in case.facts.terms
        for together in clusters(by_term.get(term.index, ()), lambda s: s.to_ms or 0, UNHEARD_PAUSE_MS)
    ]
    for term, together in groups:
        held = [part for session in together for part in case.held_at_end(session)]
        back = [session.member_id for session in together if _comes_back(case, session) is not None]
        what = "took over" if term.is_takeover else "started"
        who, limit = members(s.member_id for s in together), duration(together[0].timeout_ms or 0)
        said = f"{who} never reached node {term.node_id} after it {what}, and expired a session timeout "
        said += f"({limit}) later with {parts(held)};"
        if together[0].protocol == PUSH:
            said = f"{who} did not register again with node {term.node_id} within {limit} after it {what}, "
            said += f"and lost {parts(held)};"
        if back:
            said += f" {members(back)} returned with the same id: it was alive and had not found the leader"
        else:
            said += (
                " whether it died with the former leader or earlier is unknown: when that one heard it last "
                "is not in the log"
            )
        found = _expiry(case, together, said, is_certain=bool(back))
        yield replace(found, rests_on=(term.index, *found.rests_on))


def static_member_gone(case: Case) -> Iterator[Found]:
    """Static members that left temporarily and did not come back within their session."""
    for session in case.facts.sessions:
        if _how(case, session) != "away":
            continue
        away = session.aways[-1]
        held = case.held_at_end(session)
        said = (
            f"{member(session.member_id)} (instance {session.instance_id}) left temporarily and did not "
            f"return within its session timeout of {duration(session.timeout_ms or 0)}; until then "
            f"{parts(held)} were not processed"
        )
        found = _expiry(case, [session], said)
        yield replace(
            found,
            from_index=away.from_index,
            from_ms=away.from_ms,
            rests_on=(away.from_index, *found.rests_on),
            is_certain=True,
        )


def flapping_member(case: Case) -> Iterator[Found]:
    """Processes that join and leave again and again."""
    for flapping in flaps(case.facts.sessions):
        yield _flapping(case, flapping)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flapping:
    """One process that came back several times."""

    process: str
    """The identity of the process, in words: ``client app-1 at 10.0.0.7``."""
    stays: list[MemberSession]
    """Its sessions in that period, and the one before the first return."""
    returns: list[tuple[int, int]]
    """(index, ms) of each return."""

    @property
    def member_ids(self) -> tuple[str, ...]:
        """Its member ids, newest first."""
        return unique(session.member_id for session in reversed(self.stays))

    @property
    def ends(self) -> dict[str, int]:
        """Numbers of its sessions by their end, up to the last return."""
        found: dict[str, int] = {}
        for session in self.stays:
            if session.to_index is not None and session.to_index <= self.returns[-1][0]:
                found[session.end.value] = found.get(session.end.value, 0) + 1
        return found

    @property
    def how(self) -> str:
        """``left 3×, session expired 1×``."""
        return ", ".join(f"{end} {count}×" for end, count in self.ends.items()) or "joined again with epoch 0"


def flaps(sessions: Sequence[MemberSession]) -> Iterator[Flapping]:
    """The flapping processes of one group; returns seen under several identities are reported once."""
    told: set[int] = set()
    for process, stays in _processes(sessions):
        returns = [
            *_returns(stays),
            *(place for stay in stays for place in stay.rejoined if stay.protocol != PUSH),
        ]
        for run in clusters(returns, lambda place: place[1], FLAP_PAUSE_MS, FLAPS_MIN):
            indexes = {index for index, _ in run}
            if len(run) < FLAPS_MIN or indexes <= told:
                continue
            run.sort()
            mine = _stays_in(stays, run)
            if not _overlap(mine):
                told |= indexes
                yield Flapping(process=process, stays=mine, returns=run)


def _returns(stays: list[MemberSession]) -> Iterator[tuple[int, int]]:
    """The sessions that began soon after the newest end of those before."""
    newest: MemberSession | None = None
    for stay in stays:
        if (
            newest is not None
            and newest.end is not SessionEnd.FORGOTTEN  # all register again after a failover
            and (newest.to_ms is None or stay.from_ms - newest.to_ms <= RETURN_MS)
        ):
            yield stay.from_index, stay.from_ms
        if (
            newest is None
            or stay.to_index is None
            or (newest.to_index is not None and newest.to_index <= stay.to_index)
        ):
            newest = stay


def _stays_in(stays: list[MemberSession], run: list[tuple[int, int]]) -> list[MemberSession]:
    (first, first_ms), (last, _) = run[0], run[-1]
    mine = [s for s in stays if s.from_index <= last and (s.to_index is None or s.to_index >= first - 1)]
    before = [
        s
        for s in stays
        if s.to_index is not None and s.to_index <= first and first_ms - (s.to_ms or 0) <= RETURN_MS
    ][-1:]
    return [*before, *(s for s in mine if s not in before)]


def _flapping(case: Case, flapping: Flapping) -> Found:
    mine, run, ids = flapping.stays, flapping.returns, flapping.member_ids
    last, last_ms = run[-1]
    held = {
        span.partition
        for session in mine
        for span in case.spans_of(session.member_id)
        if session.from_index <= span.from_index <= last
        and (span.to_ms is None or span.to_ms >= last_ms - LOOK_BACK_MS)
    }
    ends = (s.to_index for s in mine if s.to_ms is not None and s.to_ms <= last_ms + FLAP_PAUSE_MS)
    named = members(ids if len(ids) > MEMBERS_NAMED_MAX else ids[::-1])
    span_ms = run[-1][1] - mine[0].from_ms
    return Found(
        members=ids,
        partitions=sorted(held),
        epochs=case.epochs_between(mine[0].from_index, last, last_ms),
        from_index=mine[0].from_index,
        from_ms=mine[0].from_ms,
        to_index=last,
        to_ms=run[-1][1],
        words=(
            f"{flapping.process} returned {plural(len(run), 'time')} in {duration(span_ms)} "
            f"({flapping.how}), as {named}; in turn it owned {parts(held)}"
        ),
        rests_on=(
            *(session.from_index for session in mine),
            *ends,
            *(index for index, _ in run),
        ),
    )


def _processes(sessions: Sequence[MemberSession]) -> Iterator[tuple[str, list[MemberSession]]]:
    """Successive sessions of one process, identified by instance id, member id, or client id and host.

    Several members may share a client id and a host. Where their sessions overlap, that proves nothing.
    """
    by_instance: dict[str, list[MemberSession]] = {}
    by_member: dict[str, list[MemberSession]] = {}
    by_client: dict[str, list[MemberSession]] = {}
    for session in sessions:
        by_member.setdefault(f"member {member(session.member_id)}", []).append(session)
        if session.instance_id:
            by_instance.setdefault(f"instance {session.instance_id}", []).append(session)
        if session.client_id:
            host = session.client_host.removeprefix("/")
            by_client.setdefault(f"client {session.client_id} at {host}", []).append(session)
    for grouped in (by_instance, by_member, by_client):
        for name, stays in grouped.items():
            if len(stays) + sum(len(s.rejoined) for s in stays) > FLAPS_MIN:
                yield name, stays


def _overlap(stays: list[MemberSession]) -> bool:
    return any(one.to_index is None or one.to_index > later.from_index for one, later in pairwise(stays))


# How a session ended.


def _how(case: Case, session: MemberSession) -> str:
    """``lost``, ``paused``, ``unheard`` or ``away``; empty for sessions that did not expire."""
    if session.end is not SessionEnd.SESSION_EXPIRED:
        return ""
    if session.aways and session.aways[-1].to_ms is None:
        return "away"
    if _unheard_since(case, session) is not None:
        return "unheard"
    return "paused" if _comes_back(case, session) is not None else "lost"


def _unheard_since(case: Case, session: MemberSession) -> TermRow | None:
    """The term that began during the session and whose leader never received a heartbeat of the member."""
    if session.last_heartbeat_ms is not None or session.to_index is None:
        return None
    since_ms = (session.to_ms or 0) - LOOK_BACK_MS
    begun = [
        t
        for t in case.facts.terms
        if session.from_index < t.index < session.to_index and t.timestamp_ms >= since_ms
    ]
    return begun[-1] if begun else None


def _comes_back(case: Case, session: MemberSession) -> MemberSession | None:
    for later in case.sessions_by_member[session.member_id]:
        if session.to_index is not None and later.from_index > session.to_index:
            return later if later.from_ms - (session.to_ms or 0) <= RETURN_MS else None
    return None


def _fell_silent(session: MemberSession) -> str:
    """``sent no heartbeat for 3.0 s (its session timeout of 3.0 s)``."""
    if session.protocol != PUSH:
        return f"sent no heartbeat for {_silence(session)}"
    limit = f"had {duration(session.timeout_ms or 0)} to answer Ping, Stop and Start"
    if session.last_heartbeat_ms is None or session.to_ms is None:
        return f"failed (it {limit})"
    silent = duration(max(session.to_ms - session.last_heartbeat_ms, 0))
    return f"failed (it {limit}, and was last heard of {silent} before)"


def _silence(session: MemberSession) -> str:
    limit = f"its session timeout of {duration(session.timeout_ms or 0)}"
    if session.last_heartbeat_ms is None or session.deadline_ms is None:
        return limit
    return f"{duration(session.deadline_ms - session.last_heartbeat_ms)} ({limit})"


def _regularity(case: Case, together: list[MemberSession]) -> str:
    """The regularity of earlier heartbeats according to the evidence; nodes note none of older protocols."""
    if together[0].protocol in OLD:
        return ""
    if not case.has_evidence:
        return f"; the gaps between its earlier heartbeats are unknown: {NO_EVIDENCE}"
    gaps = [case.longest_gap_ms(session) for session in together]
    known = [gap for gap in gaps if gap is not None]
    if not known:
        return "; the gaps between its earlier heartbeats were not recorded"
    return f"; before that the longest gap between two of its heartbeats was {duration(max(known))}"


def _expiry(
    case: Case, together: list[MemberSession], words: str, *, is_certain: bool | None = None
) -> Found:
    first, last = together[0], together[-1]
    heard = [session.last_heartbeat_ms for session in together]
    from_ms = min(
        ms if ms is not None else (session.to_ms or 0) - (session.timeout_ms or 0)
        for ms, session in zip(heard, together, strict=True)
    )
    epoch = case.epoch_when(max(from_ms, (last.to_ms or 0) - LOOK_BACK_MS))
    opened = [case.epoch_at(session.to_index or 0) for session in together]
    return Found(
        members=unique(session.member_id for session in together),
        partitions=sorted({part for session in together for part in case.held_at_end(session)}),
        epochs=unique(row.epoch for row in opened if row is not None),
        from_index=min(first.to_index or 0, epoch.index if epoch is not None else first.from_index),
        from_ms=from_ms,
        to_index=last.to_index,
        to_ms=last.to_ms,
        words=words,
        rests_on=unique(session.to_index for session in together),
        is_certain=case.has_evidence or first.protocol in OLD if is_certain is None else is_certain,
    )
