"""What a replay makes up around the coordinator: bounds, settings, and the requests of members.

Nothing in it may decide anything: no timer fires by itself, nothing is too large, and a request says what its
member says of itself in the record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from coordinator.limits import GroupSettings, Limits
from coordinator.state.model import Member
from records import ConsumerGroupMemberMetadataValue
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions

NEVER_MS: Final = 10**13
"""Three centuries: of timers that are not to fire by themselves."""

UNBOUNDED: Final = 1 << 62

LIMITS: Final = Limits(
    assign_inline_cost_max=UNBOUNDED,
    resolve_inline_cost_max=UNBOUNDED,
    target_bytes_max=UNBOUNDED,
    install_records_max=UNBOUNDED,
    regex_pause_ms=0,
)
"""There is no loop to be kept free: everything is done in place."""


@dataclass(slots=True)
class Surroundings:
    """The settings view of the one group: the same for good, but for the interval that holds a target
    back."""

    open: GroupSettings
    held: GroupSettings
    is_held: bool = False
    version: int = 1

    @property
    def defaults(self) -> GroupSettings:
        return self.open

    def for_group(self, group_id: str) -> GroupSettings:
        return self.held if self.is_held else self.open

    @classmethod
    def of(cls, assignors: tuple[str, ...]) -> Surroundings:
        """With these assignors configured, the first of them the default."""
        settings = GroupSettings(
            session_timeout_ms=NEVER_MS,
            offsets_retention_check_interval_ms=NEVER_MS,
            regex_refresh_interval_ms=NEVER_MS,
            max_size=UNBOUNDED,
            assignors=assignors,
            rack_assignors=frozenset(assignors),  # record 4 tells whether one asked: racks come from there
        )
        return cls(settings, replace(settings, assignment_interval_ms=NEVER_MS))


def heartbeat_request(
    group_id: str,
    member_id: str,
    epoch: int,
    metadata: ConsumerGroupMemberMetadataValue,
    *,
    vote: str | None,
    is_full: bool,
    owned: list[TopicPartitions] | None,
) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat of the member; with epoch 0 it joins, and `is_full` says all of itself."""
    joins = epoch == 0
    is_full |= joins
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id if is_full else None,
        rebalance_timeout_ms=max(metadata.rebalance_timeout_ms, 0) if is_full else -1,
        subscribed_topic_names=list(metadata.subscribed_topic_names) if is_full else None,
        subscribed_topic_regex=(metadata.subscribed_topic_regex or "") if is_full else None,
        server_assignor=vote if is_full else None,
        topic_partitions=[] if joins else owned,
    )


def had_by(member: Member) -> dict[bytes, set[int]]:
    """A member's report before it gave something up; the log has acknowledgements only."""
    had: dict[bytes, set[int]] = {}
    for epochs_of in (member.current.assigned, member.current.pending):
        for topic_id, epochs in epochs_of.items():
            had.setdefault(topic_id, set()).update(epochs)
    return had


def owned_by(member: Member) -> list[TopicPartitions]:
    """What a member reports that gave up what it had to."""
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
        for topic_id, epochs in member.current.assigned.items()
    ]
