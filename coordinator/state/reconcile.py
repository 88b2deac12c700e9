"""Reconciliation: the next step of one member from the partitions it owns to its target.

A pure function on sets (Kafka: CurrentAssignmentBuilder). Invariants: a partition is only assigned if no
other member owns it, whether assigned or pending revocation. A member that has partitions to revoke gets no
new ones until it has reported the revocation. Its epoch moves to the target's only when nothing is left to
revoke. So no partition ever has two owners, without any barrier across the group.

A report lists the partitions that a member has taken up, not those it was sent. A report that lists nothing
may come from a member that is about to take up everything in the last reply. So a report only acknowledges a
revocation that the member was told of (`Report`). Kafka accepts every report that lacks the partitions as an
acknowledgement.

Where Kafka changed over time, this follows the newer behaviour: an acknowledgement that leads to further
revocations keeps the epoch (KAFKA-19974); a partition held only by the member's own pending revocation is not
blocked (KAFKA-19449); partitions of topics that the member no longer subscribes to are revoked at once
(KAFKA-19431); and each partition carries the epoch at which it was assigned (KIP-1251). There is one more
difference from Kafka: a heartbeat that would change nothing but the previous epoch writes nothing. So the
previous epoch stays the one from which the member came, and it may repeat its heartbeat until a reply comes.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field
from typing import Final

from coordinator.state.machines import Epoch, Finding, member_transition
from records import MemberState

PartitionEpochs = Mapping[bytes, Mapping[int, int]]
"""Topic id → partition → epoch at which it was assigned to the member."""

Tokens = Mapping[bytes, Mapping[int, int]]
"""Topic id → partition → fencing token: the index of the entry that gave the partition to the member."""

Owned = Mapping[bytes, Collection[int]]
"""Topic id → partitions that the member reports to own."""

Owners = Mapping[bytes, Mapping[int, str]]
"""Topic id → partition → id of the member that owns it, assigned or pending revocation."""


AWAY_EPOCH = -2
"""The epoch of a static member that has left and may come back; see `coordinator.members.statics`."""


@dataclass(frozen=True, slots=True)
class AssignorMetadata:
    """Data of a client-side assignor for one member. The coordinator passes it on unread."""

    error: int = 0
    metadata_version: int = -1
    metadata_bytes: bytes = b""


NO_METADATA = AssignorMetadata()

NOT_REPORTED: Final = -1
"""Previous epoch of a revoking member that had not reported the partitions when the revocation began.

It may never have received them, or be about to take them up. A revoking member's previous epoch is either
this or its member epoch."""


@dataclass(frozen=True, slots=True)
class Current:
    """A member's current assignment.

    `assigned` are the partitions it may use, `pending` those it still has to revoke. `assignor_metadata`
    came with the target of its epoch."""

    state: MemberState
    epoch: int
    previous_epoch: int
    assigned: PartitionEpochs = field(default_factory=dict)
    pending: PartitionEpochs = field(default_factory=dict)
    assignor_metadata: AssignorMetadata = NO_METADATA


@dataclass(frozen=True, slots=True)
class Target:
    """A member's target as of `epoch`.

    `subscribed` holds the ids of the topics that the member subscribes to, `topics` those of all topics that
    the group knows."""

    epoch: int
    partitions: Mapping[bytes, tuple[int, ...]]
    subscribed: Container[bytes]
    topics: Container[bytes]
    assignor_metadata: AssignorMetadata = NO_METADATA


@dataclass(frozen=True, slots=True)
class Report:
    """The partitions that a member's heartbeat reports to own.

    `owned` is None if the heartbeat does not list any."""

    owned: Owned | None = None
    epoch: int = -1
    """Member epoch in the heartbeat: partitions assigned at a newer epoch have not arrived. 0: the member
    joins and owns nothing."""
    before: Owned | None = None
    """The member's previous report; None if this leader has not received one."""
    is_full: bool = False
    """Whether the heartbeat has all fields. Clients send such a heartbeat if the last reply may be lost.
    Otherwise, they list their partitions only after taking up those they were sent."""

    is_told: bool = False
    """Whether this leader's last assignment to the member told it to revoke what is pending."""

    def acknowledges(self, current: Current, topics: Container[bytes]) -> bool:
        """Whether the report acknowledges the revocation.

        It does if the member was told to revoke and no longer has the pending partitions. If the member never
        reported having them, a full heartbeat proves nothing: a member that is about to take them up sends
        the same one. Partitions of a deleted topic cannot be taken up.
        """
        if self.owned is None or self.has_any(current.pending):
            return False
        is_certain = self.epoch == 0 or current.previous_epoch != NOT_REPORTED
        return is_certain or (self.is_told and not self.is_full) or not existing(current.pending, topics)

    def leaves_open(self, before: Current, current: Current, topics: Container[bytes]) -> bool:
        """Whether it remains uncertain, after this report, if the member has revoked the pending partitions.

        It may also never have received them, or be about to take them up. The partitions are then assigned to
        it again. Once it reports them, it can be told to revoke them, and the state is certain."""
        if current.state is not MemberState.UNREVOKED_PARTITIONS or current.previous_epoch != NOT_REPORTED:
            return False
        if not existing(current.pending, topics):
            return False
        if self.owned is None:
            return before.state is current.state and not self.is_told
        return not self.has_any(current.pending)

    def has_shown(self, partitions: PartitionEpochs) -> bool:
        """Whether the member reports all of these partitions, in this and the previous report together."""
        reports = [report for report in (self.owned, self.before) if report is not None]
        return all(
            any(partition in report.get(topic_id, ()) for report in reports)
            for topic_id, epochs in partitions.items()
            for partition in epochs
        )

    def is_rid_of(self, partitions: PartitionEpochs, topics: Container[bytes]) -> bool:
        """Whether a member that was not told to revoke the partitions neither has them nor can take them up.

        This is certain if it joins. Otherwise it is certain for a partition that it listed in its previous
        report and no longer lists, that was assigned to it at an epoch which it has not received, or whose
        topic was deleted."""
        if self.owned is None or self.has_any(partitions):
            return False
        before: Owned = self.before or {}
        return self.epoch == 0 or all(
            epoch > self.epoch or partition in before.get(topic_id, ())
            for topic_id, epochs in existing(partitions, topics).items()
            for partition, epoch in epochs.items()
        )

    def has_any(self, partitions: PartitionEpochs) -> bool:
        """Whether the member reports any of the partitions."""
        owned: Owned = self.owned or {}
        return any(
            partition in owned.get(topic_id, ())
            for topic_id, epochs in partitions.items()
            for partition in epochs
        )


