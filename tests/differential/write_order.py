"""The order of records within a decision (section B.2 of the protocol), and the two logs beside each other.

`ORDER` says for each trigger of ours which types may follow which. `beside` compares what both sides wrote
for one group, with what is known to be different taken out: the subscribed topics (4), which Kafka no longer
writes, and targets (7 and 6), which ours computes with the change and Kafka with the next heartbeat.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from records import Trigger
from tests.differential.play import Played
from tests.differential.record_logs import Decision, Written, decisions_of_ours, records_of_kafka
from tests.differential.run import Servers

TARGET: Final = r"(7 )*6 "
JOIN: Final = rf"(~8 ~7 ~5 5 7 8 )?(5 )?(~16 )*(4 )?(3 )?({TARGET})?(8 )?"
"""Join or update by heartbeat: [static replacement], [5], [~16 of what nobody subscribes by], [4], [3],
[7 … 6], [8]. A static member that comes back under its own id needs no replacement, just its 8."""

LEAVE: Final = rf"~8 ~7 ~5 (~16 )*(4 )?3 ({TARGET})?"
CATALOG: Final = rf"(~1 )*(4 )?(3 )?({TARGET})?"
DELETED: Final = r"(~1 )*(~8 )*(~7 )*(~6 )?(~5 )*(~16 )*(~4 )?(~3 )?"

ORDER: Final = {
    Trigger.MEMBER_JOINED: JOIN,
    Trigger.MEMBER_REJOINED: JOIN,
    Trigger.MEMBER_UPDATED: JOIN,
    Trigger.MEMBER_ACKED: JOIN,
    Trigger.MEMBER_REPLACED: JOIN,
    Trigger.HEARTBEAT: JOIN,
    Trigger.MEMBER_AWAY: r"8 ",
    Trigger.MEMBER_LEFT: LEAVE,
    Trigger.SESSION_EXPIRED: LEAVE,
    Trigger.REBALANCE_EXPIRED: LEAVE,
    Trigger.REGEX_RESOLVED: rf"(16 )+(4 )?(3 )?({TARGET})?",
    Trigger.TARGET_COMPUTED: TARGET,
    Trigger.OFFSETS_COMMITTED: r"(1 )+",
    Trigger.OFFSETS_DELETED: r"(~1 )+",
    Trigger.GROUP_DELETED: DELETED,
    Trigger.TOPIC_CREATED: CATALOG,
    Trigger.TOPIC_GROWN: CATALOG,
    Trigger.TOPIC_DELETED: CATALOG,
    Trigger.CATALOG_CHANGED: CATALOG,
    Trigger.READY_CHECK: CATALOG,
    Trigger.CONFIG_CHANGED: TARGET,
}

NOT_BESIDE: Final = frozenset({4, 6, 7})


def out_of_order(decisions: Iterable[Decision]) -> Iterator[str]:
    """Decisions of ours that B.2 does not know."""
    for decision in decisions:
        allowed = ORDER.get(Trigger(decision.trigger))
        if allowed is None or not re.fullmatch(allowed, decision.words + " "):
            yield f"{Trigger(decision.trigger).name} wrote {decision.words}"


def beside(kafka: Iterable[Written], ours: Iterable[Decision]) -> str | None:
    """Where the two logs of a group are not the same, but for 4, 6 and 7."""
    theirs = _comparable(kafka)
    own = _comparable(record for decision in ours for record in decision.records)
    if theirs == own:
        return None
    same = next((at for at, pair in enumerate(zip(theirs, own, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(theirs), len(own)) if same is None else same
    return (
        f"after {at} records alike Kafka wrote {_words(theirs[at : at + 6])}, "
        f"Quorate {_words(own[at : at + 6])}"
    )


def _comparable(records: Iterable[Written]) -> list[Written]:
    return [record for record in records if record.is_tombstone or record.number not in NOT_BESIDE]


def _words(records: Iterable[Written]) -> str:
    return " ".join(map(str, records)) or "nothing"


@dataclass(slots=True)
class Logs:
    """What came of comparing them."""

    decisions: int = 0
    groups_beside: int = 0
    records_beside: int = 0
    complaints: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"  record logs: {self.decisions} decisions in the order of B.2 or complained of; "
            f"{self.records_beside} records of {self.groups_beside} groups beside Kafka's"
        )


def compare_logs(both: Servers, same: Iterable[Played]) -> Logs:
    """All that ours wrote, and beside Kafka's what was written by scripts that were answered alike."""
    logs = Logs()
    ours = decisions_of_ours(both.our_data)
    for group_id, decisions in ours.items():
        logs.decisions += len(decisions)
        logs.complaints += [f"group {group_id}: {complaint}" for complaint in out_of_order(decisions)]
    kafka = records_of_kafka(both.kafka_data)
    for played in same:
        if played.script.has_settling:
            continue  # who revokes what hangs on ties
        theirs, own = kafka.get(played.group_id, []), ours.get(played.group_id, [])
        logs.groups_beside += 1
        logs.records_beside += len(theirs)
        complaint = beside(theirs, own)
        if complaint is not None:
            logs.complaints.append(f"{played.script.name}: {complaint}")
    return logs
