"""The order of records within a decision (section B.2 of the protocol), and Kafka's log compared with ours.

`ORDER` gives, for each trigger of ours, the record types that may follow each other. `beside` compares what
both sides wrote for one group and leaves out known differences:

- always the subscribed topics (4), which Kafka no longer writes, and the classic group (2), which Kafka
  writes for a group that has only offsets;
- always the note that a member has reported what it must revoke, which Kafka does not make
  (`record_logs.is_first_report`);
- if a member leaves or topics change, the targets (7 and 6), which we compute with the change and Kafka with
  the next heartbeat;
- if the group has expressions or its topics change, the epoch (3), which we raise with every join and every
  topic change, while Kafka combines those between two heartbeats.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from records import Trigger
from tests.differential.play import Played
from tests.differential.record_logs import Decision, WrittenLog, decisions_of_ours, records_of_kafka
from tests.differential.run import Servers
from tests.differential.script import Script

TARGET: Final = r"(7 )*6 "
JOIN: Final = rf"(~8 (~7 )?~5 5 (7 )?8 )?(5 )?(~16 )*(4 )?(3 )?({TARGET})?(8 )?"
"""Join or update by heartbeat: [static replacement], [5], [~16 of expressions without subscribers], [4], [3],
[7 … 6], [8]. A static member that returns under its own id needs no replacement, only its 8; one
that has no target yet has no 7 to replace."""

LEAVE: Final = rf"(~8 (~7 )?~5 )+(~16 )*(4 )?3 ({TARGET})?"
CATALOG: Final = rf"(~1 )*(4 )?(3 )?({TARGET})?"
DELETED: Final = r"(~1 )*(~8 )*(~7 )*(~6 )?(~5 )*(~16 )*(~4 )?(~3 )?(~2 )?"

CLASSIC: Final = r"(~8 )*(~7 )*(~6 )?(~5 )*(~16 )*(~4 )?(~3 )?2 "
"""A classic group: its record, after the tombstones of an empty group of the consumer protocol."""

TAKEOVER: Final = r"(~2 (5 )*(3 )?(7 )*(6 )?(8 )*)?"
"""A consumer group takes over a classic one: its tombstone, and its members with their partitions."""

ORDER: Final = {
    Trigger.MEMBER_JOINED: rf"{CLASSIC}|{TAKEOVER}{JOIN}",
    Trigger.GENERATION_COMPLETED: CLASSIC,
    Trigger.MEMBER_REJOINED: rf"{TAKEOVER}{JOIN}",
    Trigger.MEMBER_UPDATED: JOIN,
    Trigger.MEMBER_ACKED: JOIN,
    Trigger.MEMBER_REPLACED: rf"{CLASSIC}|{TAKEOVER}{JOIN}({CLASSIC})?",
    Trigger.HEARTBEAT: JOIN,
    Trigger.MEMBER_AWAY: r"8 ",
    Trigger.MEMBER_LEFT: rf"{CLASSIC}|{LEAVE}",
    Trigger.SESSION_EXPIRED: rf"{CLASSIC}|{LEAVE}",
    Trigger.REBALANCE_EXPIRED: rf"{CLASSIC}|{LEAVE}",
    Trigger.MEMBER_REMOVED: rf"{CLASSIC}|{LEAVE}",
    Trigger.REGEX_RESOLVED: rf"(16 )+(4 )?(3 )?({TARGET})?",
    Trigger.TARGET_COMPUTED: TARGET,
    Trigger.ASSIGNMENT_INSTALLED: TARGET,
    Trigger.OFFSETS_COMMITTED: r"(1 )+",
    Trigger.OFFSETS_RESOLVED: r"(1 )*",
    Trigger.OFFSETS_DELETED: r"(~1 )+",
    Trigger.OFFSETS_EXPIRED: DELETED,
    Trigger.GROUP_DELETED: DELETED,
    Trigger.TOPIC_CREATED: CATALOG,
    Trigger.TOPIC_GROWN: CATALOG,
    Trigger.TOPIC_DELETED: CATALOG,
    Trigger.CATALOG_CHANGED: CATALOG,
    Trigger.READY_CHECK: CATALOG,
    Trigger.CONFIG_CHANGED: TARGET,
}

GROUP_EPOCH: Final = 3
MEMBERS_TARGET: Final = 7
NEVER_BESIDE: Final = frozenset({2, 4})
TARGETS: Final = frozenset({6, MEMBERS_TARGET})

TOPIC_STEPS: Final = frozenset({"grow", "create", "drop"})


def out_of_order(decisions: Iterable[Decision]) -> Iterator[str]:
    """Yield those of our decisions whose order of records B.2 does not allow."""
    for decision in decisions:
        allowed = ORDER.get(decision.trigger)
        if allowed is None or not re.fullmatch(allowed, decision.words + " "):
            yield f"{decision.trigger.name} wrote {decision.words}"


def beside(kafka: Iterable[WrittenLog], ours: Iterable[WrittenLog], left_out: frozenset[int]) -> str | None:
    """Return the first difference between the two logs of a group, ignoring the types in `left_out`."""
    theirs, own = _comparable(kafka, left_out), _comparable(ours, left_out)
    if theirs == own:
        return None
    at = next(
        (at for at, pair in enumerate(zip(theirs, own, strict=False)) if pair[0] != pair[1]),
        min(len(theirs), len(own)),
    )
    return (
        f"after {at} records alike Kafka wrote {' '.join(theirs[at : at + 6]) or 'nothing'}, "
        f"Quorate {' '.join(own[at : at + 6]) or 'nothing'}"
    )


def _comparable(records: Iterable[WrittenLog], left_out: frozenset[int]) -> list[str]:
    """Name members by order of appearance, as servers may generate ids.

    Targets of several members are sorted, as each server has an order of its own.
    """
    found: list[str] = []
    numbers: dict[str, int] = {"": 0}
    for is_target, run in groupby(records, lambda record: record.number == MEMBERS_TARGET):
        kept = [one for one in run if one.number not in left_out or (one.is_tombstone and one.number > 6)]
        words = [f"{one.word}({numbers.setdefault(one.whose, len(numbers))})" for one in kept]
        found += sorted(words) if is_target else words
    return [word.removesuffix("(0)") for word in found]


def _left_out(script: Script) -> frozenset[int]:
    if any(step.get("regex") or step.verb in TOPIC_STEPS for step in script.steps):
        return NEVER_BESIDE | TARGETS | {GROUP_EPOCH}
    has_leave = any(step.verb == "leave" for step in script.steps)
    return NEVER_BESIDE | TARGETS if has_leave else NEVER_BESIDE


@dataclass(slots=True)
class Logs:
    """The result of comparing the record logs."""

    decisions: Counter[str] = field(default_factory=Counter)
    """By trigger."""
    groups_beside: int = 0
    records_beside: int = 0
    first_reports: int = 0
    """Records that only ours writes; see `record_logs.is_first_report`."""
    complaints: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"  record logs: {self.records_beside} records of {self.groups_beside} groups beside Kafka's, "
            f"{self.first_reports} first reports of ours left out; "
            f"the order within {self.decisions.total()} decisions of ours: "
            + ", ".join(f"{count} {trigger}" for trigger, count in self.decisions.most_common())
        )


def compare_logs(both: Servers, same: Iterable[Played]) -> Logs:
    """Check the order of all that we wrote, and compare the logs of scripts answered alike with Kafka's."""
    logs = Logs()
    ours = decisions_of_ours(both.our_data)
    for group_id, decisions in ours.items():
        logs.decisions.update(decision.trigger.name for decision in decisions)
        logs.complaints += [f"group {group_id}: {complaint}" for complaint in out_of_order(decisions)]
    kafka = records_of_kafka(both.kafka_data)
    for played in same:
        if played.script.has_settling or played.script.is_mixed or played.script.is_transactional:
            # Who revokes depends on ties; Kafka upgrades members in the order of a hash map, and writes the
            # offsets of a transaction at once, with a marker for its end.
            continue
        theirs = [one for one in kafka.get(played.group_id, ()) if one.at_ms <= played.ended_ms]
        own = [
            one
            for decision in ours.get(played.group_id, ())
            for one in decision.records
            if one.at_ms <= played.ended_ms
        ]
        compared = [one for one in own if not one.is_first_report]
        logs.groups_beside += 1
        logs.records_beside += len(theirs)
        logs.first_reports += len(own) - len(compared)
        complaint = beside(theirs, compared, _left_out(played.script))
        if complaint is not None:
            logs.complaints.append(f"{played.script.name}: {complaint}")
    if logs.groups_beside and not logs.records_beside:
        logs.complaints.append("Kafka's log of offsets was not found")
    return logs
