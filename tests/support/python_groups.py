"""Groups of Python's stock clients on a topic with `PARTITIONS` partitions, and what a test waits for."""

from __future__ import annotations

from cluster.launching.launcher import ClusterProcess
from quorate.client import Client
from tests.support.python_clients import PolledMember
from tests.support.waiting import wait_for

OF_NODES = {
    "scratch.log.enable": "true",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
    "leader.balance.delay.ms": "600000",
}
"""Settings of the nodes."""

PARTITIONS = 4
ALL = frozenset(range(PARTITIONS))
WITHIN_S = 30.0


def wait_until_shared(*members: PolledMember) -> None:
    """Wait until every partition has one owner, and every member has some."""

    def are_shared() -> bool:
        owned = [member.assigned for member in members]
        return all(owned) and sum(map(len, owned)) == PARTITIONS and frozenset().union(*owned) == ALL

    wait_for(are_shared, lambda: f"shared: {[(one.assigned, one.errors) for one in members]}", WITHIN_S)


def wait_until_all_commit(*members: PolledMember) -> None:
    before = [dict(member.acknowledged) for member in members]
    wait_for(
        lambda: all(member.acknowledged != old for member, old in zip(members, before, strict=True)),
        lambda: f"committed: {[(one.acknowledged, one.errors) for one in members]}",
        WITHIN_S,
    )


def committed(cluster: ClusterProcess, group: str) -> dict[int, int]:
    with Client(cluster.bootstrap) as client:
        (offsets,) = client.offsets(group).values()
    return offsets
