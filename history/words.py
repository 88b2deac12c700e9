"""Causes, reasons and records in words.

The log records *why* as typed values (a trigger, reasons, references, expiries). Only this module turns them
into sentences, with one table row per value, so that ``dump``, ``explain`` and ``timeline`` use the same
words. A value unknown to this release is shown as its number, so the log of a newer release stays readable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache, partial
from typing import Protocol

from records import (
    Cause,
    Certainty,
    Expiry,
    MemberState,
    PushConsumer,
    PushState,
    RawRecord,
    Reason,
    ReasonKind,
    RecordType,
    TermStartValue,
    TermWhy,
    TopicPartitions,
    TransactionState,
    TransactionValue,
    Trigger,
    UnknownRecord,
    decode_record,
)
from records.ids import topic_id_text

from . import protocols
from .render import LOCAL, TimeStyle, duration, ranges, sentence_list

_SLOT = re.compile(r"\{(?P<name>\w+)(?::(?P<default>[^}]*))?\}")


def raw_member(member_id: str) -> str:
    return member_id or "a member without an id"


@dataclass(frozen=True, slots=True)
class Formatter:
    """Names things for one reader.

    ``member`` and ``topic`` name a member id and a topic id. ``topic_changes`` maps topic names to what
    happened to them by the entry described (``grew from 12 to 24 partitions (metadata index 17)``).
    """

    style: TimeStyle = LOCAL
    member: Callable[[str], str] = raw_member
    topic: Callable[[bytes], str] = topic_id_text
    topic_changes: Mapping[str, str] = field(default_factory=dict)
    away: frozenset[str] = frozenset()
    """Ids of the static members that were away before the entry."""
    protocol: str = ""
    """The protocol of the group described (`history.protocols`); empty: not known, or of several groups."""

    def partitions(self, parts: Iterable[TopicPartitions]) -> str:
        """Partitions by topic name, as in ``orders 0-3,7; payments 1``; ``nothing`` if there are none."""
        named = sorted(
            (self.topic(part.topic_id), ranges(part.partitions)) for part in parts if part.partitions
        )
        return "; ".join(f"{topic} {numbers}" for topic, numbers in named) or "nothing"


class NamedPartition(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


def by_topic(partitions: Iterable[NamedPartition]) -> list[str]:
    """The partitions of each topic, as ``orders 0-3,7``."""
    numbers: dict[str, list[int]] = {}
    for one in partitions:
        numbers.setdefault(one.topic, []).append(one.partition)
    return [f"{topic} {ranges(numbers[topic])}" for topic in sorted(numbers)]


def partitions_words(partitions: Iterable[NamedPartition], none: str = "nothing") -> str:
    """``orders 0-3,7; payments 1``; ``none`` if there are none."""
    return "; ".join(by_topic(partitions)) or none


TRIGGERS: dict[int, str] = {
    Trigger.TERM_OPENED: "a term began",
    Trigger.MEMBER_JOINED: "{member} joined",
    Trigger.MEMBER_REJOINED: "{member} joined again",
    Trigger.MEMBER_UPDATED: "{member} changed its metadata",
    Trigger.MEMBER_ACKED: "{member} reported what it owns{owned}",
    Trigger.HEARTBEAT: "heartbeat of {member}",
    Trigger.MEMBER_LEFT: "{member} left",
    Trigger.SESSION_EXPIRED: "session of {member} expired{expiry}",
    Trigger.REBALANCE_EXPIRED: "{member} did not give up its partitions in time{overdue}",
    Trigger.OFFSETS_COMMITTED: "{committer} committed offsets",
    Trigger.OFFSETS_DELETED: "offsets were deleted{by}",
    Trigger.GROUP_DELETED: "the group was deleted{by}",
    Trigger.TOPIC_CREATED: "a topic was created{detail}{by}",
    Trigger.TOPIC_GROWN: "a topic grew{detail}{by}",
    Trigger.TOPIC_DELETED: "a topic was deleted{detail}{by}",
    Trigger.CATALOG_CHANGED: "the topics changed",
    Trigger.READY_CHECK: "the check that follows a start or failover",
    Trigger.TARGET_COMPUTED: "a due target was computed",
    Trigger.CONFIG_CHANGED: "a setting changed{detail}{by}",
    Trigger.CLUSTER_FORMATTED: "the cluster was formatted",
    Trigger.IMPORTED: "imported from another log",
    Trigger.FORMAT_RAISED: "the format level was raised",
    Trigger.MEMBER_REPLACED: "{member} replaced {replaced}",
    Trigger.MEMBER_AWAY: "{member} left temporarily and keeps its partitions",
    Trigger.REGEX_RESOLVED: "subscriptions by regular expression were resolved",
    Trigger.ASSIGNMENT_INSTALLED: "{member} installed the target that it computed",
    Trigger.MEMBER_REMOVED: "members were removed{by}",
    Trigger.OFFSETS_EXPIRED: "unused offsets and groups expired{retention}",
    Trigger.GENERATION_COMPLETED: "the leader {member} assigned the partitions of a generation",
    Trigger.PRODUCER_INITIALIZED: "a transactional producer began{detail}",
    Trigger.TRANSACTION_EXTENDED: "a transaction got partitions or a group{detail}",
    Trigger.TRANSACTION_ENDED: "a producer ended its transaction{detail}",
    Trigger.TRANSACTION_TIMED_OUT: "a transaction timed out{detail}",
    Trigger.TRANSACTION_COMPLETED: "a transaction was completed{detail}",
    Trigger.TRANSACTIONAL_ID_EXPIRED: "an unused transactional id expired{detail}",
    Trigger.OFFSETS_PENDING: "{committer} committed offsets in a transaction{detail}",
    Trigger.OFFSETS_RESOLVED: "the offsets of a transaction were resolved{detail}",
    Trigger.LEADERSHIP_ASKED: "an operator asked for a change of leadership{detail}{by}",
}

REASONS: dict[int, str] = {
    ReasonKind.MEMBER_JOINED: "{member} joined{detail}",
    ReasonKind.MEMBER_LEFT: "{member} left{detail}",
    ReasonKind.SESSION_EXPIRED: "session of {member} expired{expiry}",
    ReasonKind.REBALANCE_EXPIRED: "{member} did not give up its partitions in time{overdue}",
    ReasonKind.SUBSCRIPTION_CHANGED: "{member} changed its subscription{detail}",
    ReasonKind.REGEX_CHANGED: "{member} changed its subscription regex{detail}",
    ReasonKind.REGEX_RESOLUTION_CHANGED: (
        "a subscription by regular expression matches other topics{detail}{changes}"
    ),
    ReasonKind.TOPIC_CREATED: "topic {topic} {change:was created}",
    ReasonKind.TOPIC_GROWN: "topic {topic} {change:grew}",
    ReasonKind.TOPIC_DELETED: "topic {topic} {change:was deleted}",
    ReasonKind.TOPIC_RECREATED: "topic {topic} {change:was deleted and created again}",
    ReasonKind.ASSIGNOR_CHANGED: "the group's assignor changed{detail}",
    ReasonKind.MEMBER_REMOVED: "{member} was removed by an operator",
    ReasonKind.GROUP_UPGRADED: "the group moved from the classic to the consumer protocol with {member}",
    ReasonKind.GROUP_DOWNGRADED: "the group moved back to the classic protocol, which all members speak now",
    ReasonKind.CLIENT_ASSIGNORS_CHANGED: "{member} changed its client-side assignors",
    ReasonKind.RACK_CHANGED: "{member} changed its rack",
    ReasonKind.TOPIC_RACKS_CHANGED: "topic {topic} {change:has replicas in other racks}",
    ReasonKind.LEADER_REJOINED: "the leader {member} joined again{detail}",
    ReasonKind.MEMBER_REPLACED: "{member} replaced a process with its instance id{detail}",
    ReasonKind.JOIN_TIMED_OUT: "{member} did not join again in time{late}",
    ReasonKind.SYNC_TIMED_OUT: "{member} did not send SyncGroup in time{late}",
    ReasonKind.MEMBER_REJOINED: "{member} joined again",
}

TERM_WHYS: dict[int, str] = {
    TermWhy.START: "the node started",
    TermWhy.EXPIRY: "the former leader did not respond in time",
    TermWhy.RESET: "the connection to the former leader was reset",
    TermWhy.TRANSFER: "the former leader transferred its leadership",
}

TAKEOVERS: dict[int, str] = {
    TermWhy.EXPIRY: "node {node} took over{previous} (which did not respond in time)",
    TermWhy.RESET: "node {node} took over{previous} (whose connection broke)",
    TermWhy.TRANSFER: "node {node} took over{previous} (planned transfer)",
}
OUTAGE_MS_MAX = 10_000
"""Milliseconds. A longer gap before a takeover means an idle shard rather than an outage, since an election
takes fractions of a second."""


def reason_words(reason: Reason, cause: Cause, now_ms: int, formatter: Formatter) -> str:
    """One reason for an epoch, as a sentence without a full stop; ``now_ms`` is the time of its entry."""
    template = protocols.REASONS.get(formatter.protocol, {}).get(reason.kind) or REASONS.get(reason.kind)
    if template is None:
        shown = [reason.member_id and formatter.member(reason.member_id), reason.topic, reason.detail]
        return f"reason {int(reason.kind)} (unknown to this release)" + "".join(f" {s}" for s in shown if s)
    return _fill(template, reason.member_id, reason.topic, reason.detail, cause, now_ms, formatter)


def cause_words(cause: Cause, now_ms: int, formatter: Formatter) -> str:
    """The trigger of a cause, as a sentence without a full stop."""
    of_protocol = protocols.TRIGGERS.get(formatter.protocol, {})
    template = of_protocol.get(cause.trigger) or TRIGGERS.get(cause.trigger)
    if template is None:
        said = f"trigger {int(cause.trigger)} (unknown to this release)"
    else:
        said = _fill(template, cause.member_id, "", cause.detail, cause, now_ms, formatter)
    if cause.certainty != Certainty.RECORDED:
        said += " (inferred, not recorded)"
    return said


def _fill(
    template: str, member_id: str, topic: str, detail: str, cause: Cause, now_ms: int, formatter: Formatter
) -> str:
    operator = " from ".join(part for part in (cause.principal, cause.address.removeprefix("/")) if part)

    def filled(slot: re.Match[str]) -> str:
        name, default = slot["name"], slot["default"]
        match name:
            case "member":
                return formatter.member(member_id)
            case "committer":
                return formatter.member(member_id) if member_id else operator or "a client without membership"
            case "replaced":
                return formatter.member(detail)
            case "by":
                return f" (by {operator})" if operator else ""
            case "topic":
                return topic or "that the log does not name"
            case "change":
                return formatter.topic_changes.get(topic) or default + (f" ({detail})" if detail else "")
            case "changes":
                told = [f"topic {name} {change}" for name, change in sorted(formatter.topic_changes.items())]
                return f", as {sentence_list(told)}" if told else ""
            case "expiry":
                return _expiry_of(member_id, cause, now_ms, formatter)
            case "overdue":
                return _overdue_of(member_id, cause, now_ms, formatter)
            case "late":
                return _late_of(member_id, cause, formatter)
            case "heard":
                return _heard_of(member_id, cause, formatter)
            case "plain":
                return detail or default
            case "retention":
                return _retention_of(cause, formatter)
            case "owned":
                return "" if cause.owned is None else f": {formatter.partitions(cause.owned)}"
            case _:
                return f": {detail}" if detail else ""

    return _SLOT.sub(filled, template)


def _expiry_of(member_id: str, cause: Cause, now_ms: int, formatter: Formatter) -> str:
    for expiry in cause.expiries:
        if expiry.member_id == member_id:
            # A generation of a classic group is written some time after the sessions that ended before it.
            is_last = expiry.deadline_ms == max(one.deadline_ms for one in cause.expiries)
            at_ms = now_ms if cause.phases is None and is_last else expiry.deadline_ms
            return ": " + session_words(expiry, at_ms, formatter.style, is_away=member_id in formatter.away)
    return ""


def _overdue_of(member_id: str, cause: Cause, now_ms: int, formatter: Formatter) -> str:
    for expiry in cause.expiries:
        if expiry.member_id == member_id:
            waited = duration(max(now_ms - expiry.armed_ms, 0))
            since = formatter.style.clock(expiry.armed_ms)
            return f": {waited} of {duration(expiry.timeout_ms)} passed since {since}"
    return ""


def _heard_of(member_id: str, cause: Cause, formatter: Formatter) -> str:
    for expiry in cause.expiries:
        if expiry.member_id == member_id:
            limit = duration(expiry.timeout_ms)
            if expiry.last_heartbeat_ms < 0:
                return f"; it had {limit} from {formatter.style.clock(expiry.armed_ms)} on"
            return f"; last heard of at {formatter.style.clock(expiry.last_heartbeat_ms)}"
    return ""


def _late_of(member_id: str, cause: Cause, formatter: Formatter) -> str:
    for expiry in cause.expiries:
        if expiry.member_id == member_id:
            return f": it had {duration(expiry.timeout_ms)} from {formatter.style.clock(expiry.armed_ms)} on"
    return ""


def _retention_of(cause: Cause, formatter: Formatter) -> str:
    """``: offsets, the oldest committed at … and kept for 7 d``; empty if no offsets expired."""
    for expiry in cause.expiries:
        committed = formatter.style.full(expiry.armed_ms)
        return f": offsets, the oldest committed at {committed} and kept for {duration(expiry.timeout_ms)}"
    return ""


def session_words(expiry: Expiry, now_ms: int, style: TimeStyle, *, is_away: bool = False) -> str:
    """``no heartbeat for 3.0 s of 3.0 s, last at 12:03:08.100``.

    If the member sent no heartbeat to this leader, as after a takeover, the time since its session timer was
    armed is given instead. A static member that is away sends no heartbeats, which is worded differently.
    """
    limit = duration(expiry.timeout_ms)
    if is_away:
        since = expiry.last_heartbeat_ms if expiry.last_heartbeat_ms >= 0 else expiry.armed_ms
        return f"it left temporarily and did not return within {limit} (counted from {style.clock(since)})"
    if expiry.last_heartbeat_ms >= 0:
        silent = duration(max(now_ms - expiry.last_heartbeat_ms, 0))
        return f"no heartbeat for {silent} of {limit}, last at {style.clock(expiry.last_heartbeat_ms)}"
    waited = duration(max(now_ms - expiry.armed_ms, 0))
    return f"no heartbeat for {waited} of {limit}, expected since {style.clock(expiry.armed_ms)}"


def phases_words(cause: Cause, now_ms: int, formatter: Formatter) -> tuple[str, ...]:
    """The times of a rebalance's phases, and the members that others waited for; none in a consumer or push
    group."""
    phases = cause.phases
    if phases is None:
        return ()
    arrivals = [
        f"{formatter.member(one.member_id)} after {duration(one.at_ms - phases.began_ms)}"
        for one in phases.waited_for
    ]
    absent = [r.member_id for r in cause.reasons if r.kind == ReasonKind.JOIN_TIMED_OUT]
    joined = f"{duration(phases.joined_ms - phases.began_ms)} for members to join"
    if absent:
        joined += f", in vain for {sentence_list([formatter.member(one) for one in absent])}"
    if arrivals:
        joined += f"; the last was {', before it '.join(arrivals[:2])}"
    if formatter.protocol == protocols.REWRITE:  # the coordinator assigns
        return (joined,)
    assigned = f"{duration(now_ms - phases.joined_ms)} for the leader"
    return joined, f"{assigned} {formatter.member(cause.member_id)} to send the assignments"


def is_takeover(term: TermStartValue) -> bool:
    """Whether the term replaces an earlier one of a running cluster: a failover or a hand-over."""
    return term.why in TAKEOVERS


def term_words(term: TermStartValue, gap_ms: int | None) -> str:
    """Describe the start of a term.

    For example ``node 1 leads from term 3 on: the node started``; for a failover ``term 4: node 2 took over
    from node 1 (whose connection broke), at most 310 ms without a leader``. ``gap_ms`` is the time since the
    previous entry, if known. That entry is the last sign of the previous leader, so the gap is an upper bound
    of the outage.
    """
    if not is_takeover(term):
        why = TERM_WHYS.get(term.why, f"why {int(term.why)} (unknown to this release)")
        before = f" (before: node {term.previous_leader})" if term.previous_leader >= 0 else ""
        return f"node {term.node_id} leads from term {term.term} on: {why}{before}"
    if term.previous_leader == term.node_id:
        said = f"term {term.term}: node {term.node_id} leads again"
    else:
        known = term.previous_leader >= 0
        previous = f" from node {term.previous_leader}" if known else " from the former leader"
        said = f"term {term.term}: " + TAKEOVERS[term.why].format(node=term.node_id, previous=previous)
    if gap_ms is None:
        return said
    if gap_ms > OUTAGE_MS_MAX:
        return f"{said}, {duration(gap_ms)} after the entry before"
    return f"{said}, at most {duration(gap_ms)} without a leader"


def name_of(kind: type[IntEnum], number: int) -> str:
    """The name of an enumeration's member; the number if this release does not know it."""
    try:
        return kind(number).name
    except ValueError:
        return str(int(number))


