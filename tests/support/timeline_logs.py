"""Logs of groups for timelines and pages: made by a real node in virtual time, small and large."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from history.facts.group import facts_of
from history.facts.rows import (
    EpochRow,
    GroupFinding,
    GroupRows,
    MemberProgress,
    MemberSession,
    Moved,
    OwnershipSpan,
    SessionEnd,
    Severity,
    SpanKind,
    TopicPartition,
)
from history.reading.opening import open_node
from records import Cause, Reason, ReasonKind, Trigger
from tests.support.disk_node import DiskNode

BILLING, ADS = "billing", "ads"
HOSTILE = "</script><img src=x onerror=\"document.title='taken'\"><!--"


def billing_log(path: Path) -> Path:
    """Three members: two join the first, a topic grows, the static one goes and comes back, one dies, the
    node is killed and started, the dead one returns, a long silence, one leaves.
    """
    node = DiskNode(str(path), num_shards=1)
    node.create_topic("orders", 12)
    node.create_topic("payments-eu", 6)
    topics = ("orders", "payments-eu")
    first = node.member(BILLING, "app-1", *topics).join()
    node.pass_ms(2_000, first)
    second = node.member(BILLING, "app-2", *topics).join()
    node.pass_ms(3_000, first, second)
    third = node.member(BILLING, "app-3", *topics)
    third.instance_id = "pod-3"
    third.join()
    node.pass_ms(22_500, first, second, third)
    node.grow_topic("orders", 16)
    node.pass_ms(4_000, first, second, third)
    third.leave(for_good=False)
    node.pass_ms(1_500, first, second)
    third.join()
    node.pass_ms(6_000, first, second, third)
    node.pass_ms(5_000, first, third)
    node.crash()
    node.host.advance(700)
    node.start()
    node.pass_ms(4_000, first, third)
    second.join()
    node.pass_ms(128_000, first, second, third)
    first.leave()
    node.pass_ms(9_000, second, third)
    node.stop()
    return path


def ads_log(path: Path, *, members: int, partitions: int) -> Path:
    """Members join in bursts, then some leave or die one after another and others come."""
    node = DiskNode(str(path), num_shards=1)
    node.create_topic("clicks", partitions)
    alive = []
    for number in range(members):
        alive.append(node.member(ADS, f"worker-{number:03}", "clicks").join())
        node.host.advance(20)
        if number % 50 == 49:
            node.pass_ms(1_500, *alive)
    node.pass_ms(5_000, *alive)
    for number in range(4):
        gone = alive.pop(number * 3)
        if number % 2:
            gone.leave()
        node.pass_ms(5_000, *alive)
        alive.append(node.member(ADS, gone.client_id, "clicks").join())
        node.pass_ms(2_500, *alive)
    node.stop()
    return path


def facts_in(path: Path, group_id: str) -> GroupRows:
    return facts_of(open_node(str(path)), group_id)


def finding(facts: GroupRows, **others: Any) -> GroupFinding:
    """The expiry of the billing story, as a rule would tell it."""
    epoch = next(row for row in facts.epochs if "expired" in str(row.cause.reasons) or row.epoch == 5)
    member_id = facts.sessions[1].member_id
    said = GroupFinding(
        kind="SILENT_MEMBER",
        severity=Severity.WARNING,
        group_id=facts.group_id,
        shard=facts.shard,
        epochs=(epoch.epoch,),
        members=(member_id,),
        partitions=tuple(move.partition for move in epoch.moves),
        from_index=epoch.index,
        from_ms=epoch.timestamp_ms - 3_000,
        to_index=epoch.index,
        to_ms=epoch.timestamp_ms,
        words=f"`{member_id}` was not heard of for 3.0 s, and its session ended.",
        rests_on=(epoch.index,),
        is_certain=True,
    )
    return replace(said, **others)


def renamed(value: Any, rename: Callable[[str], str]) -> Any:
    """Rows of facts with every name in them changed; words that only we write (enums) stay."""
    if isinstance(value, str) and type(value) is str:
        return rename(value)
    if isinstance(value, tuple):
        return tuple(renamed(one, rename) for one in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        skipped = ("state", "why", "basis")
        changed = {
            one.name: renamed(getattr(value, one.name), rename)
            for one in dataclasses.fields(value)
            if one.name not in skipped
        }
        return replace(value, **changed)
    return value


def crowd_facts(*, members: int = 200, partitions: int = 1_000, epochs: int = 3_000) -> GroupRows:
    """Rows of a restless crowd: with each epoch a member rejoins and five partitions move to it.

    Made by hand: real decisions about so many would take minutes.
    """
    rng = random.Random(7)
    ids = [f"{number:022}" for number in range(members)]
    held = {number: (ids[number % members], 0) for number in range(partitions)}
    rows: list[EpochRow] = []
    spans: list[OwnershipSpan] = []
    at = 0
    for epoch in range(1, epochs + 1):
        member, moved, begin = rng.choice(ids), rng.sample(range(partitions), 5), at
        for partition in moved:
            owner, since = held[partition]
            spans += (
                _crowd_span(partition, epoch - 1, SpanKind.OWNED, owner, since, begin + 100),
                _crowd_span(partition, epoch - 1, SpanKind.REVOKING, owner, begin + 100, begin + 300),
                _crowd_span(partition, epoch - 1, SpanKind.UNOWNED, None, begin + 300, begin + 400),
            )
            held[partition] = (member, begin + 400)
        at += rng.choice([500, 2_000, 60_000])
        rows.append(_crowd_epoch(epoch, ids, member, moved, begin, at if epoch < epochs else None))
    for partition, (owner, since) in held.items():
        spans.append(_crowd_span(partition, epochs, SpanKind.OWNED, owner, since, None))
    return GroupRows(
        **_CROWD,
        epochs=tuple(rows),
        spans=tuple(spans),
        sessions=tuple(_crowd_session(number, one) for number, one in enumerate(ids)),
        terms=(),
        last_index=at,
        last_ms=at,
    )


_CROWD: dict[str, Any] = {"group_id": ADS, "shard": 0}


def _clicks(partition: int) -> TopicPartition:
    return TopicPartition(topic="clicks", partition=partition)


def _crowd_span(
    partition: int, epoch: int, kind: SpanKind, member: str | None, begin: int, end: int | None
) -> OwnershipSpan:
    return OwnershipSpan(
        **_CROWD,
        partition=_clicks(partition),
        kind=kind,
        member_id=member,
        epoch=epoch,
        from_index=begin,
        from_ms=begin,
        to_index=end,
        to_ms=end,
    )


def _crowd_epoch(
    epoch: int, ids: list[str], member: str, moved: list[int], begin: int, end: int | None
) -> EpochRow:
    """The epoch in which `member` rejoins and gets the `moved` partitions."""
    reason = Reason(kind=ReasonKind.MEMBER_JOINED, member_id=member)
    return EpochRow(
        **_CROWD,
        epoch=epoch,
        epoch_before=epoch - 1,
        index=begin,
        timestamp_ms=begin,
        cause=Cause(trigger=Trigger.MEMBER_REJOINED, member_id=member, reasons=(reason,)),
        away=(),
        members=tuple(ids),
        num_members=len(ids),
        target_index=begin,
        target_ms=begin,
        moves=tuple(Moved(partition=_clicks(one), source=ids[0], target=member) for one in moved),
        progress=tuple(
            MemberProgress(member_id=one, index=at, timestamp_ms=at, reached=True)
            for at, one in enumerate(ids, begin)
        ),
        waits=(),
        settled_index=begin + 400,
        settled_ms=begin + 400,
        state="Stable",
        overtaken_by=None,
        end_index=end,
        end_ms=end,
    )


def _crowd_session(number: int, member_id: str) -> MemberSession:
    return MemberSession(
        **_CROWD,
        member_id=member_id,
        instance_id=None,
        client_id=f"worker-{number:03}",
        client_host="127.0.0.1",
        from_index=0,
        from_ms=0,
        to_index=None,
        to_ms=None,
        end=SessionEnd.OPEN,
        timeout_ms=None,
        last_heartbeat_ms=None,
        deadline_ms=None,
        rejoins=0,
        aways=(),
    )
