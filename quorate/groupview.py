"""The text of `quorate groups describe`: members, what each owns, should own and waits for, and offsets.

Pure functions of the document from `GET /v1/groups/{id}`, or of Kafka's plain description in the same form,
where most fields are None. With a width, everything wraps; without one (a pipe), each sentence is one line
and nothing is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from coordinator.offsets.lag import lag
from history.columns import display_width, wrapped
from history.render import MemberNames, duration, plural, ranges
from quorate.output import assignment_text, printable, table_lines

if TYPE_CHECKING:
    from quorate.groupclient import GroupDescription, Offsets

View = Mapping[str, Any]

SENTENCES_MAX = 20
"""Limit on sentences of one kind on a screen; a pipe gets all."""
CELL_LINES_MAX = 8
"""Limit on lines for what one member owns, on a screen; a pipe gets all."""

NO_EPOCH = -1
"""The epoch of a member of a classic group in Kafka's own description, and of one of a push group."""
AWAY_EPOCH = -2
"""The epoch of a static member that left for a while."""
SILENT_SHARE = 0.5
"""A member is called silent when less than this share of its session is left; a live one renews it sooner."""

STATE_WORDS = {"STABLE": "stable", "UNREVOKED_PARTITIONS": "revoking", "UNRELEASED_PARTITIONS": "waiting"}


def plain_view(group: GroupDescription) -> dict[str, Any]:
    """Kafka's own description in the form of the HTTP API; fields that it lacks are None."""
    return {
        "group_id": group.group_id,
        "coordinator": group.coordinator,
        "type": group.group_type,
        "state": group.state,
        "epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor": group.assignor or None,
        "assignor_error": group.trouble,
        "members": [dataclasses.asdict(member) for member in group.members],
    }


def names_of(members: Iterable[View]) -> dict[str, str]:
    """Member id -> ``m2``, for members that have a number and if it is known."""
    return {one["member_id"]: f"m{one['number']}" for one in members if one.get("number") is not None}


def _arrival(member: View) -> tuple[bool, int]:
    """Sort key: members by number, then those without one."""
    number = member.get("number")
    return number is None, number or 0


def with_numbers(view: View, live: View) -> dict[str, Any]:
    """A view in which members have the numbers that they have in the leader's view."""
    numbers = {member["member_id"]: member["number"] for member in live["members"]}
    members = [{**member, "number": numbers.get(member["member_id"])} for member in view["members"]]
    return {**view, "members": members}


def lines(
    view: View,
    offsets: Offsets,
    *,
    at_ms: int | None,
    ends: Mapping[tuple[str, int], int] | None = None,
    lost_before: Mapping[tuple[str, int], int] | None = None,
    width: int | None = None,
    lines_max: int | None = None,
) -> list[str]:
    """The whole description; `at_ms` is the clock of the node that answered over HTTP, or None.

    If it has more than `lines_max` lines, a member's partitions share a row in the table of offsets.
    """
    members: Sequence[View] = sorted(view["members"], key=_arrival)
    view = {**view, "members": members}
    names = MemberNames(names_of(members))
    for member in members:
        names.name(member["member_id"])  # those without a number are called x1, x2 … in this text alone
    text = _head(view, at_ms, width)
    for line in _troubles(view, names):
        text += wrapped(line, width)
    text.append("")
    text += _members(members, names, at_ms, view.get("session_timeout_ms"), width)
    text += _assignments(members, names, width, has_target=view["type"] == "consumer")
    for title, sentences in (
        ("", list(_waits(view, names))),
        ("subscribed by regular expression:", list(_regexes(view, at_ms))),
        ("refused:", list(_refusals(view, names, at_ms))),
    ):
        text += _paragraph(title, sentences, width)
    text.append("")
    rows = _offset_rows(view, offsets, names, ends, lost_before or {})
    below = _below_offsets(view, rows, has_ends=ends is not None)
    shown = _offsets(rows, width, has_ends=ends is not None)
    if lines_max is not None and len(text) + len(shown) + len(below) > lines_max:
        shown = _offsets_in_sum(rows, width, has_ends=ends is not None)
    return [*text, *shown, *below]


