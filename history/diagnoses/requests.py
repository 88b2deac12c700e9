"""Requests that were refused repeatedly, or because another process has the instance id.

A refusal leaves no record. Everything here comes from the node's evidence file and is unknown without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from history.facts.rows import MemberSession, SessionEnd, SpanKind, TopicPartition
from history.reading.notes import REFUSED, Note, refusal_words
from history.render import duration, plural
from wire.errors import ErrorCode, error_name

from .case import LOOK_BACK_MS, SETTLE_MS, Case, Found, Threshold, clusters, member, members, parts, unique

REFUSED_PAUSE_MS = Threshold(
    60_000,
    "REFUSED_PAUSE_MS",
    "Longest time between two refusals of one finding: clients retry within seconds.",
)
REFUSED_MIN = Threshold(
    3,
    "REFUSED_MIN",
    "One or two refusals are a normal race, such as a commit during a rebalance.",
)
CONTEST_PAUSE_MS = Threshold(
    120_000,
    "CONTEST_PAUSE_MS",
    "Supervisors restart a process within minutes, with growing delays.",
)

CONTESTED = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)


def instance_id_contested(case: Case) -> Iterator[Found]:
    """Two processes claim the place of one static member."""
    by_instance: dict[str, list[Note]] = {}
    named = [session for session in case.facts.sessions if session.instance_id]
    for note in _refusals(case):
        if note["error"] in CONTESTED:
            said = {s.instance_id for s in named if f"InstanceId {s.instance_id} " in note["reason"]}
            near = (s.instance_id for s in named if s.instance_id in said and _is_near(s, note["at_ms"]))
            for name in unique(near):
                by_instance.setdefault(name, []).append(note)
    for name, notes in sorted(by_instance.items()):
        for run in clusters(notes, lambda note: note["at_ms"], CONTEST_PAUSE_MS):
            yield _contested(case, name, run)


def _is_near(session: MemberSession, at_ms: int) -> bool:
    return session.from_ms <= at_ms + SETTLE_MS and (
        session.to_ms is None or session.to_ms >= at_ms - LOOK_BACK_MS
    )


def _contested(case: Case, name: str, run: list[Note]) -> Found:
    from_ms, to_ms = run[0]["at_ms"], run[-1]["at_ms"]
    refused = unique(note["member"] for note in run)
    owners = [
        session
        for session in case.facts.sessions
        if session.instance_id == name
        and session.from_ms <= to_ms
        and (session.to_ms is None or session.to_ms >= from_ms)
        and session.member_id not in refused
    ]
    held = {
        span.partition
        for owner in owners
        for span in case.spans_of(owner.member_id, SpanKind.OWNED, SpanKind.REVOKING)
        if span.from_ms <= to_ms and (span.to_ms is None or span.to_ms >= from_ms)
    }
    owner_ids = unique(owner.member_id for owner in owners)
    said = (
        f"two processes want instance id {name}: {members(owner_ids)} has it with {parts(held)}, and"
        f" {members(refused)} was refused {plural(len(run), 'time')} in {duration(to_ms - from_ms)}"
        f" ({error_name(run[0]['error'])})"
    )
    return _found(case, run, (*owner_ids, *refused), sorted(held), said + _was_dead(owners, to_ms))


def _was_dead(owners: list[MemberSession], at_ms: int) -> str:
    if (
        owners
        and owners[-1].end is SessionEnd.SESSION_EXPIRED
        and (owners[-1].to_ms or 0) <= at_ms + SETTLE_MS
    ):
        return (
            "; the former never left and sent no heartbeat until its session expired: it had died, and its "
            f"instance id was reserved for {duration(owners[-1].timeout_ms or 0)}"
        )
    return "; both are alive, or the former did not leave before the latter started"


def requests_refused(case: Case) -> Iterator[Found]:
    """One client was refused for one reason again and again."""
    by_client: dict[tuple[str, str, int, int], list[Note]] = {}
    for note in _refusals(case):
        if note["error"] not in CONTESTED:
            key = (note.get("member") or "", note.get("client") or "", note["api"], note["error"])
            by_client.setdefault(key, []).append(note)
    for (member_id, client, _api, _error), notes in sorted(by_client.items()):
        for run in clusters(notes, lambda note: note["at_ms"], REFUSED_PAUSE_MS, REFUSED_MIN):
            if len(run) < REFUSED_MIN:
                continue
            who = member(member_id) if member_id else f"client {client or 'without a name'}"
            span = duration(run[-1]["at_ms"] - run[0]["at_ms"])
            said = f"{who} was refused {plural(len(run), 'time')} in {span}: {refusal_words(run[-1])}"
            yield _found(case, run, (member_id,), (), said)


def _refusals(case: Case) -> list[Note]:
    return case.notes_of(REFUSED)


def _found(
    case: Case, run: list[Note], who: tuple[str, ...], held: Iterable[TopicPartition], words: str
) -> Found:
    first, last = case.epoch_when(run[0]["at_ms"]), case.epoch_when(run[-1]["at_ms"])
    indexes = [row.index for row in (first, last) if row is not None]
    return Found(
        members=unique(who),
        partitions=held,
        epochs=unique(row.epoch for row in (first, last) if row is not None),
        from_index=indexes[0] if indexes else 0,
        from_ms=run[0]["at_ms"],
        to_index=indexes[-1] if indexes else 0,
        to_ms=run[-1]["at_ms"],
        words=words + " (from the evidence file)",
        rests_on=indexes,
        is_certain=False,
    )
