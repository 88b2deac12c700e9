"""The bytes that consumers of a classic group exchange through the coordinator, read where they can be."""

from __future__ import annotations

from collections.abc import Sequence

from records import ClassicMember
from wire.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription, decode
from wire.errors import MalformedFrame


def assigned(member: ClassicMember) -> dict[str, set[int]]:
    """The partitions that a member was assigned, by topic.

    Empty if the bytes are not an assignment: they are the client's."""
    found: dict[str, set[int]] = {}
    try:
        assignment = decode(ConsumerProtocolAssignment, member.assignment)
    except MalformedFrame:
        return found
    for one in assignment.assigned_partitions:
        found.setdefault(one.topic, set()).update(one.partitions)
    return found


def subscribed(member: ClassicMember) -> Sequence[str]:
    """The topics that a member wants; empty if the bytes are not a subscription."""
    try:
        return decode(ConsumerProtocolSubscription, member.subscription).topics
    except MalformedFrame:
        return ()
