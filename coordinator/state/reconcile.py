"""Reconciliation: the next step of one member from what it owns to what its target says.

A pure function on sets (Kafka: CurrentAssignmentBuilder). What must stay true: a partition is given only when
nobody else owns it, assigned or pending revocation; a member that has to give something up gets nothing new
until it reported that it did; the epoch moves to the target's only when nothing is left to give up. With
that, no partition ever has two owners, without any barrier across the group.

Where Kafka changed over time, the newer behaviour is here: an acknowledgement that leads to further
revocations keeps the epoch (KAFKA-19974), a partition that only this member's own pending revocation holds is
not blocked (KAFKA-19449), partitions of topics that the member no longer subscribes to are taken at once
(KAFKA-19431), and each partition carries the epoch at which it was assigned (KIP-1251). One difference is
ours: a heartbeat that would change nothing but the previous epoch writes nothing, so that a reply may be
lost any number of times.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from coordinator.state.machines import Epoch, Finding, Transition, member_transition
from records import MemberState

PartitionEpochs = Mapping[bytes, Mapping[int, int]]
"""Topic id → partition → epoch at which it was assigned to the member."""

Owned = Mapping[bytes, Container[int]]
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
    """What the member is to own, as of `epoch`; `subscribed` holds the ids of the topics it subscribes to."""

    epoch: int
    partitions: Mapping[bytes, tuple[int, ...]]
    subscribed: Container[bytes]
    told: Told = NOTHING_TOLD


def reconcile(
    member_id: str, current: Current, target: Target, owned: Owned | None, owners: Owners
) -> Current:
    """The member's next current assignment; the same object when nothing changes.

    `owned` is None when the member did not say what it owns. An UNKNOWN state needs `owned` to be empty;
    the caller fences the member otherwise (KIP-848; Kafka's rule for states of newer releases).
    """
    if current.state is MemberState.STABLE and current.epoch == target.epoch:
        if all(topic_id in target.subscribed for topic_id in current.assigned):
            member_transition(current.state, Finding.SETTLED)
            return current
    elif current.state is MemberState.UNREVOKED_PARTITIONS and still_owns(owned, current.pending):
        step = member_transition(current.state, Finding.NOT_ACKED)
        return _give_up_unsubscribed(current, target, step)
    return _next(member_id, current, target, owned, owners)


def still_owns(owned: Owned | None, partitions: PartitionEpochs) -> bool:
    """Whether the member may still use one of the partitions, by what it reports; no report counts as yes."""
    if owned is None:
        return True
    nothing: Container[int] = ()
    return any(
        partition in owned.get(topic_id, nothing)
        for topic_id, epochs in partitions.items()
        for partition in epochs
    )


def _give_up_unsubscribed(current: Current, target: Target, step: Transition) -> Current:
    """While a revocation is under way, what is no longer subscribed to joins what is pending."""
    lost = {
        topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in target.subscribed
    }
    if not lost:
        return current
    pending = {topic_id: dict(epochs) for topic_id, epochs in current.pending.items()}
    for topic_id, epochs in lost.items():
        pending.setdefault(topic_id, {}).update(epochs)
    kept = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in lost}
    return Current(step.to, current.epoch, current.epoch, kept, pending, current.told)


def _next(member_id: str, current: Current, target: Target, owned: Owned | None, owners: Owners) -> Current:
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
    if revoke and still_owns(owned, revoke):
        finding = Finding.MUST_REVOKE
    else:
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
    return Current(step.to, epoch, current.epoch, keep, revoke, told)
