"""Reconciliation: the next step of one member from what it owns to what its target says.

A pure function on sets (Kafka: CurrentAssignmentBuilder). What must stay true: a partition is given only when
nobody else owns it, assigned or pending revocation; a member that has to give something up gets nothing new
until it reported that it did; the epoch moves to the target's only when nothing is left to give up. With
that, no partition ever has two owners, without any barrier across the group.

A report says what a member has taken up, not what it was sent: one that lists nothing may come from a member
that is about to take up all that the last reply brought. So a report acknowledges only a revocation that was
told (`Report`). Kafka takes every report that lacks the partitions for the acknowledgement.

Where Kafka changed over time, the newer behaviour is here: an acknowledgement that leads to further
revocations keeps the epoch (KAFKA-19974), a partition that only this member's own pending revocation holds is
not blocked (KAFKA-19449), partitions of topics that the member no longer subscribes to are taken at once
(KAFKA-19431), and each partition carries the epoch at which it was assigned (KIP-1251). One difference is
ours: a heartbeat that would change nothing but the previous epoch writes nothing, so that a reply may be
lost any number of times.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field
from typing import Final

from coordinator.state.machines import Epoch, Finding, member_transition
from records import MemberState

PartitionEpochs = Mapping[bytes, Mapping[int, int]]
"""Topic id → partition → epoch at which it was assigned to the member."""

Owned = Mapping[bytes, Collection[int]]
"""Topic id → partitions that the member reports to own."""

Owners = Mapping[bytes, Mapping[int, str]]
"""Topic id → partition → id of the member that owns it, assigned or pending revocation."""


AWAY_EPOCH = -2
"""The epoch of a static member that has left and may come back; see `coordinator.members.statics`."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a client-side assignor tells a member beside its partitions; the coordinator only carries it."""

    error: int = 0
    metadata_version: int = -1
    metadata_bytes: bytes = b""


NOTHING_TOLD = Told()

NOT_REPORTED: Final = -1
"""The previous epoch of a member that is to give up partitions which it had not reported when it was told: it
may never have heard of them, or be about to take them up. There is no other previous epoch in this state."""


@dataclass(frozen=True, slots=True)
class Current:
    """A member's current assignment. `assigned` is its to use, `pending` what it still has to give up, `told`
    came with the target of its epoch."""

    state: MemberState
    epoch: int
    previous_epoch: int
    assigned: PartitionEpochs = field(default_factory=dict)
    pending: PartitionEpochs = field(default_factory=dict)
    told: Told = NOTHING_TOLD


@dataclass(frozen=True, slots=True)
class Target:
    """What the member is to own, as of `epoch`; `subscribed` holds the ids of the topics it subscribes to,
    `topics` those of all that the group has."""

    epoch: int
    partitions: Mapping[bytes, tuple[int, ...]]
    subscribed: Container[bytes]
    topics: Container[bytes]
    told: Told = NOTHING_TOLD


@dataclass(frozen=True, slots=True)
class Report:
    """A heartbeat's report of what its member owns. `owned` is None when it does not say."""

    owned: Owned | None = None
    epoch: int = -1
    """The member epoch that it carries: what was given at a newer one has not arrived. 0: the member joins,
    and owns nothing."""
    before: Owned | None = None
    """The member's report before this one; None when this leader has not heard any."""
    is_full: bool = False
    """The heartbeat says everything, as clients do when the last reply may be lost. Otherwise they say what
    they own only when they have taken up what they were sent."""

    is_told: bool = False
    """This leader has told the member to give up what is pending, and nothing else since."""

    def acknowledges(self, current: Current, topics: Container[bytes]) -> bool:
        """Whether the member says, having been told, that it has given up what is pending.

        If it never reported that it had it, a full heartbeat proves nothing: it is the same from a member
        that is about to take it up. Of a topic that is gone nothing can be taken up.
        """
        if self.owned is None or self.has_any(current.pending):
            return False
        is_certain = self.epoch == 0 or current.previous_epoch != NOT_REPORTED
        return is_certain or (self.is_told and not self.is_full) or not existing(current.pending, topics)

    def leaves_open(self, before: Current, current: Current, topics: Container[bytes]) -> bool:
        """Whether nobody can tell, after this report, if the member has given up what is pending, or never
        heard of it, or is about to take it up. It is then given the same again; once it reports that it has
        it, it can be told to give it up, and everything is certain."""
        if current.state is not MemberState.UNREVOKED_PARTITIONS or current.previous_epoch != NOT_REPORTED:
            return False
        if not existing(current.pending, topics):
            return False
        if self.owned is None:
            return before.state is current.state and not self.is_told
        return not self.has_any(current.pending)

    def has_shown(self, partitions: PartitionEpochs) -> bool:
        """Whether the member reports all of these, or did in its report before."""
        reports = [report for report in (self.owned, self.before) if report is not None]
        return all(
            any(partition in report.get(topic_id, ()) for report in reports)
            for topic_id, epochs in partitions.items()
            for partition in epochs
        )

    def is_rid_of(self, partitions: PartitionEpochs, topics: Container[bytes]) -> bool:
        """Whether the member, not yet told, cannot have the partitions, nor come to have them: it had them in
        its report before this one, or has not heard that they were given to it, or their topic is gone."""
        if self.owned is None or self.has_any(partitions):
            return False
        before: Owned = self.before or {}
        return self.epoch == 0 or all(
            epoch > self.epoch or partition in before.get(topic_id, ())
            for topic_id, epochs in existing(partitions, topics).items()
            for partition, epoch in epochs.items()
        )

    def has_any(self, partitions: PartitionEpochs) -> bool:
        """Whether the member reports one of the partitions."""
        owned: Owned = self.owned or {}
        return any(
            partition in owned.get(topic_id, ())
            for topic_id, epochs in partitions.items()
            for partition in epochs
        )


NOTHING_SAID = Report()


def existing(partitions: PartitionEpochs, topics: Container[bytes]) -> PartitionEpochs:
    """The partitions of topics that there are."""
    return {topic_id: epochs for topic_id, epochs in partitions.items() if topic_id in topics}


def same(one: Owned, other: Owned) -> bool:
    """Whether these are the same partitions; neither has a topic without any."""
    return one.keys() == other.keys() and all(
        len(partitions) == len(other[topic_id]) and all(number in other[topic_id] for number in partitions)
        for topic_id, partitions in one.items()
    )


def reconcile(member_id: str, current: Current, target: Target, report: Report, owners: Owners) -> Current:
    """The member's next current assignment; the same object when nothing changes.

    An UNKNOWN state needs a report of nothing; the caller fences the member otherwise (KIP-848; Kafka's rule
    for states of newer releases).
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
    """A revocation is under way. What is no longer subscribed to joins what is pending, and it is noted when
    the member shows that it has all of that."""
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
    return Current(current.state, current.epoch, previous, kept, pending, current.told)


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
    epoch, told = (target.epoch, target.told) if step.epoch is Epoch.TARGET else (current.epoch, current.told)
    if (
        (step.to, epoch) == (current.state, current.epoch)
        and keep == current.assigned
        and revoke == current.pending
    ):
        return current
    return Current(step.to, epoch, previous, keep, revoke, told)
