"""The log of the group `payments`, scripted entry by entry: the story that the golden texts tell."""

from __future__ import annotations

from records import Cause, Expiry, MemberState, Reason, ReasonKind, Ref, Trigger
from records.ids import METADATA_SHARD
from tests.support.memory_log import (
    NOON_MS,
    ORDERS,
    Writer,
    commit,
    current,
    gone,
    group_epoch,
    group_topics,
    member,
    orders,
    target,
    target_epoch,
)

ANN, BOB, EVE = "Xk2VtmqySmmkHkQ1hNLg7A", "pQ8ZB7TfQbaOQz2wCUDBXg", "m0hE4VSoS9ehc5hC9LmTWQ"


def joined(member_id: str, *, refs: tuple[Ref, ...] = ()) -> Cause:
    reason = Reason(kind=ReasonKind.MEMBER_JOINED, member_id=member_id)
    return Cause(trigger=Trigger.MEMBER_JOINED, member_id=member_id, reasons=(reason,), refs=refs)


def metadata_log() -> Writer:
    """orders is created with 6 partitions and grows to 8 at index 3, 40 s into the story."""
    log = Writer()
    log.term(1)
    log.topic("orders", ORDERS, 6, Trigger.TOPIC_CREATED)
    log.after(40_000).topic("orders", ORDERS, 8, Trigger.TOPIC_GROWN)
    return log


def group_log() -> Writer:
    """Ann joins, Bob joins and gets half, the node restarts, orders grows, Bob is killed, Ann leaves."""
    log = Writer()
    log.term(1)
    log.after(1_000).append(
        joined(ANN),
        member(ANN, "app-1"),
        group_topics(6, 2),
        group_epoch(1),
        target(ANN, 0, 1, 2, 3, 4, 5),
        target_epoch(1),
        current(ANN, 1, (0, 1, 2, 3, 4, 5)),
    )
    log.after(1_000).append(
        Cause(trigger=Trigger.OFFSETS_COMMITTED, member_id=ANN), commit(3, 17), commit(4, 5)
    )
    log.after(3_000).append(
        joined(BOB),
        member(BOB, "app-2"),
        group_epoch(2),
        target(ANN, 0, 1, 2),
        target(BOB, 3, 4, 5),
        target_epoch(2),
        current(BOB, 2, (), state=MemberState.UNRELEASED_PARTITIONS),
    )
    log.after(150).append(
        Cause(trigger=Trigger.HEARTBEAT, member_id=ANN),
        current(ANN, 1, (0, 1, 2), (3, 4, 5), MemberState.UNREVOKED_PARTITIONS, previous=1),
    )
    log.after(512).append(
        Cause(trigger=Trigger.MEMBER_ACKED, member_id=ANN, member_epoch=1, owned=orders(0, 1, 2)),
        current(ANN, 2, (0, 1, 2), previous=1),
    )
    log.after(338).append(
        Cause(trigger=Trigger.HEARTBEAT, member_id=BOB), current(BOB, 2, (3, 4, 5), previous=2)
    )
    log.after(20_000).term(2)
    _growth_expiry_and_end(log)
    assert log.now_ms > NOON_MS
    return log


def _growth_expiry_and_end(log: Writer) -> None:
    log.after(14_500)
    growth = Reason(kind=ReasonKind.TOPIC_GROWN, topic="orders")
    log.append(
        Cause(trigger=Trigger.CATALOG_CHANGED, reasons=(growth,), refs=(Ref(shard=METADATA_SHARD, index=3),)),
        group_topics(8, 3),
        group_epoch(3),
        target(ANN, 0, 1, 2, 6),
        target(BOB, 3, 4, 5, 7),
        target_epoch(3),
    )
    log.after(400).append(
        Cause(trigger=Trigger.HEARTBEAT, member_id=ANN), current(ANN, 3, (0, 1, 2, 6), previous=2)
    )
    log.after(2_600)
    expiry = Expiry(
        member_id=BOB,
        timeout_ms=3_000,
        armed_ms=log.now_ms - 3_000,
        last_heartbeat_ms=log.now_ms - 3_000,
        deadline_ms=log.now_ms,
    )
    expired = Reason(kind=ReasonKind.SESSION_EXPIRED, member_id=BOB)
    log.append(
        Cause(trigger=Trigger.SESSION_EXPIRED, member_id=BOB, reasons=(expired,), expiries=(expiry,)),
        *gone(BOB),
        group_epoch(4),
        target(ANN, 0, 1, 2, 3, 4, 5, 6, 7),
        target_epoch(4),
    )
    log.after(300).append(
        Cause(trigger=Trigger.HEARTBEAT, member_id=ANN),
        current(ANN, 4, (0, 1, 2, 3, 4, 5, 6, 7), previous=3),
    )
    log.after(10_000).append(
        Cause(
            trigger=Trigger.MEMBER_LEFT,
            member_id=ANN,
            reasons=(Reason(kind=ReasonKind.MEMBER_LEFT, member_id=ANN),),
        ),
        *gone(ANN),
        group_epoch(5),
        target_epoch(5),
    )