def _head(view: View, at_ms: int | None, width: int | None) -> list[str]:
    name, told = printable(view["group_id"]), []
    by = f", coordinator node {view['coordinator']}" if view.get("coordinator") is not None else ""
    if view["type"] != "consumer":
        generation = f", generation {view['epoch']}" if view["epoch"] else ""
        return wrapped(f"group {name}: {view['state']}, of type {view['type']}{generation}{by}", width)
    first = (
        f"group {name}: {view['state']}, group epoch {view['epoch']}, "
        f"assignment epoch {view['assignment_epoch']}, assignor {printable(view['assignor'] or '-')}{by}"
    )
    if at_ms is not None and view.get("state_since_ms") is not None:
        told.append(f"{view['state']} for {_span(at_ms - view['state_since_ms'])}")
    if view.get("heartbeat_interval_ms") is not None:
        told.append(f"heartbeat interval {_span(view['heartbeat_interval_ms'])}")
        told.append(f"session timeout {_span(view['session_timeout_ms'])}")
    return wrapped(first, width) + (wrapped(", ".join(told), width) if told else [])


def _span(span_ms: float) -> str:
    """A duration, with whole seconds shown without a fraction."""
    span_ms = max(span_ms, 0)
    return f"{span_ms // 1000:.0f} s" if span_ms % 1000 == 0 and 0 < span_ms < 60_000 else duration(span_ms)


def _troubles(view: View, names: MemberNames) -> Iterator[str]:
    """Reasons why the group does not have its target yet."""
    if view["assignor_error"]:
        yield f"assignor error: {printable(view['assignor_error'])}"
    if view["members"] and view["assignment_epoch"] < view["epoch"]:
        yield f"the target of epoch {view['epoch']} is not computed yet"
    computing = view.get("computing")
    if computing:
        assignor = printable(computing["assignor"])
        yield (
            f"{names.name(computing['member_id'])} computes the target (assignor {assignor}) and has "
            f"{_span(computing['left_ms'])} left"
        )
    work = {"assign": "the target is being computed", "resolve": "regular expressions are being resolved"}
    for job in view.get("jobs") or ():
        what = work.get(job["kind"], job["kind"])
        yield f"{what} in a separate process with a time limit of {_span(job['deadline_ms'])}"


def _members(
    members: Sequence[View],
    names: MemberNames,
    at_ms: int | None,
    session_ms: int | None,
    width: int | None,
) -> list[str]:
    if not members:
        return ["no members"]
    has_instances = any(member["instance_id"] for member in members)
    headings = ["MEMBER", "CLIENT", "HOST", "EPOCH", "STATE", "HEARD", "INSTANCE", "MEMBER ID"]
    rows: list[list[object]] = [
        [
            names.name(member["member_id"]),
            member["client_id"],
            member["client_host"],
            None if member["member_epoch"] in (NO_EPOCH, AWAY_EPOCH) else member["member_epoch"],
            _state(member, session_ms),
            _seconds(at_ms, member.get("last_heartbeat_ms")),
            member["instance_id"],
            member["member_id"],
        ]
        for member in members
    ]
    shown = [True] * len(headings)
    shown[3] = any(row[3] is not None for row in rows)
    shown[4] = any(row[4] for row in rows)
    shown[5] = any(row[5] for row in rows)
    shown[6] = has_instances
    shown[7] = any(names.name(member["member_id"]) != member["member_id"] for member in members)
    full = table_lines(*_picked(headings, rows, shown))
    if not shown[7] or width is None or all(display_width(line) <= width for line in full):
        return full
    shown[7] = False  # a truncated id is useless: ids are listed below in full
    ids = [f"{row[0]} is member {printable(str(row[7]))}" for row in rows if row[0] != row[7]]
    return [*table_lines(*_picked(headings, rows, shown), width), "", *ids]


