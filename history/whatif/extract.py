"""From a group's entries to what its members did.

This is a walk over the group's own records with the coordinator's projection. The cause names the acting
member, the records show what it did, and `Watch` knows what each member had due. The topics come from the
group's own records 4, so the metadata shard is not needed: for the group a topic exists from the moment at
which the group notices it.

Memory grows with the changes of membership, not with commits or time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from coordinator.limits import Limits
from coordinator.regex.expressions import Budget, match
from coordinator.state.model import Group
from coordinator.state.reconcile import NOT_REPORTED
from history.facts.group import FactsBuilder
from history.protocols import CALLED, protocol_in
from history.reading.catalog import CatalogHistory
from history.reading.notes import HEARTBEAT_GAP, is_of_removed, owned_in
from records import (
    Cause,
    Entry,
    MemberState,
    RawRecord,
    ReasonKind,
    RecordType,
    TermStartValue,
    TopicMetadata,
    Trigger,
    decode_key,
)
from records.ids import topic_id_text

from .due import HEARD_BY, DueAction, DueKind, Watch
from .recorded import (
    INTERVAL_MS,
    ORDINARY,
    Act,
    ActKind,
    Ended,
    FencedHeartbeat,
    HeartbeatSilence,
    Holding,
    Reaction,
    Recorded,
)

JOINS = frozenset({Trigger.MEMBER_JOINED, Trigger.MEMBER_REJOINED, Trigger.MEMBER_REPLACED})
BEATS = frozenset({Trigger.HEARTBEAT, Trigger.MEMBER_ACKED})
EXPIRIES = frozenset({Trigger.SESSION_EXPIRED, Trigger.REBALANCE_EXPIRED})
CHECKS = frozenset(
    {
        Trigger.TOPIC_CREATED,
        Trigger.TOPIC_GROWN,
        Trigger.TOPIC_DELETED,
        Trigger.CATALOG_CHANGED,
        Trigger.READY_CHECK,
    }
)
TARGETS = frozenset({Trigger.TARGET_COMPUTED, Trigger.ASSIGNMENT_INSTALLED})
ENDS = frozenset({Trigger.GROUP_DELETED, Trigger.OFFSETS_EXPIRED})
_OF_WILL = {
    Trigger.MEMBER_UPDATED: ActKind.UPDATE,
    Trigger.MEMBER_LEFT: ActKind.LEAVE,
    Trigger.MEMBER_AWAY: ActKind.AWAY,
    Trigger.REGEX_RESOLVED: ActKind.RESOLVE,
    **dict.fromkeys(JOINS, ActKind.JOIN),
    **dict.fromkeys(BEATS, ActKind.HEARTBEAT),
    **dict.fromkeys(CHECKS, ActKind.CHECK),
    **dict.fromkeys(TARGETS, ActKind.TARGET),
}

LIMITS, BUDGET = Limits(), Budget(1.0, 1.0)
"""Bounds for matching a handful of names, with a clock that stands still."""

CLASSIC = (
    "it is a classic group: its leader, a client, assigns the partitions, which no replay of the "
    "coordinator can do"
)
MIXED = "it had members of the classic protocol too"
OLD_PROTOCOL = "it spoke {protocol}, whose coordinator the replay does not have"
OFFSETS_ONLY = "it has offsets but never had members"
IMPORTED = "its log was imported and does not have the members' requests"
CLIENT_SIDE = (
    "members computed targets themselves (client-side assignors): in the replay the coordinator computes them"
)
STRANGE = "entries of a kind that this release does not know are left out of the replay"


class Extractor:
    """Builds `Recorded` from the entries of one group, in order.

    ``notes`` are the node's notes outside its log; ``None``: there is no evidence file.
    """

    def __init__(
        self,
        group_id: str,
        shard: int = 0,
        notes: Iterable[Mapping[str, Any]] | None = None,
        evidence_from_ms: int | None = None,
    ) -> None:
        self.group_id = group_id
        self.shard = shard
        self._notes = None if notes is None else list(notes)
        self._evidence_from_ms = evidence_from_ms
        self._facts = FactsBuilder(group_id, CatalogHistory(), shard)
        self._watch = Watch()
        self._start: list[RawRecord] = []
        self._acts: list[Act] = []
        self._reactions: dict[str, list[Reaction]] = defaultdict(list)
        self._ended: list[Ended] = []
        self._terms: list[tuple[int, int, TermStartValue]] = []
        self._topics: dict[str, TopicMetadata] = {}
        self._first_ms = self._last_ms = -1
        self._said: dict[str, None] = {}
        self._was_classic = self._was_consumer = self._was_mixed = self._is_waiting = False
        self._old_protocol = ""

    @property
    def group(self) -> Group | None:
        return None if self._facts.group.is_gone else self._facts.group

    def begin_with(self, records: Iterable[RawRecord], index: int, at_ms: int) -> None:
        """Start with the group in a snapshot; must be called first, if at all."""
        records = list(records)
        if self._speaks_old(records):
            return
        self._start = list(records)
        self._facts.go_on_from(index, at_ms, self._start)
        group = self.group
        self._passed(at_ms)
        if group is not None:
            self._topics = {topic.topic_name: topic for topic in group.topics}
            self._watch.look(group, self._start, at_ms)
            self._was_consumer |= group.is_consumer and group.classic is None
            self._was_classic |= group.classic is not None
            self._was_mixed |= group.num_classic > 0

    def term(self, index: int, at_ms: int, term: TermStartValue) -> None:
        self._terms.append((index, at_ms, term))
        self._facts.term(index, at_ms, term)
        self._passed(at_ms)

    def passed(self, at_ms: int) -> None:
        """Note an entry that does not concern the group's membership; only the last such entry is needed."""
        self._last_ms = at_ms
        self._facts.passed(at_ms)

    def _passed(self, at_ms: int) -> None:
        if self._first_ms < 0:
            self._first_ms = at_ms
        self._last_ms = at_ms

    def entry(self, index: int, at_ms: int, entry: Entry) -> None:
        """Take an entry about the group; ``entry.records`` holds only the group's own records."""
        if self._speaks_old(entry.records):
            return
        cause, group = entry.cause, self.group
        leaving = self._about_to_end(index, at_ms, cause, group)
        owed = _owed(group, cause)
        held = _assigned(group, cause.member_id)
        self._facts.entry(index, at_ms, entry)
        group = self.group
        self._was_consumer |= group is not None and group.is_consumer and group.classic is None
        self._was_classic |= group is not None and group.classic is not None
        self._was_mixed |= group is not None and group.num_classic > 0
        self._ended += leaving
        _, closed = self._watch.look(group, entry.records, at_ms, cause)
        holding = Holding(
            owns_nothing=cause.trigger in HEARD_BY and bool(held - _owned(group, cause.member_id)),
            never_reported=_never_reported(group, cause.member_id),
        )
        is_plain = self._react(closed, index, at_ms, cause, holding, owed)
        act = self._act(index, at_ms, entry, group, holding)
        if act is not None and not (is_plain and _is_plain(act)):
            self._acts.append(act)
        self._passed(at_ms)

    def finish(self) -> Recorded:
        """Return the whole record; call once, after the last entry."""
        for member_id, due in self._watch.due.items():
            self._reactions[member_id].append(
                Reaction(kind=due.kind, since_ms=due.since_ms, at_ms=None, closed_ms=None)
            )
        gaps, refused, from_ms = _evidence(self._notes, self.group_id)
        left_out = self._left_out()
        return Recorded(
            group_id=self.group_id,
            shard=self.shard,
            start=tuple(self._start),
            acts=tuple(self._acts),
            reactions={member_id: tuple(done) for member_id, done in self._reactions.items()},
            sessions_ended=tuple(self._ended),
            terms=tuple(self._terms),
            first_ms=self._first_ms,
            last_ms=self._last_ms,
            gaps=gaps,
            refused=refused,
            evidence_from_ms=from_ms if self._evidence_from_ms is None else self._evidence_from_ms,
            interval_ms=_interval_ms(gaps, self._ended),
            left_out=left_out,
            facts=None if left_out else self._facts.finish(),
            notes=tuple(self._said),
        )

    def _speaks_old(self, records: Iterable[RawRecord]) -> bool:
        """Whether any record so far is of an older protocol: the group is then left out."""
        self._old_protocol = self._old_protocol or protocol_in(raw.type for raw in records)
        return bool(self._old_protocol)

    def _left_out(self) -> str:
        if self._old_protocol:
            return OLD_PROTOCOL.format(protocol=CALLED[self._old_protocol])
        if self._was_mixed:
            return MIXED
        if self._was_consumer:
            return IMPORTED if IMPORTED in self._said else ""
        return CLASSIC if self._was_classic else OFFSETS_ONLY

    # One entry.

    def _about_to_end(self, index: int, at_ms: int, cause: Cause, group: Group | None) -> list[Ended]:
        """The sessions that expire by this entry, determined while their members still exist."""
        if cause.trigger not in EXPIRIES or group is None:
            return []
        by_session = {
            reason.member_id for reason in cause.reasons if reason.kind == ReasonKind.SESSION_EXPIRED
        }
        found: list[Ended] = []
        for expiry in cause.expiries:
            member = group.members.get(expiry.member_id)
            if expiry.member_id in by_session and member is not None:
                found.append(
                    Ended(
                        member_id=expiry.member_id,
                        instance_id=member.metadata.instance_id if member.metadata is not None else None,
                        index=index,
                        at_ms=at_ms,
                        timeout_ms=expiry.timeout_ms,
                        heard_ms=expiry.armed_ms,
                        deadline_ms=expiry.deadline_ms,
                        was_away=member.is_away,
                    )
                )
        return found

    def _react(
        self,
        closed: Mapping[str, DueAction],
        index: int,
        at_ms: int,
        cause: Cause,
        holding: Holding,
        owed: Mapping[str, frozenset[tuple[str, int]]],
    ) -> bool:
        """Record the outcome of what members had due; return whether the entry was only such an outcome.

        ``owed`` holds what each member fenced by the entry had not given up.
        """
        is_reaction = False
        for member_id, due in closed.items():
            did = member_id == cause.member_id and _does(cause.trigger, due.kind)
            is_reaction |= did
            self._reactions[member_id].append(
                Reaction(
                    kind=due.kind,
                    since_ms=due.since_ms,
                    at_ms=at_ms if did else None,
                    closed_ms=at_ms,
                    index=index,
                    holding=holding if did else ORDINARY,
                    fenced_ms=at_ms if member_id in owed else None,
                    owed=owed.get(member_id, frozenset()),
                )
            )
        return is_reaction

    def _act(self, index: int, at_ms: int, entry: Entry, group: Group | None, holding: Holding) -> Act | None:
        cause = entry.cause
        trigger = cause.trigger
        topics, gone = self._topics_changed(group, entry.records)
        waits, was_waiting = _target_waits(entry.records, group), self._is_waiting
        self._is_waiting = was_waiting if waits is None else waits
        if trigger in EXPIRIES:
            if not (topics or gone or waits or was_waiting):
                return None
            return Act(
                kind=ActKind.SCENE, index=index, at_ms=at_ms, topics=topics, gone=gone, target_waits=waits
            )
        if trigger == Trigger.IMPORTED:
            self._said[IMPORTED] = None
            return None
        if trigger in ENDS:
            is_over = group is None or not group.is_consumer
            return Act(kind=ActKind.DELETE, index=index, at_ms=at_ms) if is_over else None
        if trigger == Trigger.ASSIGNMENT_INSTALLED:
            self._said[CLIENT_SIDE] = None
        if trigger == Trigger.MEMBER_REMOVED:
            members = tuple(r.member_id for r in cause.reasons if r.kind == ReasonKind.MEMBER_REMOVED)
            return Act(kind=ActKind.REMOVE, index=index, at_ms=at_ms, members=members)
        kind = _OF_WILL.get(trigger)  # type: ignore[call-overload]
        if kind is None:
            self._said[STRANGE] = None
            return None
        member = group.members.get(cause.member_id) if group is not None and cause.member_id else None
        return Act(
            kind=kind,
            index=index,
            at_ms=at_ms,
            member_id=cause.member_id,
            metadata=member.metadata if member is not None else None,
            acknowledges=cause.owned is not None,
            holding=holding,
            topics=topics,
            gone=gone,
            target_waits=self._worth_saying(waits, was_waiting),
        )

    def _worth_saying(self, waits: bool | None, was_waiting: bool) -> bool | None:
        """Omit the default, that a target does not wait, unless one waited before."""
        return waits if waits or was_waiting else None

    def _topics_changed(
        self, group: Group | None, records: Iterable[RawRecord]
    ) -> tuple[tuple[TopicMetadata, ...], tuple[str, ...]]:
        """Topics that are new or changed to the group by this entry, and names of those deleted.

        A topic counts as deleted if the group subscribes to it and lacks it, or if a regular expression that
        was resolved just now would match it and did not.
        """
        if group is None or group.partition_metadata is None:
            return (), ()
        now = {topic.topic_name: topic for topic in group.topics}
        new = tuple(topic for name, topic in now.items() if self._topics.get(name) != topic)
        doubtful = sorted(self._topics.keys() - now.keys())
        gone = {name for name in doubtful if name in group.subscriptions}
        if doubtful:
            for regex in _resolved_by(records):
                (found,) = match([regex], doubtful, LIMITS, BUDGET, lambda: 0.0)
                matched = {doubtful[place] for place in found if isinstance(place, int)}
                gone |= matched - set(group.resolved(regex))
        for name in gone:
            del self._topics[name]
        self._topics.update(now)
        return new, tuple(sorted(gone))


