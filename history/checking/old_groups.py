"""What must hold of each record of a group of an older protocol, 1010 or 1011."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.state.projection import OldGroupValue
from records import PushGroupValue, PushState, RewriteGroupValue

ONE_OWNER = "a partition has at most one owner"
NEVER_BACK = "epochs never decrease"
NEXT_GENERATION = "a record of type 1010 has the generation after the one before"
ONE_PHASE = "in a push group all are told to stop, or all are told to start"
WAITS_WITH_NOTHING = "a consumer of a push group that waits owns nothing"
OLD_GROUP_RULES = (ONE_OWNER, NEVER_BACK, NEXT_GENERATION, ONE_PHASE, WAITS_WITH_NOTHING)


def old_group_violations(before: OldGroupValue | None, after: OldGroupValue) -> Iterator[tuple[str, str]]:
    """The rules that a record breaks, each with what was found; ``before`` is the record it replaced."""
    owners: dict[tuple[str, int], str] = {}
    for one in after.consumers:
        for partition in ((part.topic, number) for part in one.owned for number in part.partitions):
            other = owners.setdefault(partition, one.consumer_id)
            if other != one.consumer_id:
                topic, number = partition
                yield ONE_OWNER, f"{topic}-{number} is owned by {other} and by {one.consumer_id}"
    if isinstance(after, PushGroupValue):
        yield from _of_push(before if isinstance(before, PushGroupValue) else None, after)
    elif isinstance(before, RewriteGroupValue) and after.generation != before.generation + 1:
        yield NEXT_GENERATION, f"generation {after.generation} follows {before.generation}"


def _of_push(before: PushGroupValue | None, after: PushGroupValue) -> Iterator[tuple[str, str]]:
    if before is not None and after.round < before.round:
        yield NEVER_BACK, f"round {after.round} follows {before.round}"
    started = [one.consumer_id for one in after.consumers if one.state >= PushState.STARTING]
    if started and len(started) != len(after.consumers):
        stopped = [one.consumer_id for one in after.consumers if one.state < PushState.STARTING]
        yield ONE_PHASE, f"{started[0]} was sent Start, and {stopped[0]} was not"
    for one in after.consumers:
        if one.state == PushState.WAITING and one.owned:
            yield WAITS_WITH_NOTHING, f"{one.consumer_id} waits and owns {one.owned[0].topic}"