def _picked(
    headings: list[str], rows: list[list[object]], shown: list[bool]
) -> tuple[list[str], list[list[object]]]:
    """The columns that are shown."""
    return list(compress(headings, shown)), [list(compress(row, shown)) for row in rows]


def _state(member: View, session_ms: int | None) -> str | None:
    """A member's state in words; of one that is away or silent, how long its session lasts."""
    left_ms = member.get("session_left_ms")
    if member.get("is_away") or member["member_epoch"] == AWAY_EPOCH:
        return "away" if left_ms is None else f"away, {duration(left_ms)} left"
    state = STATE_WORDS.get(member.get("state") or "", member.get("state"))
    if left_ms is None or session_ms is None or left_ms >= SILENT_SHARE * session_ms:
        return state
    return (
        f"{state}, silent: {duration(left_ms)} left" if left_ms else f"{state}, silent: its session is over"
    )


def _seconds(at_ms: int | None, moment_ms: int | None) -> str | None:
    """The time since a moment, in the same unit for all."""
    return None if at_ms is None or moment_ms is None else f"{max(at_ms - moment_ms, 0) / 1000:.1f} s ago"


def _ago(at_ms: int | None, moment_ms: int | None) -> str | None:
    return None if at_ms is None or moment_ms is None else f"{duration(max(at_ms - moment_ms, 0))} ago"


def _assignments(
    members: Sequence[View], names: MemberNames, width: int | None, *, has_target: bool
) -> list[str]:
    if not members:
        return []
    rows: list[list[object]] = [
        [names.name(member["member_id"]), assignment_text(_held(member)), assignment_text(member["target"])]
        for member in members
    ]
    headings, rows = _picked(["MEMBER", "OWNS", "TARGET"], rows, [True, True, has_target])
    lines_max = None if width is None else CELL_LINES_MAX
    return ["", *table_lines(headings, rows, width, cell_lines_max=lines_max)]


def _held(member: View) -> dict[str, list[int]]:
    """Partitions that no other member may have: assigned ones, and ones not revoked yet."""
    held = {topic: set(numbers) for topic, numbers in member["assigned"].items()}
    for topic, numbers in (member.get("pending_revocation") or {}).items():
        held.setdefault(topic, set()).update(numbers)
    return {topic: sorted(numbers) for topic, numbers in held.items()}


def _waits(view: View, names: MemberNames) -> Iterator[str]:
    """Sentences about members that wait for partitions, are due some, or revoke some that none waits for."""
    away = {member["member_id"] for member in view["members"] if member.get("is_away")}
    waited: dict[str, set[tuple[str, int]]] = {}
    for member in view["members"]:
        name = names.name(member["member_id"])
        by_notice: dict[tuple[str, float | None, float | None], dict[str, list[int]]] = {}
        for wait in member.get("waits_for") or ():
            notice = wait["owner"], wait["told_ms_ago"], wait["left_ms"]
            by_notice.setdefault(notice, {}).setdefault(wait["topic"], []).append(wait["partition"])
            waited.setdefault(wait["owner"], set()).add((wait["topic"], wait["partition"]))
        for (owner, told_ms_ago, left_ms), partitions in by_notice.items():
            what, is_one = _partitions(partitions)
            it = "it" if is_one else "them"
            held_by = f"{name} waits for {what}, held by {names.name(owner)}, "
            yield held_by + _notice(it, told_ms_ago, left_ms, owner in away)
        due = _due(member)
        if due:
            yield f"{name} gets {_partitions(due)[0]} with its next heartbeat"
    for member in view["members"]:
        taken = waited.get(member["member_id"], set())
        rest = {
            topic: [number for number in numbers if (topic, number) not in taken]
            for topic, numbers in (member.get("pending_revocation") or {}).items()
        }
        if any(rest.values()):
            what = _partitions(rest)[0]
            yield f"{names.name(member['member_id'])} was told to revoke {what}; no member waits for it"


