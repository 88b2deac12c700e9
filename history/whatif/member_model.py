"""The assumed behaviour of a recorded group's members where the log does not show it.

A member that has something due does it after a *delay*. If the same was due at the same time in the record,
within one heartbeat interval, it takes the delay that it took then; else its median; else one heartbeat
interval. The answer includes how often each of the three was used (`Assumptions`).

A member that expired was silent from its last heartbeat until something shows that it came back: a request
that was refused, or a new join. If nothing shows it, it is unknown whether a longer timeout would have kept
it, and the replay ends its session when it really ended; such cases are counted, never guessed. A member that
was fenced while revoking had given up its partitions when its next, refused heartbeat said so, or when it
joined again. A heartbeat that still lists some of them only shows that the member was alive.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median_low

from history.reading.notes import has_none_of

from .due import DueAction, DueKind
from .recorded import ORDINARY, ActKind, Ended, FencedHeartbeat, HeartbeatSilence, Holding, Reaction, Recorded
from .settings import WhatIf

MINUTE_MS = 60_000
LATE_MS = 5_000
"""Milliseconds after which the note of a gap may follow its end (`cluster.runtime.heartbeat_gaps`)."""


@dataclass(slots=True)
class Assumptions:
    """Counts of the assumptions that the replay rests on."""

    as_then: int = 0
    """Delays that the member took at the same time in the record."""
    usual: int = 0
    """Delays taken as the median of the member's recorded delays."""
    one_interval: int = 0
    """Delays of members without recorded ones: one heartbeat interval."""
    gaps_placed: int = 0
    """Silences whose minute only is known, placed within it."""
    unknown_sessions: int = 0
    """Expired members for which it is unknown whether the longer session timeout would have kept them."""
    unknown_revocations: int = 0
    """Members fenced while revoking for which it is unknown whether more time would have been enough."""
    unknown_absences: int = 0
    """Static members whose absence was so close to the session timeout that their session may have ended."""
    not_applied: int = 0
    """Recorded actions that no longer made sense, such as the leave of a member that is gone."""
    refused: int = 0
    """Recorded requests that the coordinator would have refused."""


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """A member's planned action about something due.

    It acts at ``at_ms`` (``None``: never), ordered by ``index``. If it has not acted by ``fenced_ms`` it is
    removed, and joins again at ``returns_ms``.
    """

    at_ms: int | None
    index: int
    fenced_ms: int | None = None
    fenced_index: int = 0
    returns_ms: int | None = None
    holding: Holding = ORDINARY
    is_spared: bool = False
    """It was removed in the record, but not in the replay."""


LAST = 1 << 62
"""The index of events that are not in the record: after everything else in the same millisecond."""