def _resolved_by(records: Iterable[RawRecord]) -> list[str]:
    """The regular expressions that were resolved by these records."""
    return [
        decode_key(raw).regular_expression
        for raw in records
        if raw.type == RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION and raw.value is not None
    ]


def _assigned(group: Group | None, member_id: str) -> set[tuple[bytes, int]]:
    """Partitions assigned to a member."""
    member = group.members.get(member_id) if group is not None else None
    if member is None:
        return set()
    return {(topic_id, number) for topic_id, epochs in member.current.assigned.items() for number in epochs}


def _owned(group: Group | None, member_id: str) -> set[tuple[bytes, int]]:
    """Partitions assigned to a member or pending revocation."""
    member = group.members.get(member_id) if group is not None else None
    if member is None:
        return set()
    pending = member.current.pending.items()
    return _assigned(group, member_id) | {(topic_id, n) for topic_id, epochs in pending for n in epochs}


def _never_reported(group: Group | None, member_id: str) -> bool:
    """Whether the member is asked to revoke partitions that it never reported as owned."""
    member = group.members.get(member_id) if group is not None else None
    if member is None or member.current.state is not MemberState.UNREVOKED_PARTITIONS:
        return False
    return member.current.previous_epoch == NOT_REPORTED


def _owed(group: Group | None, cause: Cause) -> dict[str, frozenset[tuple[str, int]]]:
    """Member -> partitions not given up, for the members that this cause fences; call before applying it."""
    found: dict[str, frozenset[tuple[str, int]]] = {}
    for reason in cause.reasons:
        if reason.kind == ReasonKind.REBALANCE_EXPIRED:
            member = group.members.get(reason.member_id) if group is not None else None
            pending = member.current.pending.items() if member is not None else ()
            found[reason.member_id] = frozenset(
                (topic_id_text(t), n) for t, numbers in pending for n in numbers
            )
    return found