def _notice(it: str, told_ms_ago: float | None, left_ms: float | None, is_away: bool) -> str:
    if is_away:
        rest = "" if left_ms is None else f", for {duration(left_ms)} more"
        return f"which is away and keeps {it} until its session ends{rest}"
    if left_ms is None:
        return "which will be told with its next heartbeat"
    if told_ms_ago is None:
        return f"which was told to revoke {it} before another node led, and has {duration(left_ms)} left"
    ago, left = duration(told_ms_ago), duration(left_ms)
    return f"which was told to revoke {it} {ago} ago and has {left} left"


def _due(member: View) -> dict[str, list[int]]:
    """Target partitions that are free, and that the member's next heartbeat response will assign to it."""
    if member.get("waits_for") is None or member.get("is_away"):
        return {}
    blocked = {(wait["topic"], wait["partition"]) for wait in member["waits_for"]}
    due: dict[str, list[int]] = {}
    for topic, numbers in member["target"].items():
        owned = set(member["assigned"].get(topic, ()))
        free = [number for number in numbers if number not in owned and (topic, number) not in blocked]
        if free:
            due[topic] = free
    return due


def _partitions(partitions: Mapping[str, Sequence[int]]) -> tuple[str, bool]:
    """`orders-3`, or `orders:3-7 payments:0`; and whether it is a single partition."""
    named = {topic: numbers for topic, numbers in partitions.items() if numbers}
    if len(named) == 1:
        ((topic, numbers),) = named.items()
        if len(numbers) == 1:
            return f"{topic}-{numbers[0]}", True
    return assignment_text(named), False


def _regexes(view: View, at_ms: int | None) -> Iterator[str]:
    if view.get("regexes") is None:
        for regex in sorted({member["regex"] for member in view["members"] if member["regex"]}):
            yield printable(regex)
        return
    for row in view["regexes"]:
        regex, topics = printable(row["regex"]), row["topics"]
        if row["catalog_version"] is None:
            said = "not resolved yet"
        else:
            ago = _ago(at_ms, row["resolved_ms"])
            when = f", {ago}" if ago else ""
            said = f"{plural(len(topics), 'topic')} ({', '.join(topics) or 'none'}{when})"
        error = f"; error: {printable(row['error'])}" if row["error"] else ""
        yield f"{regex} → {said}" + (", being resolved" if row["is_resolving"] else "") + error


def _refusals(view: View, names: MemberNames, at_ms: int | None) -> Iterator[str]:
    """The last refused request of each member, then those of clients that are not members."""
    for member in view["members"]:
        refusal = member.get("last_refused")
        if refusal:
            yield f"{names.name(member['member_id'])}: {_refusal(refusal, at_ms)}"
    for refusal in view.get("refused_strangers") or ():
        who = f"member {refusal['member_id']}" if refusal["member_id"] else "somebody"
        yield f"{printable(who)} ({printable(refusal['client'])}), no member: {_refusal(refusal, at_ms)}"


def _refusal(refusal: View, at_ms: int | None) -> str:
    times = f", {refusal['times']} times in a row" if refusal["times"] > 1 else ""
    ago = _ago(at_ms, refusal["at_ms"])
    reason = printable(refusal["reason"])
    api = str(refusal["api"]).partition(" ")[0].title().replace("_", "")
    return f"{api} {ago}{times}: {refusal['error']}" + (f", {reason}" if reason else "")


def _paragraph(title: str, sentences: Sequence[str], width: int | None) -> list[str]:
    if not sentences:
        return []
    shown = sentences if width is None else sentences[:SENTENCES_MAX]
    indent = "  " if title else ""
    text = ["", *([title] if title else [])]
    for sentence in shown:
        text += wrapped(indent + sentence, width)
    if len(shown) < len(sentences):
        text.append(f"{indent}and {len(sentences) - len(shown)} more; --json has all")
    return text


