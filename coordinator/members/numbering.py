"""Numbers for the members that a decision admits.

One place numbers the members of all protocols: after the steps of a decision it compares the members that the
group has now with the numbers that it has. So a member that went without one (it joined under an older
release, or the decision failed half-way) gets its number with the next decision that changes the membership.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from coordinator.api import Context, Steps
from coordinator.state import writes
from coordinator.state.membernumbers import NEWEST, GroupNumbers
from coordinator.state.model import Group
from coordinator.state.projection import Projection
from records import NUMBERS_SINCE, RawRecord, RecordType, decode_key, group_id_of

NUMBERED_AT_ONCE = 1_000
"""Maximum number of members of a group that get their numbers in one decision: about 5 ms. The first one
after an upgrade finds all of them without."""

LEFT_KEPT = 32
"""Number of members of a group that left and whose numbers are kept: a consumer that was removed, for
instance because it was paused, comes back under the same member id."""

_MEMBER = int(RecordType.CONSUMER_GROUP_MEMBER_METADATA)
_WHOLE_GROUP = frozenset(
    {int(RecordType.GROUP_METADATA), int(RecordType.REWRITE_GROUP), int(RecordType.PUSH_GROUP)}
)
_GROUP = int(RecordType.CONSUMER_GROUP_METADATA)


def numbered(steps: Steps, projection: Projection, ctx: Context) -> Steps:
    """The steps of a decision, and a last one with the numbers of the members that they admitted."""
    written: list[RawRecord] = []
    try:
        while True:
            step = next(steps)
            yield step
            written += [raw for raw in step if raw[0] == _MEMBER or _is_of_all(raw)]
    except StopIteration as stop:
        reply = stop.value
    except Exception:
        if written:
            yield number_records(projection, written, ctx)
        raise
    if written and (records := number_records(projection, written, ctx)):
        yield records
    return reply


def number_records(projection: Projection, written: Iterable[RawRecord], ctx: Context) -> list[RawRecord]:
    """The records MEMBER_NUMBER that are due after these records, which were just applied."""
    if ctx.catalog.format_level < NUMBERS_SINCE:
        return []
    named: dict[str, dict[str, None]] = {}
    compared: set[str] = set()
    for raw in written:
        if raw[0] == _MEMBER:
            key = decode_key(raw)
            named.setdefault(key.group_id, {})[key.member_id] = None
        elif _is_of_all(raw):
            group_id = group_id_of(raw) or ""
            named.setdefault(group_id, {})
            compared.add(group_id)
    records: list[RawRecord] = []
    for group_id, members in named.items():
        records += _of_group(projection, group_id, members, is_whole=group_id in compared)
    return records


def _is_of_all(raw: RawRecord) -> bool:
    """Whether the record names all members of its group, or ends a consumer group."""
    return raw[0] in _WHOLE_GROUP or (raw[0] == _GROUP and raw.value is None)


def _of_group(
    projection: Projection, group_id: str, named: dict[str, None], *, is_whole: bool
) -> list[RawRecord]:
    """The records of one group: those of members that are gone, then the newest number and those that came.

    `named` are the members whose records 5 were written; only these are looked at, unless `is_whole` or a
    member without a number shows that there are others."""
    numbers = projection.numbers.of_group(group_id)
    group = projection.groups.get(group_id)
    if group is None and group_id not in projection.old_ids:
        return [writes.member_number(group_id, member_id, None) for member_id in numbers.member_ids()]
    there = {one: None for one in named if group is not None and group.member(one) is not None}
    came, gone = _changes(numbers, there, named)
    num_numbered = len(numbers.present) + len(came) - len(gone)
    if is_whole or (group is not None and num_numbered != group.num_members):
        there = dict.fromkeys(_present(projection, group, group_id, named))
        came, gone = _changes(numbers, there, numbers.present)
    records = _of_gone(group_id, numbers, gone, came)
    if not came:
        return records
    newest = numbers.newest
    given: list[RawRecord] = []
    for member_id in came:
        number = numbers.left.get(member_id)
        if number is None:
            number = newest = newest + 1
        given.append(writes.member_number(group_id, member_id, number))
    if newest != numbers.newest:
        records.append(writes.member_number(group_id, NEWEST, newest))
    return records + given


def _changes(
    numbers: GroupNumbers, there: Mapping[str, None], candidates: Iterable[str]
) -> tuple[list[str], list[str]]:
    """The members that are there without being numbered as present, and the candidates that are not there."""
    came = [one for one in there if one not in numbers.present]
    return came[:NUMBERED_AT_ONCE], [one for one in candidates if one in numbers.present and one not in there]


def _of_gone(group_id: str, numbers: GroupNumbers, gone: list[str], came: list[str]) -> list[RawRecord]:
    """The records of members that are gone, and tombstones of those that are not kept any longer."""
    left = {one: number for one, number in numbers.left.items() if one not in came}
    left |= {one: numbers.present[one] for one in gone}
    kept = set(sorted(left, key=left.__getitem__)[-LEFT_KEPT:])
    return [writes.member_number(group_id, one, None) for one in left if one not in kept] + [
        writes.member_number(group_id, one, left[one], has_left=True) for one in gone if one in kept
    ]


def _present(
    projection: Projection, group: Group | None, group_id: str, named: dict[str, None]
) -> Iterator[str]:
    """The members that the group has now, in the order in which they are numbered.

    Those that were there before the decision come first, by member id."""
    if group is not None:
        joined = {member.member_id for member in group.joined()}
        yield from sorted(joined.difference(named))
        yield from (member_id for member_id in named if member_id in joined)
        if group.classic is not None:
            yield from (member.member_id for member in group.classic.members)
    for _, old in projection.old_groups_of(group_id):
        yield from (consumer.consumer_id for consumer in old.consumers)
