"""Groups of the classic protocol, which exist only as records."""

from __future__ import annotations

from struct import pack

from records import (
    ClassicMember,
    GroupMetadataKey,
    GroupMetadataValue,
    Record,
)


def classic_group(members: int, *, instance_id: str | None = None) -> Record:
    member = ClassicMember(
        rebalance_timeout_ms=1, session_timeout_ms=1, member_id="old", group_instance_id=instance_id,
        client_id="", client_host="", subscription=b"", assignment=b"",
    )  # fmt: skip
    value = GroupMetadataValue(
        generation=3, current_state_timestamp_ms=0, protocol_type="consumer", protocol="range", leader=None,
        members=(member,) * members,
    )  # fmt: skip
    return Record(GroupMetadataKey(group_id="g"), value)


MINUTE_MS = 60_000
CHECK_MS = 10 * MINUTE_MS


def classic(
    state_ms: int, *topics: str, protocol_type: str = "consumer", subscription: bytes = b""
) -> Record:
    """A record 2, with a member if topics or a subscription are given."""
    if topics:
        subscription = pack(">hi", 1, len(topics)) + b"".join(
            pack(">h", len(topic)) + topic.encode() for topic in topics
        )
    members = ()
    if subscription:
        member = ClassicMember(
            member_id="old", group_instance_id=None, client_id="c", client_host="/h",
            session_timeout_ms=24 * 24 * 60 * MINUTE_MS,
            rebalance_timeout_ms=1, subscription=subscription, assignment=b"",
        )  # fmt: skip
        members = (member,)
    value = GroupMetadataValue(
        generation=3, current_state_timestamp_ms=state_ms, protocol_type=protocol_type,
        protocol="range" if members else None, leader="old" if members else None, members=members,
    )  # fmt: skip
    return Record(GroupMetadataKey(group_id="g"), value)
