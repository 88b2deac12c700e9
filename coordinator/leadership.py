"""Requests of operators about leadership: a leader for a shard, and nodes that lead nothing.

The metadata shard keeps it as one record. These functions return the changed record.
"""

from __future__ import annotations

from typing import Final

from records import AskedLeader, LeadershipValue

NOTHING_ASKED: Final = LeadershipValue(drained=(), asked=())


def asked_leader(asked: LeadershipValue, shard: int) -> int | None:
    """The node that shall lead the shard; None if balancing decides."""
    return next((one.node_id for one in asked.asked if one.shard == shard), None)


def with_leader(asked: LeadershipValue, shard: int, node_id: int | None) -> LeadershipValue:
    """The same with this leader for the shard; None leaves it to balancing."""
    others = [one for one in asked.asked if one.shard != shard]
    new = [] if node_id is None else [AskedLeader(shard=shard, node_id=node_id)]
    in_order = sorted([*others, *new], key=lambda one: one.shard)
    return LeadershipValue(drained=asked.drained, asked=tuple(in_order))


def with_drained(asked: LeadershipValue, node_id: int, *, is_drained: bool) -> LeadershipValue:
    """The same with this node drained, or not."""
    drained = {*asked.drained, node_id} if is_drained else {*asked.drained} - {node_id}
    return LeadershipValue(drained=tuple(sorted(drained)), asked=asked.asked)
