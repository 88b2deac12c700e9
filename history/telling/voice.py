"""How the members and partitions of one group are called in an answer.

Members get compact names in the order in which they came, so that the same log names them the same way in
every answer; whoever prints adds the legend. People may name a member by whatever they know of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from history.facts.rows import GroupFacts, MemberSession, TermRow, TopicPartition
from history.reading.catalog import CatalogHistory, TopicChange
from history.reading.source import NothingToRead
from history.render import LOCAL, MemberNames, TimeStyle, ranges, sentence_list
from history.words import Speaker
from records import Cause, TermStartValue, TermWhy

MEMBERS_NAMED_MAX = 8
"""As many members as a line of help can hold."""


class Voice:
    """Names for what the facts of one group speak of."""

    def __init__(
        self,
        facts: GroupFacts,
        catalog: CatalogHistory,
        style: TimeStyle = LOCAL,
        strangers: Iterable[str] = (),
    ) -> None:
        """``strangers`` are ids that only the evidence names: requests of them were refused."""
        self.style = style
        self._names = MemberNames()
        self._catalog = catalog
        self._sessions: dict[str, MemberSession] = {}
        for session in facts.sessions:
            self._names.name(session.member_id)
            self._sessions[session.member_id] = session
        self._strangers = list(dict.fromkeys(one for one in strangers if one not in self._sessions))
        for member_id in self._strangers:
            self._names.name(member_id)

    def short(self, member_id: str | None) -> str:
        """``m3``, or the id itself where it is short; ``nobody``."""
        return "nobody" if member_id is None else self._names.name(member_id)

    def member(self, member_id: str) -> str:
        """``m3 (client app-1, 127.0.0.1)``"""
        if not member_id:
            return "a member that the log does not name"
        name, said = self._names.name(member_id), self._described(member_id)
        return f"{name} ({said})" if said else name

    def legend(self) -> dict[str, str]:
        """Compact name -> member id and what the member said of itself, where the name is not the id."""
        legend = self._names.legend()
        return {name: self._with_id(member_id) for name, member_id in legend.items()}

    def speaker(self, cause: Cause, away: Iterable[str] = (), topics: Iterable[TopicChange] = ()) -> Speaker:
        """For an entry with this cause, with which the group saw these changes of its topics."""
        changes = self._catalog.words_for(cause.refs, {change.name: change for change in topics})
        return Speaker(self.style, self.member, self._catalog.name, changes, frozenset(away))

    def find(self, text: str) -> tuple[str, ...]:
        """The members that somebody means by an id, a compact name, an instance id or a client id.

        Raises `NothingToRead`, saying who there is, where nobody is called so.
        """
        known = [*self._sessions, *self._strangers]
        if text in known:
            return (text,)
        named = [member_id for member_id in known if self._names.name(member_id) == text]
        said = [id_ for id_, one in self._sessions.items() if text in (one.instance_id, one.client_id)]
        if found := named or said:
            return tuple(found)
        raise NothingToRead(f"no member {text!r} in the group: {self._who_there_is(text)}")

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
        """``client app-1, 127.0.0.1``, as far as the member said."""
        session = self._sessions.get(member_id)
        return "" if session is None else client_words(session)

    def _with_id(self, member_id: str) -> str:
        said = self._described(member_id)
        return f"{member_id} ({said})" if said else member_id


def client_words(session: MemberSession) -> str:
    """``client app-1, 127.0.0.1, instance i-1``, as far as the member said."""
    parts = [
        f"client {session.client_id}" if session.client_id else "",
        session.client_host.removeprefix("/"),
        f"instance {session.instance_id}" if session.instance_id else "",
    ]
    return ", ".join(part for part in parts if part)


def partitions_words(partitions: Iterable[TopicPartition]) -> str:
    """``orders 0-3,7; payments 1``; ``nothing``."""
    by_topic: dict[str, list[int]] = {}
    for one in partitions:
        by_topic.setdefault(one.topic, []).append(one.partition)
    return "; ".join(f"{topic} {ranges(by_topic[topic])}" for topic in sorted(by_topic)) or "nothing"


def term_of(row: TermRow) -> TermStartValue:
    """The term of a row, as far as words need it."""
    named = {why.name: why for why in TermWhy}
    return TermStartValue(
        term=row.term,
        node_id=row.node_id,
        why=named.get(row.why, TermWhy.START),
        previous_leader=row.previous_leader,
        incarnation="",
        boot_id="",
    )
