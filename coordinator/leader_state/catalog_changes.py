"""Topic changes, and which groups still have to be compared with them.

A shard may have a hundred thousand groups, and comparing all of them with every change of the catalog takes a
tenth of a second. So a change is only noted at first, and the groups are examined in steps of some thousands.
During such a round, further changes are collected for the next one. There are never more than two rounds,
however often topics change.

Invariants: until a group has been examined, cached replies that a noted change may affect (`names`) are
invalid, so its next heartbeat finds the change by itself. Every group that exists at the beginning of a round
is examined; newer groups have been decided on the newer catalog.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from coordinator.state.model import Group

GROUPS_AT_ONCE = 2_000
"""Groups examined in one step: about 2 ms."""


@dataclass(slots=True)
class ChangeRound:
    """Changes that every group has to be compared with.

    Holds the changed topics, and whether any of them is new or deleted, which may affect expressions and
    offsets."""

    names: set[str] = field(default_factory=set)
    is_one_new: bool = False
    is_one_gone: bool = False

    def concerns(self, group: Group) -> bool:
        """Whether any member of the group subscribes to one of the topics."""
        return not group.subscriptions.keys().isdisjoint(self.names)  # iterates over the smaller set

    def concerns_expressions(self, group: Group) -> bool:
        return bool(group.regex_subscribers) and (self.is_one_new or self.is_one_gone)


class CatalogChanges:
    """Topic changes that some group of the shard has not been compared with."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        """Changed topics of both rounds; always the same object."""
        self._round: ChangeRound | None = None
        self._left: Iterator[str] = iter(())
        self._next: ChangeRound | None = None

    def __bool__(self) -> bool:
        """Whether any group is left to examine."""
        return self._round is not None or self._next is not None

    def note(self, names: set[str], *, is_one_new: bool, is_one_gone: bool) -> None:
        """Note that topics changed. Must be called at once."""
        noted = self._next = self._next or ChangeRound()
        noted.names |= names
        noted.is_one_new |= is_one_new
        noted.is_one_gone |= is_one_gone
        self.names |= names

    def concerns(self, group: Group) -> bool:
        """Whether a cached reply may be out of date because a topic of the group changed since."""
        return not self.names.isdisjoint(group.subscriptions)

    def some(self, group_ids: Iterator[str]) -> tuple[ChangeRound, list[str]]:
        """The next groups to examine, and the changes to compare them with.

        `group_ids` must be all current groups if this is the first step of a round. To be called until
        nothing is left."""
        if self._round is None:
            assert self._next is not None, "the catalog has not changed"
            self._round, self._next, self._left = self._next, None, group_ids
        round_, groups = self._round, list(islice(self._left, GROUPS_AT_ONCE))
        if len(groups) < GROUPS_AT_ONCE:
            self._round, self._left = None, iter(())
            self.names.clear()
            if self._next is not None:
                self.names |= self._next.names
        return round_, groups
