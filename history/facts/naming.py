"""The names of a group's members: one name for each, the same in every answer and in a running cluster."""

from __future__ import annotations

import re
from bisect import bisect_left

from history.render import NAME_LENGTH_MAX, MemberNames

from .rows import GroupRows, MemberSession

_TEXT_AND_NUMBER = re.compile("([^0-9]*)([0-9]*)")


def member_names(facts: GroupRows) -> MemberNames:
    """The names of the members in the facts of a group, which must not lack earlier sessions, in their order.

    A member is called by its number: `m2`, or `life1.m2` if the group ended since and began anew. Where the
    log has no number of any member, as it was written by an older release, members are counted by arrival in
    what was read; short member ids are names of their own."""
    ends = [index for index, _ in facts.gone]
    life_of = {one.member_id: bisect_left(ends, one.from_index) for one in facts.sessions}
    newest = max(life_of.values(), default=0)
    names = {
        one.member_id: f"m{one.number}" if life == newest else f"life{life + 1}.m{one.number}"
        for one in facts.sessions
        if one.number is not None
        for life in (life_of[one.member_id],)
    }
    names = names or _by_arrival(life_of)
    return MemberNames(dict(sorted(names.items(), key=lambda item: (life_of[item[0]], _by_number(item[1])))))


def _by_number(name: str) -> list[tuple[str, int]]:
    """Sort key of a name: its numbers as numbers, so that m10 comes after m2."""
    return [(text, int(digits or -1)) for text, digits in _TEXT_AND_NUMBER.findall(name)]


def name_in(session: MemberSession) -> str:
    """``m2 (app-2)``, for a member of the group's present life where the others are not known.

    The member id stands for a number that the log, of an older release, does not have."""
    name = session.member_id if session.number is None else f"m{session.number}"
    return f"{name} ({session.client_id})" if session.client_id else name


def _by_arrival(member_ids: dict[str, int]) -> dict[str, str]:
    names: dict[str, str] = {}
    own = {one for one in member_ids if one and len(one) <= NAME_LENGTH_MAX}
    count = 0
    for member_id in member_ids:
        if member_id in own:
            names[member_id] = member_id
            continue
        count += 1
        while f"m{count}" in own:
            count += 1
        names[member_id] = f"m{count}"
    return names