NOTHING_SAID = Report()


def existing(partitions: PartitionEpochs, topics: Container[bytes]) -> PartitionEpochs:
    """The partitions whose topics still exist."""
    return {topic_id: epochs for topic_id, epochs in partitions.items() if topic_id in topics}


def same(one: Owned, other: Owned) -> bool:
    """Whether both contain the same partitions. Neither may have a topic without partitions."""
    return one.keys() == other.keys() and all(
        len(partitions) == len(other[topic_id]) and all(number in other[topic_id] for number in partitions)
        for topic_id, partitions in one.items()
    )


def reconcile(member_id: str, current: Current, target: Target, report: Report, owners: Owners) -> Current:
    """The member's next current assignment; the same object if nothing changes.

    A member in state UNKNOWN must report that it owns nothing; otherwise the caller fences it (KIP-848;
    Kafka's rule for states of newer releases).
    """
    if current.state is MemberState.STABLE and current.epoch == target.epoch:
        if all(topic_id in target.subscribed for topic_id in current.assigned):
            member_transition(current.state, Finding.SETTLED)
            return current
    elif current.state is MemberState.UNREVOKED_PARTITIONS and not report.acknowledges(
        current, target.topics
    ):
        member_transition(current.state, Finding.NOT_ACKED)
        return _while_unrevoked(current, target, report)
    return _next(member_id, current, target, report, owners)


def _while_unrevoked(current: Current, target: Target, report: Report) -> Current:
    """Continue a revocation that is not acknowledged yet.

    Partitions of topics that the member no longer subscribes to become pending too. The previous epoch
    records whether the member has reported all pending partitions."""
    lost = {
        topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in target.subscribed
    }
    was_shown = current.previous_epoch != NOT_REPORTED
    pending = {topic_id: dict(epochs) for topic_id, epochs in current.pending.items()}
    for topic_id, epochs in lost.items():
        pending.setdefault(topic_id, {}).update(epochs)
    is_shown = report.has_shown(existing(lost if was_shown else pending, target.topics))
    if not lost and is_shown == was_shown:
        return current
    kept = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in lost}
    previous = current.epoch if is_shown else NOT_REPORTED
    return Current(current.state, current.epoch, previous, kept, pending, current.assignor_metadata)


def _next(member_id: str, current: Current, target: Target, report: Report, owners: Owners) -> Current:
    keep: dict[bytes, dict[int, int]] = {}
    revoke: dict[bytes, dict[int, int]] = {}
    give: dict[bytes, dict[int, int]] = {}
    blocked = False
    for topic_id in sorted(current.assigned.keys() | target.partitions.keys()):
        has = current.assigned.get(topic_id, {})
        wanted = target.partitions.get(topic_id, ()) if topic_id in target.subscribed else ()
        if len(has) == len(wanted) and all(partition in has for partition in wanted):
            if has:
                keep[topic_id] = dict(has)
            continue
        owner_of = owners.get(topic_id, {})
        for partition in wanted:
            if partition in has:
                keep.setdefault(topic_id, {})[partition] = has[partition]
            elif owner_of.get(partition, member_id) == member_id:
                give.setdefault(topic_id, {})[partition] = target.epoch
            else:
                blocked = True
        for partition in has.keys() - set(wanted):
            revoke.setdefault(topic_id, {})[partition] = has[partition]
    if revoke and current.state is not MemberState.UNKNOWN and not report.is_rid_of(revoke, target.topics):
        finding = Finding.MUST_REVOKE
        is_shown = report.has_shown(existing(revoke, target.topics))
        previous = current.epoch if is_shown else NOT_REPORTED
    else:
        previous = current.epoch
        finding, revoke = (Finding.BLOCKED if blocked else Finding.FREE), {}
        for topic_id, epochs in give.items():
            keep.setdefault(topic_id, {}).update(epochs)
    step = member_transition(current.state, finding)
    source = target if step.epoch is Epoch.TARGET else current
    if (
        (step.to, source.epoch) == (current.state, current.epoch)
        and keep == current.assigned
        and revoke == current.pending
    ):
        return current
    return Current(step.to, source.epoch, previous, keep, revoke, source.assignor_metadata)
