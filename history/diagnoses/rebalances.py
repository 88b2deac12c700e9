"""Members of classic groups for whom the others wait: late to join again, late to sync, or never in time.

In the join phase of a rebalance all wait until every member has sent JoinGroup, and then until the leader has
sent the assignments with its SyncGroup. The cause of a generation says how long both phases took, which
members joined last, and which ones were removed because they did not take part in time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from coordinator.leader_state.classic_group import WAITED_FOR_MAX
from history.facts.rows import EpochRow, MemberSession, begun_ms
from history.protocols import CLASSIC, REWRITE
from history.render import duration, plural, sentence_list
from records import Arrival, Phases, ReasonKind

from .case import Case, Delay, Found, LateRow, Threshold, clusters, members, parts, unique

LATE_MS = Threshold(
    10_000,
    "LATE_MS",
    "Clients learn of a rebalance with their next heartbeat, every 3 s by default, and join when their "
    "callback for revoked partitions has returned.",
)
LATE_MIN = Threshold(3, "LATE_MIN", "Once or twice, a rebalance comes while a member is busy with a batch.")
LATE_PAUSE_MS = Threshold(
    3_600_000,
    "LATE_PAUSE_MS",
    "Longest time between two rebalances of one finding: a stable group has few of them.",
)

TIMEOUTS = {ReasonKind.JOIN_TIMED_OUT: "JoinGroup", ReasonKind.SYNC_TIMED_OUT: "SyncGroup"}
"""The reasons for which a member is removed, each with the request that did not come."""


class _For(StrEnum):
    """The request that the group waited for."""

    JOIN = "to join again"
    ASSIGNMENTS = "to send the assignments"
    NOTHING = "in vain"


def late_member(case: Case) -> Iterator[Found]:
    """Members for which the group waited in one rebalance after the other."""
    known = {row.index for row in case.earlier.late}
    rows = [*case.earlier.late, *(row for row in late_rows(case) if row.index not in known)]
    delays: dict[str, list[tuple[LateRow, Delay]]] = {}
    for row in rows:
        for delay in row.delays:
            delays.setdefault(delay.process, []).append((row, delay))
    for of_process in delays.values():
        for run in clusters(of_process, lambda one: one[0].timestamp_ms, LATE_PAUSE_MS, LATE_MIN):
            if len({row.index for row, _ in run}) >= LATE_MIN:
                yield _late(run)


def late_rows(case: Case) -> Iterator[LateRow]:
    """The rebalances in which the group waited for members."""
    sessions: list[MemberSession] | None = None
    for row in case.facts.epochs:
        if not (delays := tuple(_delays(row))):
            continue
        if sessions is None:
            sessions = list(case.facts.sessions)
        there = [
            one
            for one in sessions
            if one.from_index <= row.index and (one.to_index is None or one.to_index >= row.index)
        ]
        processes = _processes(there, row.index)
        yield LateRow(
            index=row.index,
            timestamp_ms=row.timestamp_ms,
            begun_ms=begun_ms(row),
            epoch=row.epoch,
            members=row.members,
            delays=tuple(replace(one, process=processes.get(one.member_id, one.member_id)) for one in delays),
        )


def _late(run: list[tuple[LateRow, Delay]]) -> Found:
    rows = list({row.index: row for row, _ in run}.values())
    late = unique(delay.member_id for _, delay in reversed(run))
    others = tuple(one for one in unique(one for row in rows for one in row.members) if one not in late)
    from_ms = rows[0].begun_ms
    how = []
    for waited_for in _For:
        spans = [delay.ms for _, delay in run if delay.waited_for == waited_for]
        if spans:
            how.append(f"{plural(len(spans), 'time')} {waited_for}, up to {duration(max(spans))}")
    return Found(
        members=(*late, *others),
        epochs=[row.epoch for row in rows],
        from_index=rows[0].index,
        from_ms=from_ms,
        to_index=rows[-1].index,
        to_ms=rows[-1].timestamp_ms,
        words=(
            f"the group waited for {members(late)} in {len(rows)} rebalances within "
            f"{duration(rows[-1].timestamp_ms - from_ms)} ({sentence_list(how)}); {members(others)} waited"
        ),
        rests_on=[row.index for row in rows],
    )


def rebalance_timed_out(case: Case) -> Iterator[Found]:
    """Members that did not take part in a rebalance in time and were removed for it."""
    for row in case.facts.epochs:
        for kind, request in TIMEOUTS.items():
            gone = [reason.member_id for reason in row.cause.reasons if reason.kind == kind]
            if gone:
                yield _timed_out(case, row, gone, request)


def _timed_out(case: Case, row: EpochRow, gone: list[str], request: str) -> Found:
    timeout_ms = max((one.timeout_ms for one in row.cause.expiries if one.member_id in gone), default=0)
    do_all_wait = row.protocol in (CLASSIC, REWRITE)
    others = tuple(one for one in row.members if one not in gone) if do_all_wait else ()
    limit = f"the longest rebalance timeout of the group, {duration(timeout_ms)}"
    if row.protocol == REWRITE:
        limit = f"its session timeout of {duration(timeout_ms)}"
    elif not do_all_wait:
        limit = f"its rebalance timeout of {duration(timeout_ms)} after it was told to"
    sessions = [case.session_at(member_id, row.index) for member_id in gone]
    held = [
        partition
        for session in sessions
        if session is not None and session.to_index == row.index
        for partition in case.held_at_end(session)
    ]
    return Found(
        members=(*gone, *others),
        partitions=held,
        epochs=(row.epoch,),
        from_index=row.index,
        from_ms=begun_ms(row),
        to_index=row.index,
        to_ms=row.timestamp_ms,
        words=(
            f"{members(gone)} did not send {request} within {limit}, and lost {parts(held)} with its "
            "membership" + (f"; {members(others)} waited for it" if others else "")
        ),
        rests_on=(row.index,),
    )


def _delays(row: EpochRow) -> Iterator[Delay]:
    if row.protocol not in (CLASSIC, REWRITE):  # members of a consumer group wait for partitions only
        return
    cause = row.cause
    timeouts_ms = {one.member_id: one.timeout_ms for one in cause.expiries}
    for reason in cause.reasons:
        if reason.kind in TIMEOUTS:
            yield Delay("", reason.member_id, _For.NOTHING.value, timeouts_ms.get(reason.member_id, 0))
    phases = cause.phases
    if phases is None:
        return
    for arrival in _last_to_join(phases):
        yield Delay("", arrival.member_id, _For.JOIN.value, arrival.at_ms - phases.began_ms)
    syncing_ms = row.timestamp_ms - phases.joined_ms
    if cause.member_id and syncing_ms >= LATE_MS:
        yield Delay("", cause.member_id, _For.ASSIGNMENTS.value, syncing_ms)


def _last_to_join(phases: Phases) -> list[Arrival]:
    """The members that joined when all others had waited for `LATE_MS` already."""
    in_order = sorted(phases.waited_for, key=lambda arrival: arrival.at_ms)
    before_ms = phases.began_ms
    if len(in_order) >= WAITED_FOR_MAX:  # those that joined before the first one are not known
        before_ms = in_order[0].at_ms
    late: list[Arrival] = []
    for arrival in in_order:
        if arrival.at_ms - before_ms >= LATE_MS:
            late = [arrival]
        elif late:
            late.append(arrival)
        before_ms = arrival.at_ms
    return late


def _processes(there: list[MemberSession], index: int) -> dict[str, str]:
    """Member id -> its process, for the members at an entry: one that was removed comes back with another id.

    A client id stands for a process only if no two members had it at the same time."""
    counts: Counter[str] = Counter()
    named: dict[str, str] = {}
    for session in there:
        client = f"client {session.client_id} at {session.client_host}"
        counts[client] += session.from_index < index
        named[session.member_id] = f"instance {session.instance_id}" if session.instance_id else client
    return {member_id: name for member_id, name in named.items() if counts[name] <= 1}