trigger_name = partial(name_of, Trigger)
reason_name = partial(name_of, ReasonKind)
term_why = partial(name_of, TermWhy)


def reason_names(cause: Cause) -> list[str]:
    return [reason_name(reason.kind) for reason in cause.reasons]


def certainty_name(cause: Cause) -> str:
    return name_of(Certainty, cause.certainty)


@cache
def type_name(record_type: int) -> str:
    """``ConsumerGroupMetadata``; ``type 77 (unknown to this release)``."""
    try:
        words = RecordType(record_type).name.split("_")
    except ValueError:
        return f"type {record_type} (unknown to this release)"
    return "".join(word.capitalize() for word in words)


def state_name(state: int) -> str:
    try:
        return MemberState(state).name
    except ValueError:
        return f"state {state}"


def record_words(raw: RawRecord, formatter: Formatter) -> str:
    """One record on one line: its type, its key, and the fields of its value that differ from the default.

    Never raises. A record that cannot be decoded is shown raw, because people turn to a dump when something
    is wrong.
    """
    name = type_name(raw.type)
    try:
        record = decode_record(raw)
    except (ValueError, TypeError) as error:
        return f"{name} key={raw.key.hex()} value={_hex(raw.value)} (not decodable: {error})"
    if isinstance(record, UnknownRecord):
        return f"{name} version={raw.version} key={raw.key.hex()} value={_hex(raw.value)}"
    key = _fields_words(record.key, formatter, all_fields=True)
    if record.value is None:
        return f"{name} {key} deleted".replace("  ", " ")
    return " ".join(part for part in (name, key, _fields_words(record.value, formatter)) if part)


