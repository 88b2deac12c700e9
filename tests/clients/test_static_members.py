"""Stock consumers with a group.instance.id on three nodes: a restart keeps all, a twin is fenced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.raw import RawGroup
from cluster.launching.launcher import ClusterProcess, NodeProcess
from quorate.client import Client
from quorate.groupclient import GroupDescription
from tests.clients.conftest import HEARTBEAT_INTERVAL_MS
from tests.report import count_fault
from tests.support.polled_consumers import Crowd, PolledConsumer
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

pytestmark = pytest.mark.failover  # nodes of real clusters are killed

NUM_PARTITIONS = 12
SESSION_TIMEOUT_MS = 30_000
"""Longer than any test here takes: membership changes only by requests, never by expiry."""
SETTINGS = {
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
}
AWAY_EPOCH = -2
IN_USE = "Fatal error: Broker: The instance ID is still used by another member"
"""librdkafka's message for UNRELEASED_INSTANCE_ID."""


@pytest.fixture
def bootstrap(cluster: ClusterProcess) -> str:
    return cluster.bootstrap


class Fleet:
    """Static consumers of one group, and the group as the cluster describes it."""

    def __init__(self, crowd: Crowd, client: Client, group: str) -> None:
        self.crowd = crowd
        self.client = client
        self.group = group

    def start(self, instance_id: str) -> PolledConsumer:
        return self.crowd.join(**{"group.instance.id": instance_id})

    def start_two(self) -> tuple[PolledConsumer, PolledConsumer]:
        """Start instances one and two and wait until each has half of the partitions."""
        one, two = self.start("one"), self.start("two")
        self.crowd.wait_balanced(NUM_PARTITIONS)
        self.wait_stable()
        return one, two

    def describe(self) -> GroupDescription:
        return self.client.describe_group(self.group)

    def wait_stable(self) -> None:
        self.crowd.wait("a stable group", lambda: self.describe().state == "Stable")

    def epochs(self) -> dict[str | None, int]:
        """Return the member epochs by instance id."""
        return {member.instance_id: member.member_epoch for member in self.describe().members}


@pytest.fixture
def fleet(bootstrap: str, group: str, client: Client, new_topic: Callable[[int], str]) -> Iterator[Fleet]:
    crowd = Crowd(bootstrap, group, new_topic(NUM_PARTITIONS))
    yield Fleet(crowd, client, group)
    crowd.close()


def test_a_restart_keeps_partitions_and_epoch(fleet: Fleet) -> None:
    """close() of a static consumer sends −2; the next process with its instance id has its partitions."""
    one, two = fleet.start_two()
    had, others = set(one.owned), set(two.owned)
    before = fleet.describe()
    one.close()
    fleet.crowd.wait("being away", lambda: fleet.epochs()["one"] == AWAY_EPOCH)
    assert fleet.describe().state == "Reconciling"
    again = fleet.start("one")
    fleet.crowd.wait("having its partitions again", lambda: again.owned == had)
    fleet.wait_stable()
    after = fleet.describe()
    assert (after.group_epoch, after.assignment_epoch) == (before.group_epoch, before.assignment_epoch)
    assert fleet.epochs() == {"one": before.group_epoch, "two": before.group_epoch}
    assert {m.member_id for m in before.members} != {m.member_id for m in after.members}
    assert (two.owned, two.lost, two.errors) == (others, [], []), "nobody else notices"


def test_a_second_consumer_with_the_instance_id_gets_a_fatal_error(fleet: Fleet) -> None:
    """UNRELEASED_INSTANCE_ID is fatal in the second client; the first goes on."""
    one, _two = fleet.start_two()
    had = set(one.owned)
    twin = fleet.start("one")
    fleet.crowd.wait("the error of the second", lambda: bool(twin.errors))
    assert IN_USE in twin.errors[0]
    assert (one.owned, one.errors, twin.owned) == (had, [], set())


def test_a_consumer_whose_place_was_taken_gets_a_fatal_error(fleet: Fleet, cluster: ClusterProcess) -> None:
    """It heartbeats without its instance id, is unknown, and fails fatally when it joins again."""
    one, two = fleet.start_two()
    others = set(two.owned)
    member = next(m for m in fleet.describe().members if m.instance_id == "one")
    _take_place(cluster, fleet, member.member_id, "one")
    fleet.crowd.wait("the error of the first", lambda: bool(one.errors))
    assert IN_USE in one.errors[0]
    assert (two.owned, two.errors) == (others, [])


def test_the_leader_is_killed_between_the_leave_and_the_return(fleet: Fleet, cluster: ClusterProcess) -> None:
    """The place of a member that left temporarily is in the log: the next leader keeps it."""
    one, two = fleet.start_two()
    had, others = set(one.owned), set(two.owned)
    epoch = fleet.describe().group_epoch
    one.close()
    fleet.crowd.wait("being away", lambda: fleet.epochs()["one"] == AWAY_EPOCH)
    leader = _leader(cluster, fleet.group)
    leader.kill()
    count_fault("clients", "kill -9 of the leader while a static member is away")
    try:
        again = fleet.start("one")
        fleet.crowd.wait("having its partitions again", lambda: again.owned == had)
        fleet.wait_stable()
        assert (fleet.describe().group_epoch, fleet.epochs()["one"]) == (epoch, epoch)
        assert (two.owned, two.lost) == (others, [])
        assert _leader(cluster, fleet.group) is not leader
    finally:
        leader.spawn()


def _ask(cluster: ClusterProcess, group: str, call: Callable[[RawGroup], Any]) -> Any:
    asked = RawGroup([(node.host, node.port) for node in cluster.nodes], group)
    try:
        return asked.until_accepted(call, asked)
    finally:
        asked.close()


def _leader(cluster: ClusterProcess, group: str) -> NodeProcess:
    address = _ask(cluster, group, RawGroup.find)
    return next(node for node in cluster.nodes if (node.host, node.port) == address)


def _take_place(cluster: ClusterProcess, fleet: Fleet, member_id: str, instance_id: str) -> None:
    """Send −2 in the name of a consumer without its knowledge, and join with its instance id at once."""
    gone = ConsumerGroupHeartbeatRequest(
        group_id=fleet.group, member_id=member_id, member_epoch=AWAY_EPOCH, instance_id=instance_id
    )
    comes = ConsumerGroupHeartbeatRequest(
        group_id=fleet.group,
        member_id="usurper",
        member_epoch=0,
        instance_id=instance_id,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        subscribed_topic_names=[fleet.crowd.topic],
        topic_partitions=[],
    )

    def both(asked: RawGroup) -> list[int]:
        return [asked.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, one).error_code for one in (gone, comes)]

    assert _ask(cluster, fleet.group, both) == [0, 0]