@dataclasses.dataclass(frozen=True, slots=True)
class _OffsetRow:
    """A partition with its committed offset, its end and its owner, each None if unknown."""

    topic: str
    partition: int
    offset: int | None
    end: int | None
    lag: int | None
    owner: str | None


def _offset_rows(
    view: View,
    offsets: Offsets,
    names: MemberNames,
    ends: Mapping[tuple[str, int], int] | None,
    lost_before: Mapping[tuple[str, int], int],
) -> list[_OffsetRow]:
    owner_of = {
        (topic, number): names.name(member["member_id"])
        for member in view["members"]
        for topic, numbers in _held(member).items()
        for number in numbers
    }
    known = {(topic, number) for topic, by in offsets.items() for number in by}
    rows = []
    for topic, number in sorted(known | set(ends or ())):
        offset, end = offsets.get(topic, {}).get(number), (ends or {}).get((topic, number))
        missing = None
        if offset is not None and end is not None:
            missing = lag(offset, lost_before.get((topic, number), 0), end)
        rows.append(_OffsetRow(topic, number, offset, end, missing, owner_of.get((topic, number))))
    return rows


def _offsets(rows: Sequence[_OffsetRow], width: int | None, *, has_ends: bool) -> list[str]:
    """A row for each partition."""
    cells: list[list[object]] = [
        [row.topic, row.partition, row.offset, row.end, row.lag, row.owner] for row in rows
    ]
    headings = ["TOPIC", "PARTITION", "OFFSET", "END", "LAG", "OWNER"]
    shown = [True, True, True, has_ends, has_ends, True]
    return table_lines(*_picked(headings, cells, shown), width) if rows else []


def _offsets_in_sum(rows: Sequence[_OffsetRow], width: int | None, *, has_ends: bool) -> list[str]:
    """A row for each topic of an owner, with the sums of its partitions."""
    by_owner: dict[tuple[str, str], list[_OffsetRow]] = {}
    for row in sorted(rows, key=lambda row: (row.topic, row.owner is None, row.owner or "")):
        by_owner.setdefault((row.topic, row.owner or ""), []).append(row)
    cells: list[list[object]] = [
        [
            topic,
            ranges([row.partition for row in some]),
            _sum(row.offset for row in some),
            _sum(row.end for row in some),
            _sum(row.lag for row in some),
            owner or None,
        ]
        for (topic, owner), some in by_owner.items()
    ]
    headings = ["TOPIC", "PARTITIONS", "OFFSETS IN SUM", "ENDS", "LAG", "OWNER"]
    return table_lines(*_picked(headings, cells, [True, True, True, has_ends, has_ends, True]), width)


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _below_offsets(view: View, rows: Sequence[_OffsetRow], *, has_ends: bool) -> list[str]:
    num_pending = view.get("pending_offsets", 0)
    pending = [f"{plural(num_pending, 'offset')} pending in transactions"] if num_pending else []
    if not rows:
        return ["no committed offsets", *pending]
    return [*([_lag(rows)] if has_ends else []), *pending]


def _lag(rows: Sequence[_OffsetRow]) -> str:
    without = sum(row.offset is None for row in rows)
    unknown = sum(row.end is None for row in rows)
    said = [f"total lag {_sum(row.lag for row in rows) or 0:,}"]
    if without:
        said.append(f"{plural(without, 'partition')} without an offset")
    if unknown:
        said.append(f"{plural(unknown, 'partition')} whose end is not known")
    return ", ".join(said)


def owned_partitions(view: View) -> Iterable[tuple[str, int]]:
    """Partitions that members own or should own, whose end offsets are needed."""
    for member in view["members"]:
        for part in (_held(member), member["target"]):
            for topic, numbers in part.items():
                yield from ((topic, number) for number in numbers)
