"""Kafka's write order (B.2): which records an event may write of one group, and in which order.

Kafka's replay relies on it, and so will a Kafka that reads an export: a member goes as 8, 7, 5; record 4
comes before 3; a target's members (7) before its epoch (6); the member that asked (8) last; a group goes as
8, 7, 6, 5, 16, 4, 3, after its offsets. A member's leases (1008), which Kafka does not have, come after its
8, and go before it. A group of an old protocol (1010, 1011) has one record, and what gives way to it goes
before it. The members' numbers (1009) are last. `World` and the stages of the stories hold every entry
against it.

Three places where ours has more than Kafka's, all on purpose: a leave is followed by its target (7, 6) at
once; a static member that comes back under its own member id writes an 8 first, where Kafka replaces it by
itself; and a first target that somebody else is to compute is empty (6) and asked for with a new epoch (3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from records import RawRecord, Trigger, group_id_of

_GONE = "(-1008 )?(-8 )?(-7 )?-5 "
_EPOCH = "(4 )?(3 )?"
_TARGET = "((7 )*6 (3 )?)?"
_PLACE_TAKEN = "((-1008 )?-8 (-7 )?-5 5 (7 )?8 |8 )?"
_OFFSETS_GONE = "(-1 )*(-1006 )*"
_GROUP_GONE = f"{_OFFSETS_GONE}(-1010 )?(-1008 )*(-8 )*(-7 )*(-6 )?(-5 )*(-16 )*(-4 )?(-3 |-2 )?"

_UPGRADED = "-2 ((5 )+3 (7 )+6 (8 )+)?"
_DOWNGRADED = "(-1008 )*(-8 )+(-7 )+-6 (-5 )+(-16 )*(-4 )?-3 2 "

_HEARTBEAT = f"({_UPGRADED}|-1010 )?{_PLACE_TAKEN}(5 (-16 )*)?{_EPOCH}{_TARGET}(8 )?(1008 |-1008 )?"
_REMOVAL = f"({_GONE})+(-16 )*{_EPOCH}{_TARGET}"
_CATALOG = f"{_OFFSETS_GONE}{_EPOCH}{_TARGET}"
_GENERATION = "2 "
_CLASSIC_FROM_EMPTY = f"{_GROUP_GONE}{_GENERATION}"
_NUMBERED = "(-1009 )*(1009 )*"
_OLD_PROTOCOL = f"{_GROUP_GONE}(1010 |1011 )|-1011 "

WRITE_ORDER: Final[dict[int, str]] = {
    Trigger.MEMBER_JOINED: f"{_HEARTBEAT}|{_CLASSIC_FROM_EMPTY}",
    Trigger.MEMBER_REJOINED: _HEARTBEAT,
    Trigger.MEMBER_UPDATED: _HEARTBEAT,
    Trigger.MEMBER_ACKED: _HEARTBEAT,
    Trigger.MEMBER_REPLACED: f"{_HEARTBEAT}({_DOWNGRADED})?|{_GENERATION}",
    Trigger.HEARTBEAT: _HEARTBEAT,
    Trigger.MEMBER_AWAY: "8 ",
    Trigger.MEMBER_LEFT: f"{_REMOVAL}|{_GENERATION}|{_DOWNGRADED}",
    Trigger.MEMBER_REMOVED: f"{_REMOVAL}|{_DOWNGRADED}",
    Trigger.SESSION_EXPIRED: f"{_REMOVAL}|{_GENERATION}|{_DOWNGRADED}",
    Trigger.GENERATION_COMPLETED: _GENERATION,
    Trigger.REBALANCE_EXPIRED: f"{_REMOVAL}|{_DOWNGRADED}",
    Trigger.OFFSETS_COMMITTED: "(1 )+(1006 )*",
    Trigger.OFFSETS_DELETED: "(-1 )*(-1006 )*",
    Trigger.OFFSETS_PENDING: "(1006 )+",
    Trigger.OFFSETS_RESOLVED: "(1006 |-1006 (1 )?)*",
    Trigger.GROUP_DELETED: _GROUP_GONE,
    Trigger.OFFSETS_EXPIRED: _GROUP_GONE,
    Trigger.TOPIC_CREATED: _CATALOG,
    Trigger.TOPIC_GROWN: _CATALOG,
    Trigger.TOPIC_DELETED: _CATALOG,
    Trigger.CATALOG_CHANGED: _CATALOG,
    Trigger.READY_CHECK: _CATALOG,
    Trigger.TARGET_COMPUTED: "((7 )*6 (3 )?|(7 )+)",
    Trigger.ASSIGNMENT_INSTALLED: "(7 )*6 (3 )?",
    Trigger.REGEX_RESOLVED: f"(16 |-16 )*{_EPOCH}{_TARGET}",
}
"""The records of one group that one entry may hold: types, each with a space; a minus is a tombstone."""


def check_write_order(trigger: int, records: Iterable[RawRecord]) -> None:
    """Raise `AssertionError` unless each group's records are in the order of their event."""
    types: dict[str, str] = {}
    for raw in records:
        group_id = group_id_of(raw)
        if group_id is not None:
            types[group_id] = types.get(group_id, "") + f"{-raw.type if raw.value is None else raw.type} "
    for group_id, written in types.items():
        is_old = re.search(r"(?<!-)101[01] |-1011 ", written)
        allowed = _OLD_PROTOCOL if is_old else WRITE_ORDER.get(trigger, "")
        assert re.fullmatch(f"(?:{allowed}){_NUMBERED}", written), (
            f"{trigger} of group {group_id!r} wrote {written}"
        )