_TRANSACTION_STATES: dict[int, str] = {int(state): state.name for state in TransactionState}


def _hex(value: bytes | None) -> str:
    return "deleted" if value is None else value.hex() or "empty"


def _fields_words(value: object, formatter: Formatter, *, all_fields: bool = False) -> str:
    shown = []
    for name, spec in getattr(value, "__dataclass_fields__", {}).items():
        content = getattr(value, name)
        if all_fields or content != spec.default:
            if name == "state" and isinstance(value, TransactionValue):
                content = _TRANSACTION_STATES.get(value.state, content)
            elif name == "state" and isinstance(value, PushConsumer):
                content = name_of(PushState, value.state)
            shown.append(f"{name}={_value_words(name, content, formatter)}")
    return " ".join(shown)


def _value_words(name: str, content: object, formatter: Formatter) -> str:
    if name == "topic_id" and isinstance(content, bytes):
        return topic_id_text(content)
    if name == "state" and isinstance(content, int):
        return state_name(content)
    if name == "why" and isinstance(content, int):
        return TERM_WHYS.get(content, str(content)).replace(" ", "-")
    if name.endswith("_ms") and isinstance(content, int) and content > 10**11:
        return formatter.style.full(content).replace(" ", "T")
    if isinstance(content, bytes):
        return content.hex() or "empty"
    if isinstance(content, TopicPartitions):
        return formatter.partitions((content,))
    if isinstance(content, tuple):
        if content and all(isinstance(part, TopicPartitions) for part in content):
            return "{" + formatter.partitions(content) + "}"
        return "[" + ", ".join(_value_words("", part, formatter) for part in content) + "]"
    if hasattr(content, "__dataclass_fields__"):
        return "(" + _fields_words(content, formatter, all_fields=True) + ")"
    return repr(content) if content == "" else str(content)


def reasons_words(cause: Cause, now_ms: int, formatter: Formatter) -> tuple[str, ...]:
    """Every reason as a sentence; the trigger if the entry names no reason."""
    if cause.reasons:
        return tuple(reason_words(reason, cause, now_ms, formatter) for reason in cause.reasons)
    return (cause_words(cause, now_ms, formatter),)


def cause_line(cause: Cause, now_ms: int, formatter: Formatter) -> str:
    """Trigger, reasons and references on one line, for a dump."""
    said = cause_words(cause, now_ms, formatter)
    reasons = [
        text for text in (reason_words(r, cause, now_ms, formatter) for r in cause.reasons) if text != said
    ]
    if reasons:
        said += "; new epoch because " + sentence_list(reasons)
    if cause.refs:
        said += " [see " + ", ".join(ref_words(ref.shard, ref.index) for ref in cause.refs) + "]"
    return said


def ref_words(shard: int, index: int) -> str:
    return f"{shard_name(shard)} index {index}"


def shard_name(shard: int) -> str:
    """The directory name of a shard: ``metadata``, ``shard-0``."""
    return "metadata" if shard < 0 else f"shard-{shard}"
