"""The simulated surroundings of the coordinator in a replay: bounds, settings, and the requests of members.

Nothing in it may influence a decision: no timer fires by itself, nothing is too large, and a request reports
what the record says of its member.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from coordinator.limits import GroupSettings, Limits
from coordinator.state.model import Member
from records import ConsumerGroupMemberMetadataValue
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions

NEVER_MS: Final = 10**13
"""Three centuries, for timers that must not fire by themselves."""

UNBOUNDED: Final = 1 << 62

LIMITS: Final = Limits(
    assign_inline_cost_max=UNBOUNDED,
    resolve_inline_cost_max=UNBOUNDED,
    target_bytes_max=UNBOUNDED,
    install_records_max=UNBOUNDED,
    regex_pause_ms=0,
)
"""No event loop has to be kept responsive, so everything is computed in place."""


@dataclass(slots=True)
class ReplayHarness:
    """The settings view of the one group, constant except for the interval that defers a target."""

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
    def of(cls, assignors: tuple[str, ...]) -> ReplayHarness:
        """With these assignors configured; the first is the default."""
        settings = GroupSettings(
            session_timeout_ms=NEVER_MS,
            offsets_retention_check_interval_ms=NEVER_MS,
            regex_refresh_interval_ms=NEVER_MS,
            max_size=UNBOUNDED,
            assignors=assignors,
            rack_assignors=frozenset(assignors),  # racks come from record 4, if it has any
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
    """A heartbeat of the member. With epoch 0 it joins; ``is_full`` sends all of its metadata.

    The rebalance timeout is a process's for life. It is left out beside partitions that a member owns: with
    it, the heartbeat would be one after a lost answer, which acknowledges less (`Report.acknowledges`)."""
    joins = epoch == 0
    is_full |= joins
    says_timeout = joins or (is_full and owned is None)
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id if is_full else None,
        rebalance_timeout_ms=max(metadata.rebalance_timeout_ms, 0) if says_timeout else -1,
        subscribed_topic_names=list(metadata.subscribed_topic_names) if is_full else None,
        subscribed_topic_regex=(metadata.subscribed_topic_regex or "") if is_full else None,
        server_assignor=vote if is_full else None,
        topic_partitions=[] if joins else owned,
    )


def had_by(member: Member) -> dict[bytes, set[int]]:
    """The partitions a member reported before giving any up; the log only has acknowledgements."""
    had: dict[bytes, set[int]] = {}
    for epochs_of in (member.current.assigned, member.current.pending):
        for topic_id, epochs in epochs_of.items():
            had.setdefault(topic_id, set()).update(epochs)
    return had


def owned_by(member: Member) -> list[TopicPartitions]:
    """The partitions that a member reports after giving up those it had to revoke."""
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
        for topic_id, epochs in member.current.assigned.items()
    ]
