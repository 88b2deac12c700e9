"""The fields of keys, values and causes that columns show; both decoders read them by this table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from history.state.embedded import assigned, subscribed
from history.words import reason_name, state_name, trigger_name
from quorate.spark.schema import micros
from records import ClassicMember, Phases, RecordType, TopicPartitions
from records.cause import Reason
from records.ids import topic_id_text
from records.layouts import Layout, layout_of


@dataclass(frozen=True, slots=True)
class ShownField:
    """The field of a key, value or cause that a column shows, and the value that stands for null."""

    column: str
    field: str
    none: int | str | None = None
    words: Callable[[int], str] | None = None
    """The name of a number, for a field shown by name."""
    each: Layout | None = None
    """The layout of each item of an array; the first field of each is shown."""
    load: Callable[[Any], Any] | None = None
    """For other nested fields: converts what the layout loads to what Arrow takes."""

    def of(self, decoded: object) -> Any:
        """The value that the column shows of a decoded key, value or cause."""
        found = getattr(decoded, self.field)
        if found == self.none:
            return None
        if self.words is None:
            return found if self.load is None else self.load(found)
        if self.each is None:
            return self.words(found)
        first = self.each.columns[0].name
        return [self.words(getattr(item, first)) for item in found]


def partitions(of: tuple[TopicPartitions, ...]) -> list[dict[str, Any]]:
    return [{"topic_id": topic_id_text(one.topic_id), "partitions": list(one.partitions)} for one in of]


def classic_members(of: tuple[ClassicMember, ...]) -> str:
    """The members of a generation as JSON, with topics and partitions as consumers name them."""
    return json.dumps(
        [
            {
                "member_id": one.member_id,
                "instance_id": one.group_instance_id,
                "client_id": one.client_id,
                "client_host": one.client_host,
                "topics": sorted(set(subscribed(one))),
                "assigned": {topic: sorted(numbers) for topic, numbers in sorted(assigned(one).items())},
            }
            for one in of
        ],
        separators=(",", ":"),
    )


def join_began_us(of: Phases | None) -> int | None:
    return None if of is None else micros(of.began_ms)


VALUES: Mapping[int, tuple[ShownField, ...]] = {
    RecordType.PENDING_OFFSET: (
        ShownField("offset", "offset"),
        ShownField("leader_epoch", "leader_epoch", none=-1),
        ShownField("metadata", "metadata", none=""),
    ),
    RecordType.GROUP_METADATA: (
        ShownField("epoch", "generation"),
        ShownField("protocol_type", "protocol_type", none=""),
        ShownField("members", "members", load=classic_members),
    ),
    RecordType.OFFSET_COMMIT: (
        ShownField("offset", "offset"),
        ShownField("leader_epoch", "leader_epoch", none=-1),
        ShownField("metadata", "metadata", none=""),
    ),
    RecordType.CONSUMER_GROUP_METADATA: (ShownField("epoch", "epoch"),),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: (ShownField("epoch", "assignment_epoch"),),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: (
        ShownField("epoch", "assignment_epoch", none=-1),
        ShownField("assigned", "topic_partitions", load=partitions),
    ),
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: (
        ShownField("epoch", "member_epoch"),
        ShownField("previous_epoch", "previous_member_epoch"),
        ShownField("member_state", "state", words=state_name),
        ShownField("assigned", "assigned_partitions", load=partitions),
        ShownField("pending", "partitions_pending_revocation", load=partitions),
    ),
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: (
        ShownField("client_id", "client_id"),
        ShownField("client_host", "client_host"),
        ShownField("instance_id", "instance_id"),
    ),
}
CAUSES = (
    ShownField("trigger", "trigger", words=trigger_name),
    ShownField("reasons", "reasons", each=layout_of(Reason), words=reason_name),
    ShownField("cause_member_id", "member_id", none=""),
    ShownField("cause_member_epoch", "member_epoch", none=-1),
    ShownField("principal", "principal", none=""),
    ShownField("address", "address", none=""),
    ShownField("join_began_time", "phases", load=join_began_us),
)
KEYS = (
    ShownField("group_id", "group_id"),
    ShownField("member_id", "member_id"),
    ShownField("topic", "topic", none=""),
    ShownField("topic", "name"),
    ShownField("partition", "partition"),
    ShownField("producer_id", "producer_id"),
)
"""Columns of keys; a type's layout decides which of them it has."""

KEY_COLUMNS = frozenset(one.column for one in KEYS)
VALUE_COLUMNS = frozenset(one.column for fields in VALUES.values() for one in fields)
CAUSE_COLUMNS = frozenset(one.column for one in CAUSES)
