"""Names of the members and partitions of one group in an answer.

Members are called by their numbers (`history.facts.naming`); the printing code adds the legend. Users may
refer to a member by any name they know.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from history.facts.naming import member_names
from history.facts.rows import GroupRows, MemberSession, TermRow
from history.protocols import CLASSIC, CONSUMER
from history.reading.catalog import CatalogHistory, TopicChange
from history.reading.source import NothingToRead
from history.render import LOCAL, TimeStyle, sentence_list
from history.words import Formatter
from records import Cause, TermStartValue, TermWhy

MEMBERS_NAMED_MAX = 8
"""Maximum number of members named in an error message."""


class MemberLabels:
    """Names for the members, topics and partitions in the facts of one group."""

    def __init__(
        self,
        facts: GroupRows,
        catalog: CatalogHistory,
        style: TimeStyle = LOCAL,
        strangers: Iterable[str] = (),
    ) -> None:
        """Create the names; ``strangers`` are ids known only from refused requests in the evidence."""
        self.style = style
        self._names = member_names(facts)
        self._catalog = catalog
        self._sessions: dict[str, MemberSession] = {}
        for session in facts.sessions:
            self._sessions[session.member_id] = session
        self._is_mixed = {CLASSIC, CONSUMER} <= {session.protocol for session in facts.sessions}
        self._strangers = list(dict.fromkeys(one for one in strangers if one not in self._sessions))
        for member_id in self._strangers:
            self._names.name(member_id)

    def short(self, member_id: str | None) -> str:
        """``m3``, or the id itself if it is short; ``nobody`` for ``None``."""
        return "nobody" if member_id is None else self._names.name(member_id)

    def member(self, member_id: str) -> str:
        """``m3 (client app-1, 127.0.0.1)``."""
        if not member_id:
            return "a member that the log does not name"
        name, said = self._names.name(member_id), self._described(member_id)
        return f"{name} ({said})" if said else name

    def in_order(self, member_ids: Iterable[str]) -> list[str]:
        """The members by number."""
        return self._names.in_order(member_ids)

    def legend(self) -> dict[str, str]:
        """Compact name -> member id and client description, for names that differ from the id."""
        legend = self._names.legend()
        return {name: self._with_id(member_id) for name, member_id in legend.items()}

    def formatter(
        self,
        cause: Cause,
        away: Iterable[str] = (),
        topics: Iterable[TopicChange] = (),
        protocol: str = "",
    ) -> Formatter:
        """The formatter for an entry with this cause and these topic changes noticed by the group.

        ``protocol`` is the group's at that entry."""
        changes = self._catalog.words_for(cause.refs, {change.name: change for change in topics})
        return Formatter(self.style, self.member, self._catalog.name, changes, frozenset(away), protocol)

    def find(self, text: str) -> tuple[str, ...]:
        """The members with this id, compact name, instance id or client id.

        Raises `NothingToRead`, naming those that exist, if there is none.
        """
        known = [*self._sessions, *self._strangers]
        if text in known:
            return (text,)
        named = [member_id for member_id in known if self._names.name(member_id) == text]
        said = [id_ for id_, one in self._sessions.items() if text in (one.instance_id, one.client_id)]
        if found := named or said:
            return tuple(found)
        raise NothingToRead(f"no member {text!r} in the group: {self._who_there_is(text)}")

    def is_classic(self, member_id: str) -> bool:
        """Whether the member speaks the classic protocol, in a group of either protocol."""
        return member_id in self._sessions and self._sessions[member_id].protocol == CLASSIC

    def is_stranger(self, member_id: str) -> bool:
        return member_id not in self._sessions

    def _who_there_is(self, text: str) -> str:
        by_name: dict[str, str] = {}
        for member_id, session in self._sessions.items():
            called = (self._names.name(member_id), member_id, session.instance_id, session.client_id)
            by_name.update({name: member_id for name in called if name})
        close = [by_name[name] for name in difflib.get_close_matches(text, by_name, MEMBERS_NAMED_MAX)]
        shown = list(dict.fromkeys(close or self._sessions))[:MEMBERS_NAMED_MAX]
        if not shown:
            return "it had none"
        rest = len(self._sessions) - len(shown)
        return f"it had {sentence_list([self.member(one) for one in shown])}" + (
            f" and {rest} more" if rest else ""
        )

    def _described(self, member_id: str) -> str:
        """``client app-1, 127.0.0.1``, as far as the member reported it."""
        session = self._sessions.get(member_id)
        if session is None:
            return ""
        said = client_words(session)
        return f"{said}, classic protocol" if self._is_mixed and session.protocol == CLASSIC else said

    def _with_id(self, member_id: str) -> str:
        said = self._described(member_id)
        return f"{member_id} ({said})" if said else member_id


def client_words(session: MemberSession) -> str:
    """``client app-1, 127.0.0.1, instance i-1``, as far as the member reported it."""
    parts = [
        f"client {session.client_id}" if session.client_id else "",
        session.client_host.removeprefix("/"),
        f"instance {session.instance_id}" if session.instance_id else "",
    ]
    return ", ".join(part for part in parts if part)


def term_of(row: TermRow) -> TermStartValue:
    """The term of a row, with the fields that its description needs."""
    named = {why.name: why for why in TermWhy}
    return TermStartValue(
        term=row.term,
        node_id=row.node_id,
        why=named.get(row.why, TermWhy.START),
        previous_leader=row.previous_leader,
        incarnation="",
        boot_id="",
    )
