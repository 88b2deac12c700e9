"""Changes of topics on their way to the groups that they concern.

A shard may have a hundred thousand groups, and to look at each at every change of the catalog takes a tenth
of a second. So a change is only noted at once, and the groups are gone through in steps, some thousands in
each. While that is under way a second round collects what changes meanwhile; more than two there never are,
however often topics change.

What must stay true: until a group has been looked at, no cached reply is valid that a noted change may
concern (`names`), so its next heartbeat finds the change by itself; every group of the beginning of a round
is looked at, others have been decided on the newer catalog.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from coordinator.state.model import Group

GROUPS_AT_ONCE = 2_000
"""Looked at in one step: about 2 ms."""


@dataclass(slots=True)
class Round:
    """Changes that every group is to be looked at for: the topics, and whether one of them is new or is gone,
    so that expressions and offsets may be concerned."""

    names: set[str] = field(default_factory=set)
    is_one_new: bool = False
    is_one_gone: bool = False

    def concerns(self, group: Group) -> bool:
        """Whether somebody in the group subscribes to one of the topics."""
        return not group.subscriptions.keys().isdisjoint(self.names)  # goes through the smaller of the two

    def concerns_expressions(self, group: Group) -> bool:
        return bool(group.regex_subscribers) and (self.is_one_new or self.is_one_gone)


class TopicNews:
    """What some group of a shard has not been looked at for."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        """Of both rounds; always the same object."""
        self._round: Round | None = None
        self._left: Iterator[str] = iter(())
        self._next: Round | None = None

    def __bool__(self) -> bool:
        """Whether there is any group left to be looked at."""
        return self._round is not None or self._next is not None

    def note(self, names: set[str], *, is_one_new: bool, is_one_gone: bool) -> None:
        """Topics changed: to be called at once."""
        noted = self._next = self._next or Round()
        noted.names |= names
        noted.is_one_new |= is_one_new
        noted.is_one_gone |= is_one_gone
        self.names |= names

    def concerns(self, group: Group) -> bool:
        """Whether a cached reply may be too old: the group has not been looked at for a topic of its own."""
        return not self.names.isdisjoint(group.subscriptions)

    def some(self, group_ids: Iterator[str]) -> tuple[Round, list[str]]:
        """The next groups, and what they are to be looked at for. `group_ids` are all of now, if this is the
        first step of a round. To be called until there is nothing left."""
        if self._round is None:
            assert self._next is not None, "there is no news"
            self._round, self._next, self._left = self._next, None, group_ids
        round_, groups = self._round, list(islice(self._left, GROUPS_AT_ONCE))
        if len(groups) < GROUPS_AT_ONCE:
            self._round, self._left = None, iter(())
            self.names.clear()
            if self._next is not None:
                self.names |= self._next.names
        return round_, groups
