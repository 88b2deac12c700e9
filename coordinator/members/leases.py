"""Leases: a fencing token for each partition that a member may use, which only ever rises.

A partition's token is the Raft index of the entry that gave it to the member. Whatever the member does with
the partition carries the token, and the store that it writes to refuses a lower one than it has seen
(docs/leases.md). The assignment epoch would not do: a static member that is away has epoch 0 for all of its
partitions, its successor gets the same epochs, and a group that is made again begins at 1.

Invariants: a holder's tokens stay the same while it keeps the partition, and every later holder's are higher.
A member that joins, again or in the place of another, or comes from the classic protocol, counts as a new
holder. A heartbeat that does not ask for tokens ends the leases, since partitions may be lost and given back
before the next one that does.
"""

from __future__ import annotations

from coordinator.api import Context, RequestRefused
from coordinator.state import writes
from coordinator.state.model import Member
from coordinator.state.reconcile import PartitionEpochs
from coordinator.targets.epochs import Step
from records import LEASES_SINCE
from wire.errors import ErrorCode


def require_leases(ctx: Context) -> None:
    """Raise `RequestRefused` unless all nodes can read leases.

    The error is one that clients retry: a new cluster is at the newest level within a second."""
    if ctx.catalog.format_level < LEASES_SINCE:
        raise RequestRefused(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"Fencing tokens need format level {LEASES_SINCE}, and the cluster is at "
            f"{ctx.catalog.format_level}: run `quorate cluster upgrade` when all nodes have this release.",
        )


def lease_step(group_id: str, member: Member, before: PartitionEpochs, ctx: Context, *, asks: bool) -> Step:
    """Write the member's tokens if they changed.

    `before` are the partitions that it had before this request and has kept since; none if it joins."""
    tokens: dict[bytes, dict[int, int]] = {}
    if asks:
        for topic_id, epochs in sorted(member.current.assigned.items()):
            had, kept = member.tokens.get(topic_id, {}), before.get(topic_id, {})
            tokens[topic_id] = {
                number: had[number] if number in had and number in kept else ctx.next_index
                for number in sorted(epochs)
            }
    if tokens != member.tokens:
        yield [writes.member_leases(group_id, member.member_id, tokens)]
