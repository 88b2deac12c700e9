"""How the members of a recorded group would have behaved where the log does not show it.

A member that has something due does it after a *delay*. If the same was due at the same time in the record,
within one heartbeat interval, it takes the delay that it took then; else its median; else one heartbeat
interval. Which of the three was used, and how often, is part of the answer (`Assumptions`).

A member that expired was silent from its last heartbeat on, until something shows that it came back: a
request of it that was refused, or that it joined again. Nothing shows it: it is not known whether a longer
timeout would have kept it, and the replay ends its session when it really ended. That is counted, never
guessed. A member that was fenced while it gave up partitions was rid of them when its next heartbeat, which
was refused, said so, or when it joined again; one that still has a part of them only shows that it lives.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median_low

from history.reading.notes import has_none_of

from .due import Due, DueKind
from .recorded import ORDINARY, ActKind, Ended, Gap, Holding, Reaction, Recorded, Refusal
from .settings import WhatIf

MINUTE_MS = 60_000
LATE_MS = 5_000
"""A gap is noted up to this long after it ended (`cluster.regularity`)."""


@dataclass(slots=True)
class Assumptions:
    """What the replay rests on, counted."""

    as_then: int = 0
    """Delays that the member took at that very moment in the record."""
    usual: int = 0
    """Delays that are the median of those that the member showed."""
    one_interval: int = 0
    """Delays of members that showed none: one heartbeat interval."""
    gaps_placed: int = 0
    """Silences known by their minute only, placed within it."""
    unknown_sessions: int = 0
    """Expired members of which nothing shows whether the longer session timeout would have kept them."""
    unknown_revocations: int = 0
    """Members fenced while revoking of which nothing shows whether more time would have been enough."""
    unknown_absences: int = 0
    """Static members whose absence took so nearly the session timeout that it may have ended their
    session."""
    not_applied: int = 0
    """Recorded acts that made no sense any more, such as a leave of a member that is gone."""
    refused: int = 0
    """Recorded requests that the coordinator would have refused."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a member does about something due: at ``at_ms`` (``None``: never), ordered by ``index``. At
    ``fenced_ms`` it is removed if it has not; at ``returns_ms`` it joins again then."""

    at_ms: int | None
    index: int
    fenced_ms: int | None = None
    fenced_index: int = 0
    returns_ms: int | None = None
    holding: Holding = ORDINARY
    is_spared: bool = False
    """It was removed in the record, and is not here."""


LAST = 1 << 62
"""The place of what is not in the record: behind all that happened within the same millisecond."""


class Conduct:
    """The members of one recorded group, under the settings asked for."""

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

    def plan(self, member_id: str, due: Due, own_timeout_ms: int) -> Plan:
        """What the member does about something that became due."""
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
                return Plan(
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
            return Plan(at_ms, LAST)
        return self._acknowledgement(due, at_ms, timeout_ms)

    def _as_then(self, member_id: str, due: Due, reaction: Reaction) -> int | None:
        """When the member does it if it takes as long as then. Where something else came before, it has had
        its usual time and was not heard of until then; it does it afterwards, should it still be due."""
        if reaction.at_ms is not None:
            return due.since_ms + reaction.at_ms - reaction.since_ms
        if reaction.closed_ms is None:
            return None
        usual = self._usual_delay_known(member_id, due.kind)
        delay_ms = self.script.interval_ms if usual is None else usual
        return max(due.since_ms + delay_ms, reaction.closed_ms)

    def _acknowledgement(self, due: Due, at_ms: int | None, timeout_ms: int) -> Plan:
        """It gives up at that time, unless its own time is over before."""
        fenced_ms = self._armed_until(due.since_ms, timeout_ms)
        if at_ms is not None and at_ms <= fenced_ms:
            return Plan(at_ms, LAST)
        return Plan(None, LAST, fenced_ms, LAST, returns_ms=at_ms)

    def _fenced(self, member_id: str, due: Due, reaction: Reaction, timeout_ms: int) -> Plan:
        """Recorded: it had not given up when its time was over. Now that time is another one."""
        assert reaction.fenced_ms is not None
        fenced_ms = self._armed_until(due.since_ms, timeout_ms)
        if fenced_ms <= reaction.fenced_ms:
            return Plan(None, LAST, fenced_ms, LAST)
        rid_ms = self._rid_of(member_id, reaction.owed, reaction.fenced_ms)
        if rid_ms is not None and rid_ms <= fenced_ms:
            return Plan(rid_ms, LAST, is_spared=True)
        if self._has_evidence(reaction.fenced_ms, fenced_ms):
            return Plan(None, LAST, fenced_ms, LAST)
        self.assumed.unknown_revocations += 1
        return Plan(None, LAST, reaction.fenced_ms, reaction.index)

    def _recorded(self, member_id: str, due: Due) -> tuple[Reaction | None, bool]:
        """What the member did when the same was due: at that very moment, or the nearest within an
        interval."""
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
        """The moment, or the end of the silence that it falls into."""
        if at_ms is None:
            return None
        for heard_ms, back_ms in self._silences.get(member_id, ()):
            if at_ms > heard_ms and (back_ms is None or at_ms < back_ms):
                return back_ms
        return at_ms

    def came_back(self, ended: Ended, after_ms: int) -> int | None:
        """When an expired member, or whoever has its instance id, showed that it was there."""
        times = [self._shown_alive(ended.member_id, after_ms)]
        if ended.instance_id is not None:
            times.append(_first_after(self._joins.get(f"instance {ended.instance_id}", []), after_ms))
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def _shown_alive(self, member_id: str, after_ms: int) -> int | None:
        refusal = self._refused(member_id, after_ms)
        joined_ms = _first_after(self._joins.get(member_id, []), after_ms)
        times = (None if refusal is None else refusal.at_ms, joined_ms)
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def _refused(self, member_id: str, after_ms: int) -> Refusal | None:
        """The first heartbeat of a member that came after its removal and was noted."""
        refused = (self.script.refused or {}).get(member_id, ())
        place = bisect_left(refused, after_ms, key=lambda refusal: refusal.at_ms)
        return refused[place] if place < len(refused) else None

    def _rid_of(self, member_id: str, owed: Iterable[tuple[str, int]], after_ms: int) -> int | None:
        """When a fenced member was rid of what it owed: its first heartbeat after that said so, which did not
        know yet that it was fenced; else when it joined again."""
        refusal = self._refused(member_id, after_ms)
        joined_ms = _first_after(self._joins.get(member_id, []), after_ms)
        if refusal is not None and has_none_of(refusal.owned, owed):
            return refusal.at_ms if joined_ms is None else min(refusal.at_ms, joined_ms)
        return joined_ms

    def _has_evidence(self, from_ms: int, to_ms: int) -> bool:
        """Whether a request that was refused between the two would be known."""
        is_kept = self.script.refused is not None and self.script.evidence_from_ms <= from_ms
        return is_kept and self.script.last_ms >= to_ms

    def _armed_until(self, since_ms: int, timeout_ms: int) -> int:
        """The end of a timeout: a term that begins meanwhile starts it anew."""
        end_ms = since_ms + timeout_ms
        for at_ms in self._terms[bisect_right(self._terms, since_ms) :]:
            if at_ms >= end_ms:
                break
            end_ms = at_ms + timeout_ms
        return end_ms

    # Sessions.

    def session_end(self, ended: Ended) -> tuple[int, int] | None:
        """When a session that ran out ends under the timeout asked for, and its place; ``None``: it does
        not."""
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
        """Silences that a shorter session timeout would not have borne and the recorded one did: member,
        the end of its session, and when it was heard again (``None``: the record tells)."""
        timeout_ms = self.asked.session_timeout_ms
        if timeout_ms is None:
            return []
        found = [self._placed(gap, timeout_ms) for gap in self.script.gaps if gap.gap_ms > timeout_ms]
        return [silence for silence in found if silence is not None] + self._absences(timeout_ms)

    def _placed(self, gap: Gap, timeout_ms: int) -> tuple[str, int, int | None] | None:
        """The silence within its minute, where the record does not show the member to be heard of."""
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
        """When each member is known to have been heard of, ascending."""
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
        """Static members that were away for longer than their session would have lasted."""
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