def _does(trigger: int, kind: DueKind) -> bool:
    return trigger == Trigger.MEMBER_ACKED or (trigger == Trigger.HEARTBEAT and kind is DueKind.HEARTBEAT)


def _is_plain(act: Act) -> bool:
    """Whether the act is a heartbeat that only brought its member forward."""
    is_more = act.topics or act.gone or act.target_waits is not None
    return act.kind is ActKind.HEARTBEAT and not is_more


def _target_waits(records: Iterable[RawRecord], group: Group | None) -> bool | None:
    types = {raw.type for raw in records}
    if RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA in types:
        return group is not None and group.epoch > group.assignment_epoch
    if RecordType.CONSUMER_GROUP_METADATA in types and group is not None and group.is_consumer:
        return group.epoch > group.assignment_epoch
    return None


def _evidence(
    notes: Iterable[Mapping[str, Any]] | None, group_id: str
) -> tuple[tuple[HeartbeatSilence, ...], dict[str, tuple[FencedHeartbeat, ...]] | None, int]:
    """Heartbeat gaps and refused heartbeats of the group's members, and the start of the evidence."""
    if notes is None:
        return (), None, 0
    kept = list(notes)
    gaps: list[HeartbeatSilence] = []
    refused: dict[str, list[FencedHeartbeat]] = defaultdict(list)
    for note in kept:
        if note.get("group") != group_id or not note.get("member"):
            continue
        if note.get("kind") == HEARTBEAT_GAP:
            gaps.append(
                HeartbeatSilence(
                    member_id=note["member"], minute_ms=note["minute_ms"], gap_ms=round(note["gap_ms"])
                )
            )
        elif is_of_removed(note):
            refused[note["member"]].append(FencedHeartbeat(at_ms=note["at_ms"], owned=owned_in(note)))
    from_ms = min((note["at_ms"] for note in kept), default=0)
    in_order = {
        member_id: tuple(sorted(said, key=lambda refusal: refusal.at_ms))
        for member_id, said in refused.items()
    }
    return tuple(gaps), in_order, from_ms


def _interval_ms(gaps: Iterable[HeartbeatSilence], ended: Iterable[Ended]) -> int:
    """The heartbeat interval: the median of the noted gaps within a session, or the default without notes.

    A gap as long as the shortest known session timeout is not counted, because it ended a session.
    """
    session_ms = min((one.timeout_ms for one in ended), default=None)
    lengths = [gap.gap_ms for gap in gaps if session_ms is None or gap.gap_ms < session_ms]
    return max(1, round(median(lengths))) if lengths else INTERVAL_MS