class MemberModel:
    """The members of one recorded group, under the settings in ``asked``."""

    def __init__(self, script: Recorded, asked: WhatIf) -> None:
        self.script = script
        self.asked = asked
        self.assumed = Assumptions()
        self.interval_ms = asked.heartbeat_interval_ms or script.interval_ms
        self._stretch = self.interval_ms / script.interval_ms
        self._used: set[tuple[str, int]] = set()
        self._starts = {m: [r.since_ms for r in done] for m, done in script.reactions.items()}
        self._usual: dict[tuple[str, DueKind], int | None] = {}
        self._joins: dict[str, list[int]] = defaultdict(list)
        for act in script.acts:
            if act.kind is ActKind.JOIN:
                self._joins[act.member_id].append(act.at_ms)
                if act.metadata is not None and act.metadata.instance_id is not None:
                    self._joins[f"instance {act.metadata.instance_id}"].append(act.at_ms)
        self._terms = [at_ms for _, at_ms, _ in script.terms]
        self._silences: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
        for ended in script.sessions_ended:
            self._silences[ended.member_id].append((ended.heard_ms, self.came_back(ended, ended.at_ms)))

    # Delays.

    def plan(self, member_id: str, due: DueAction, own_timeout_ms: int) -> PlannedAction:
        """Plan the member's action about something that became due."""
        asked_ms = self.asked.rebalance_timeout_ms
        timeout_ms = asked_ms or own_timeout_ms
        is_heartbeat = due.kind is DueKind.HEARTBEAT
        reaction, is_exact = self._recorded(member_id, due)
        if reaction is None:
            at_ms: int | None = due.since_ms + self._usual_delay(member_id, due.kind)
        else:
            self.assumed.as_then += 1
            is_as_recorded = self._stretch == 1 if is_heartbeat else asked_ms is None
            if is_exact and is_as_recorded and (reaction.at_ms is not None or reaction.fenced_ms is not None):
                return PlannedAction(
                    reaction.at_ms,
                    reaction.index,
                    reaction.fenced_ms,
                    reaction.index,
                    holding=reaction.holding,
                )
            if reaction.fenced_ms is not None:
                return self._fenced(member_id, due, reaction, timeout_ms)
            at_ms = self._as_then(member_id, due, reaction)
        if at_ms is not None and is_heartbeat:
            at_ms = due.since_ms + round((at_ms - due.since_ms) * self._stretch)
        at_ms = self._heard_at(member_id, at_ms)
        if is_heartbeat or (is_exact and asked_ms is None):
            return PlannedAction(at_ms, LAST)
        return self._acknowledgement(due, at_ms, timeout_ms)

    def _as_then(self, member_id: str, due: DueAction, reaction: Reaction) -> int | None:
        """Time at which the member acts if it takes as long as in the record; ``None``: never.

        If something else came first in the record, the member acts after its usual delay, but not before
        that, because it was not heard from until then.
        """
        if reaction.at_ms is not None:
            return due.since_ms + reaction.at_ms - reaction.since_ms
        if reaction.closed_ms is None:
            return None
        usual = self._usual_delay_known(member_id, due.kind)
        delay_ms = self.script.interval_ms if usual is None else usual
        return max(due.since_ms + delay_ms, reaction.closed_ms)

    def _acknowledgement(self, due: DueAction, at_ms: int | None, timeout_ms: int) -> PlannedAction:
        """The member gives up its partitions at ``at_ms``, or is fenced if its timeout ends before."""
        fenced_ms = self._armed_until(due.since_ms, timeout_ms)
        if at_ms is not None and at_ms <= fenced_ms:
            return PlannedAction(at_ms, LAST)
        return PlannedAction(None, LAST, fenced_ms, LAST, returns_ms=at_ms)

    def _fenced(self, member_id: str, due: DueAction, reaction: Reaction, timeout_ms: int) -> PlannedAction:
        """The plan of a member that was fenced in the record, under another rebalance timeout."""
        assert reaction.fenced_ms is not None
        fenced_ms = self._armed_until(due.since_ms, timeout_ms)
        if fenced_ms <= reaction.fenced_ms:
            return PlannedAction(None, LAST, fenced_ms, LAST)
        rid_ms = self._rid_of(member_id, reaction.owed, reaction.fenced_ms)
        if rid_ms is not None and rid_ms <= fenced_ms:
            return PlannedAction(rid_ms, LAST, is_spared=True)
        if self._has_evidence(reaction.fenced_ms, fenced_ms):
            return PlannedAction(None, LAST, fenced_ms, LAST)
        self.assumed.unknown_revocations += 1
        return PlannedAction(None, LAST, reaction.fenced_ms, reaction.index)

    def _recorded(self, member_id: str, due: DueAction) -> tuple[Reaction | None, bool]:
        """The recorded reaction to the same thing due, and whether it was due at exactly the same time.

        Otherwise it is the nearest reaction within one heartbeat interval.
        """
        done, starts = self.script.reactions.get(member_id, ()), self._starts.get(member_id, [])
        nearest: Reaction | None = None
        low = bisect_left(starts, due.since_ms - self.script.interval_ms)
        high = bisect_right(starts, due.since_ms + self.script.interval_ms)
        for place in range(low, high):
            reaction = done[place]
            if reaction.kind is not due.kind:
                continue
            if reaction.since_ms == due.since_ms and (member_id, place) not in self._used:
                self._used.add((member_id, place))
                return reaction, True
            off_ms = abs(reaction.since_ms - due.since_ms)
            if nearest is None or off_ms < abs(nearest.since_ms - due.since_ms):
                nearest = reaction
        return nearest, False

    def _usual_delay(self, member_id: str, kind: DueKind) -> int:
        usual = self._usual_delay_known(member_id, kind)
        if usual is None:
            self.assumed.one_interval += 1
            return self.script.interval_ms
        self.assumed.usual += 1
        return usual

    def _usual_delay_known(self, member_id: str, kind: DueKind) -> int | None:
        key = (member_id, kind)
        if key not in self._usual:
            delays = [
                reaction.at_ms - reaction.since_ms
                for reaction in self.script.reactions.get(member_id, ())
                if reaction.kind is kind and reaction.at_ms is not None
            ]
            self._usual[key] = median_low(delays) if delays else None
        return self._usual[key]

    # Silences.

    def _heard_at(self, member_id: str, at_ms: int | None) -> int | None:
        """The given time, or the end of the silence that contains it."""
        if at_ms is None:
            return None
        for heard_ms, back_ms in self._silences.get(member_id, ()):
            if at_ms > heard_ms and (back_ms is None or at_ms < back_ms):
                return back_ms
        return at_ms

    def came_back(self, ended: Ended, after_ms: int) -> int | None:
        """Time at which an expired member, or one with its instance id, showed that it was alive."""
        times = [self._shown_alive(ended.member_id, after_ms)]
        if ended.instance_id is not None:
            times.append(_first_after(self._joins.get(f"instance {ended.instance_id}", []), after_ms))
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def _shown_alive(self, member_id: str, after_ms: int) -> int | None:
        refusal = self._refused(member_id, after_ms)
        joined_ms = _first_after(self._joins.get(member_id, []), after_ms)
        times = (None if refusal is None else refusal.at_ms, joined_ms)
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def _refused(self, member_id: str, after_ms: int) -> FencedHeartbeat | None:
        """The first refused heartbeat of a member after its removal."""
        refused = (self.script.refused or {}).get(member_id, ())
        place = bisect_left(refused, after_ms, key=lambda refusal: refusal.at_ms)
        return refused[place] if place < len(refused) else None

    def _rid_of(self, member_id: str, owed: Iterable[tuple[str, int]], after_ms: int) -> int | None:
        """Time at which a fenced member had given up ``owed``; ``None``: unknown.

        This is its first heartbeat after the fencing, sent before it knew of that, if it no longer lists
        them; else the time at which it joined again.
        """
        refusal = self._refused(member_id, after_ms)
        joined_ms = _first_after(self._joins.get(member_id, []), after_ms)
        if refusal is not None and has_none_of(refusal.owned, owed):
            return refusal.at_ms if joined_ms is None else min(refusal.at_ms, joined_ms)
        return joined_ms

    def _has_evidence(self, from_ms: int, to_ms: int) -> bool:
        """Whether the evidence would contain any request refused between the two times."""
        is_kept = self.script.refused is not None and self.script.evidence_from_ms <= from_ms
        return is_kept and self.script.last_ms >= to_ms

    def _armed_until(self, since_ms: int, timeout_ms: int) -> int:
        """The end of a timeout; a term that begins in between restarts it."""
        end_ms = since_ms + timeout_ms
        for at_ms in self._terms[bisect_right(self._terms, since_ms) :]:
            if at_ms >= end_ms:
                break
            end_ms = at_ms + timeout_ms
        return end_ms

    # Sessions.

    def session_end(self, ended: Ended) -> tuple[int, int] | None:
        """(epoch ms, index) of the end of an expired session under the new timeout.

        ``None``: the session does not end.
        """
        timeout_ms = self.asked.session_timeout_ms
        if timeout_ms is None or timeout_ms == ended.timeout_ms:
            return ended.at_ms, ended.index
        end_ms = self._armed_until(ended.deadline_ms - ended.timeout_ms, timeout_ms)
        if timeout_ms < ended.timeout_ms:
            return end_ms, LAST
        back_ms = self.came_back(ended, ended.at_ms)
        if back_ms is not None:
            return None if back_ms <= end_ms else (end_ms, LAST)
        if self._has_evidence(ended.at_ms, end_ms):
            return end_ms, LAST
        self.assumed.unknown_sessions += 1
        return ended.at_ms, ended.index

    def silences_over(self) -> list[tuple[str, int, int | None]]:
        """Silences that exceed a shorter session timeout but not the recorded one.

        Each is (member, end of its session, time of its next heartbeat); the last is ``None`` if the record
        has it.
        """
        timeout_ms = self.asked.session_timeout_ms
        if timeout_ms is None:
            return []
        found = [self._placed(gap, timeout_ms) for gap in self.script.gaps if gap.gap_ms > timeout_ms]
        return [silence for silence in found if silence is not None] + self._absences(timeout_ms)

    def _placed(self, gap: HeartbeatSilence, timeout_ms: int) -> tuple[str, int, int | None] | None:
        """Place a silence within its minute, clear of known heartbeats; ``None``: there is no room."""
        first_ms, last_ms = gap.minute_ms - LATE_MS, gap.minute_ms + MINUTE_MS
        heard = self._heard.get(gap.member_id, [])
        middle_ms = gap.minute_ms + MINUTE_MS // 2
        known = heard[bisect_left(heard, first_ms - gap.gap_ms) : bisect_right(heard, last_ms)]
        ends = [middle_ms, *known, *(at_ms + gap.gap_ms for at_ms in known)]
        for end_ms in ends:
            begin_ms = end_ms - gap.gap_ms
            is_free = bisect_right(heard, begin_ms) == bisect_left(heard, end_ms)
            if (
                first_ms <= end_ms < last_ms
                and is_free
                and not self._has_ended(gap.member_id, begin_ms, end_ms)
            ):
                self.assumed.gaps_placed += 1
                return gap.member_id, begin_ms + timeout_ms, end_ms
        return None

    def _has_ended(self, member_id: str, begin_ms: int, end_ms: int) -> bool:
        return any(
            ended.member_id == member_id and begin_ms <= ended.at_ms <= end_ms
            for ended in self.script.sessions_ended
        )

    @property
    def _heard(self) -> dict[str, list[int]]:
        """Times at which each member is known to have been heard from, ascending."""
        if not hasattr(self, "_heard_ms"):
            heard: dict[str, list[int]] = defaultdict(list)
            for act in self.script.acts:
                if act.member_id:
                    heard[act.member_id].append(act.at_ms)
            for member_id, done in self.script.reactions.items():
                heard[member_id] += [reaction.at_ms for reaction in done if reaction.at_ms is not None]
            self._heard_ms = {member_id: sorted(times) for member_id, times in heard.items()}
        return self._heard_ms

    def _absences(self, timeout_ms: int) -> list[tuple[str, int, int | None]]:
        """Static members that were away for longer than the new session timeout."""
        found: list[tuple[str, int, int | None]] = []
        ended = {(one.member_id, one.at_ms) for one in self.script.sessions_ended}
        for act in self.script.acts:
            instance_id = act.metadata.instance_id if act.metadata is not None else None
            if act.kind is not ActKind.AWAY or instance_id is None:
                continue
            back_ms = _first_after(self._joins.get(f"instance {instance_id}", []), act.at_ms)
            if back_ms is None or any(m == act.member_id and act.at_ms <= at <= back_ms for m, at in ended):
                continue
            end_ms = self._armed_until(act.at_ms, timeout_ms)
            if back_ms > end_ms:
                found.append((act.member_id, end_ms, None))
            elif back_ms > end_ms - self.script.interval_ms:
                self.assumed.unknown_absences += 1
        return found


def _first_after(times: list[int] | tuple[int, ...], after_ms: int) -> int | None:
    place = bisect_left(times, after_ms)
    return times[place] if place < len(times) else None
