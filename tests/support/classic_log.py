"""The log of the classic group `payments`, scripted entry by entry: the story that its golden texts tell."""

from __future__ import annotations

from records import (
    Arrival,
    Cause,
    ClassicMember,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    Expiry,
    GroupMetadataKey,
    GroupMetadataValue,
    Phases,
    Reason,
    ReasonKind,
    Record,
    Trigger,
)
from tests.support.memory_log import (
    GROUP,
    Writer,
    current,
    gone,
    group_epoch,
    group_topics,
    member,
    target,
    target_epoch,
)
from wire.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitionsByName,
    encode,
)

ANN, BOB, EVE = "app-1-Xk2VtmqySmmk", "app-2-pQ8ZB7TfQbaO", "app-3-m0hE4VSoS9eh"
IDS = {"ann": ANN, "bob": BOB, "eve": EVE}
CLIENTS = {ANN: "app-1", BOB: "app-2", EVE: "app-3"}


def generation(
    number: int,
    owned: dict[str, tuple[int, ...]],
    *,
    group: str = GROUP,
    instances: dict[str, str] | None = None,
) -> Record:
    """Record 2: this generation, with the partitions of `orders` that each member got."""
    members = tuple(
        ClassicMember(
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            member_id=member_id,
            group_instance_id=(instances or {}).get(member_id),
            client_id=CLIENTS.get(member_id, member_id),
            client_host="127.0.0.1",
            subscription=encode(ConsumerProtocolSubscription(topics=["orders"]), 1),
            assignment=encode(
                ConsumerProtocolAssignment(
                    assigned_partitions=[TopicPartitionsByName(topic="orders", partitions=list(numbers))]
                ),
                1,
            ),
        )
        for member_id, numbers in owned.items()
    )
    value = GroupMetadataValue(
        generation=number,
        current_state_timestamp_ms=0,
        protocol_type="consumer",
        protocol="range" if owned else None,
        leader=next(iter(owned), None),
        members=members,
    )
    return Record(GroupMetadataKey(group_id=group), value)


def completed(
    leader: str, *reasons: Reason, expiries: tuple[Expiry, ...] = (), phases: Phases | None = None
) -> Cause:
    """The cause of a generation whose leader sent the assignments."""
    return Cause(
        trigger=Trigger.GENERATION_COMPLETED,
        member_id=leader,
        reasons=tuple(reasons),
        expiries=expiries,
        phases=phases,
    )


def phases(ended_ms: int, joining_ms: int, syncing_ms: int, **arrivals: int) -> Phases:
    """The phases of a rebalance that ended at that time; who joined how long after its begin."""
    began_ms = ended_ms - syncing_ms - joining_ms
    waited_for = tuple(Arrival(IDS[name], began_ms + after_ms) for name, after_ms in arrivals.items())
    return Phases(began_ms, began_ms + joining_ms, waited_for)


def because(kind: ReasonKind, member_id: str, detail: str = "") -> Reason:
    return Reason(kind=kind, member_id=member_id, detail=detail)


def group_log() -> Writer:
    """Ann joins, Bob joins and gets half, orders grows, Eve joins and Bob is late, Eve leaves, Ann dies."""
    log = Writer()
    log.term(1)
    log.after(1_000).append(Cause(trigger=Trigger.MEMBER_JOINED), generation(0, {}))
    log.after(1_000).append(
        completed(ANN, because(ReasonKind.MEMBER_JOINED, ANN), phases=phases(log.now_ms, 990, 10)),
        generation(1, {ANN: (0, 1, 2, 3, 4, 5)}),
    )
    log.after(3_000).append(
        completed(
            ANN, because(ReasonKind.MEMBER_JOINED, BOB), phases=phases(log.now_ms, 2_100, 40, ann=2_100)
        ),
        generation(2, {ANN: (0, 1, 2), BOB: (3, 4, 5)}),
    )
    grown = because(ReasonKind.LEADER_REJOINED, ANN, "cached metadata has changed")
    log.after(37_000).append(
        completed(ANN, grown, phases=phases(log.now_ms, 480, 20, bob=480)),
        generation(3, {ANN: (0, 1, 2, 3), BOB: (4, 5, 6, 7)}),
    )
    log.after(80_000)
    late = Expiry(
        member_id=BOB,
        timeout_ms=60_000,
        armed_ms=log.now_ms - 60_030,
        last_heartbeat_ms=-1,
        deadline_ms=log.now_ms - 30,
    )
    log.append(
        completed(
            ANN,
            because(ReasonKind.MEMBER_JOINED, EVE),
            because(ReasonKind.JOIN_TIMED_OUT, BOB),
            expiries=(late,),
            phases=phases(log.now_ms, 60_000, 30, ann=900),
        ),
        generation(4, {ANN: (0, 1, 2, 3), EVE: (4, 5, 6, 7)}),
    )
    left = because(ReasonKind.MEMBER_LEFT, EVE, "the consumer is being closed")
    log.after(5_000).append(
        completed(ANN, left, phases=phases(log.now_ms, 700, 5, ann=700)),
        generation(5, {ANN: (0, 1, 2, 3, 4, 5, 6, 7)}),
    )
    expiry = Expiry(
        member_id=ANN,
        timeout_ms=10_000,
        armed_ms=log.now_ms,
        last_heartbeat_ms=log.now_ms,
        deadline_ms=log.now_ms + 10_000,
    )
    expired = because(ReasonKind.SESSION_EXPIRED, ANN)
    log.after(10_000).append(
        Cause(trigger=Trigger.SESSION_EXPIRED, reasons=(expired,), expiries=(expiry,)), generation(6, {})
    )
    return log


def converted(log: Writer) -> Writer:
    """Go on with an empty classic group: a consumer member joins and leaves, then a classic member joins."""
    joined = Cause(trigger=Trigger.MEMBER_JOINED, member_id=EVE)
    log.after(1_000).append(
        joined,
        Record(GroupMetadataKey(group_id=GROUP), None),
        member(EVE, "app-3"),
        group_topics(8, 3),
        group_epoch(7),
        target(EVE, *range(8)),
        target_epoch(7),
        current(EVE, 7, tuple(range(8))),
    )
    log.after(1_000).append(
        Cause(trigger=Trigger.MEMBER_LEFT, member_id=EVE), *gone(EVE), group_epoch(8), target_epoch(8)
    )
    keys = (
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupMetadataKey,
    )
    log.after(1_000).append(
        Cause(trigger=Trigger.MEMBER_JOINED),
        *(Record(key(group_id=GROUP), None) for key in keys),
        generation(0, {}),
    )
    log.after(1_000).append(
        completed(ANN, because(ReasonKind.MEMBER_JOINED, ANN)), generation(1, {ANN: (0, 1)})
    )
    return log
