"""The members' sessions in a group: how they began and ended, and when static members were away.

How a session ended is derived only from the cause of the entry that removed the member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.state.model import Group, Member
from history.protocols import CLASSIC, CONSUMER, OLD
from records import Cause, ConsumerGroupMemberMetadataValue, Expiry, ReasonKind, Trigger

from .change import Change, EntryPosition
from .rows import Away, MemberSession, SessionEnd

_BY_REASON = {
    ReasonKind.MEMBER_LEFT: SessionEnd.LEFT,
    ReasonKind.SESSION_EXPIRED: SessionEnd.SESSION_EXPIRED,
    ReasonKind.REBALANCE_EXPIRED: SessionEnd.REBALANCE_EXPIRED,
    ReasonKind.MEMBER_REMOVED: SessionEnd.REMOVED,
    ReasonKind.JOIN_TIMED_OUT: SessionEnd.JOIN_EXPIRED,
    ReasonKind.SYNC_TIMED_OUT: SessionEnd.SYNC_EXPIRED,
}
_BY_TRIGGER = {
    Trigger.MEMBER_LEFT: SessionEnd.LEFT,
    Trigger.SESSION_EXPIRED: SessionEnd.SESSION_EXPIRED,
    Trigger.REBALANCE_EXPIRED: SessionEnd.REBALANCE_EXPIRED,
    Trigger.MEMBER_REMOVED: SessionEnd.REMOVED,
    Trigger.GROUP_DELETED: SessionEnd.REMOVED,
    Trigger.READY_CHECK: SessionEnd.FORGOTTEN,
}


_NOT_DESCRIBED = ConsumerGroupMemberMetadataValue(client_id="", client_host="", subscribed_topic_names=())


@dataclass(slots=True)
class _Session:
    member_id: str
    metadata: ConsumerGroupMemberMetadataValue | None
    """The newest record 5 of the member."""
    is_away: bool
    start: EntryPosition
    is_begin_known: bool = True
    end: SessionEnd = SessionEnd.OPEN
    at: EntryPosition | None = None
    expiry: Expiry | None = None
    rejoined: list[EntryPosition] = field(default_factory=list)
    aways: list[tuple[EntryPosition, EntryPosition | None]] = field(default_factory=list)
    replaced: str | None = None
    number: int | None = None
    old: str = ""
    """The older protocol that it speaks; empty: `metadata` tells the protocol."""

    def come_back(self, at: EntryPosition) -> None:
        if self.aways and self.aways[-1][1] is None:
            self.aways[-1] = (self.aways[-1][0], at)

    def row(self, group_id: str, shard: int) -> MemberSession:
        metadata, expiry = self.metadata or _NOT_DESCRIBED, self.expiry
        heard_ms = -1 if expiry is None else expiry.last_heartbeat_ms
        return MemberSession(
            group_id=group_id,
            shard=shard,
            member_id=self.member_id,
            instance_id=metadata.instance_id,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            from_index=self.start.index,
            from_ms=self.start.ms,
            to_index=None if self.at is None else self.at.index,
            to_ms=None if self.at is None else self.at.ms,
            end=self.end,
            timeout_ms=None if expiry is None else expiry.timeout_ms,
            last_heartbeat_ms=heard_ms if heard_ms > 0 else None,
            deadline_ms=None if expiry is None else expiry.deadline_ms,
            rejoins=len(self.rejoined),
            aways=tuple(
                Away(
                    from_index=start.index,
                    from_ms=start.ms,
                    to_index=None if end is None else end.index,
                    to_ms=None if end is None else end.ms,
                )
                for start, end in self.aways
            ),
            rebalance_timeout_ms=None if metadata.rebalance_timeout_ms < 0 else metadata.rebalance_timeout_ms,
            replaced=self.replaced,
            is_begin_known=self.is_begin_known,
            rejoined=tuple((place.index, place.ms) for place in self.rejoined),
            number=self.number,
            protocol=self.old or ("" if self.metadata is None else _protocol_of(self.metadata)),
        )


@dataclass(slots=True)
class Sessions:
    """The sessions of one group, in the order in which they began, and by member id within an entry."""

    _all: list[_Session] = field(default_factory=list)
    _open: dict[str, _Session] = field(default_factory=dict)

    def update(self, change: Change) -> dict[str, SessionEnd]:
        """Apply a change; return member id -> end of its session, for sessions that it ended."""
        ended: dict[str, SessionEnd] = {}
        replaced = change.replaced
        for member_id, member in sorted(change.members.items()):
            session = self._open.get(member_id)
            if member.after is None:
                if session is not None:
                    ended[member_id] = self._end(session, change, is_replaced=member_id in replaced)
            elif session is None:
                self._begin(member.after, change.at, change.protocol)
            else:
                self._bring_on(session, member.after, change)
        for member_id, number in change.numbered.items():
            if member_id in self._open:
                self._open[member_id].number = number
        for old_id, new_id in replaced.items():
            self._open[new_id].replaced = old_id
        return ended

    def begin(
        self,
        group: Group,
        at: EntryPosition,
        last: EntryPosition,
        protocol: str,
        numbered: Mapping[str, int],
    ) -> None:
        """Continue from an existing state. Members absent from it were removed some time after ``last``."""
        for member_id, session in list(self._open.items()):
            if member_id not in group.members:
                del self._open[member_id]
                session.end, session.at = SessionEnd.UNKNOWN, last
        for member_id, member in sorted(group.members.items()):
            session = self._open.get(member_id) or self._begin(member, at, protocol, is_begin_known=False)
            if session.is_away and not member.is_away:
                session.come_back(at)
            session.metadata, session.is_away = member.metadata, member.is_away
            session.number = numbered.get(member_id, session.number)

    def rows(self, group_id: str, shard: int) -> tuple[MemberSession, ...]:
        return tuple(session.row(group_id, shard) for session in self._all)

    def __len__(self) -> int:
        return len(self._all)

    def drain(self, group_id: str, shard: int) -> tuple[MemberSession, ...]:
        """Remove and return the sessions that have ended."""
        ended = [session for session in self._all if session.at is not None]
        self._all = [session for session in self._all if session.at is None]
        return tuple(session.row(group_id, shard) for session in ended)

    def _begin(
        self, member: Member, at: EntryPosition, protocol: str, *, is_begin_known: bool = True
    ) -> _Session:
        session = _Session(member.member_id, member.metadata, member.is_away, at, is_begin_known)
        session.old = protocol if protocol in OLD else ""
        if member.is_away:
            session.aways.append((at, None))
        self._all.append(session)
        self._open[member.member_id] = session
        return session

    def _bring_on(self, session: _Session, new: Member, change: Change) -> None:
        was_away = session.is_away
        session.metadata, session.is_away = new.metadata, new.is_away
        if new.is_away and not was_away:
            session.aways.append((change.at, None))
        elif was_away and not new.is_away:
            session.come_back(change.at)
        elif new.is_classic:  # it joins again in every rebalance
            return
        elif change.cause.trigger == Trigger.MEMBER_REJOINED and change.cause.member_id == new.member_id:
            session.rejoined.append(change.at)

    def _end(self, session: _Session, change: Change, *, is_replaced: bool) -> SessionEnd:
        member_id = session.member_id
        del self._open[member_id]
        session.end = SessionEnd.REPLACED if is_replaced else _why_it_ended(member_id, change.cause)
        session.at = change.at
        session.expiry = next((e for e in change.cause.expiries if e.member_id == member_id), None)
        if session.end is SessionEnd.REPLACED:
            session.come_back(change.at)
        return session.end


def _protocol_of(metadata: ConsumerGroupMemberMetadataValue) -> str:
    return CONSUMER if metadata.classic_member_metadata is None else CLASSIC


def _why_it_ended(member_id: str, cause: Cause) -> SessionEnd:
    for reason in cause.reasons:
        if reason.member_id == member_id and reason.kind in _BY_REASON:
            return _BY_REASON[ReasonKind(reason.kind)]
    if any(reason.kind == ReasonKind.GROUP_DOWNGRADED for reason in cause.reasons):
        return SessionEnd.REMOVED
    if cause.trigger in _BY_TRIGGER and cause.member_id in ("", member_id):
        return _BY_TRIGGER[Trigger(cause.trigger)]
    return SessionEnd.UNKNOWN
