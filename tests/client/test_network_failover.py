"""Finding the coordinator, losing it, and finding the next one, in virtual time."""

from __future__ import annotations

from tests.client.fake_network import ClientRig
from wire.apis import ApiKey


def test_a_consumer_finds_its_coordinator_and_the_nodes() -> None:
    rig = ClientRig()
    rig.run()
    assert rig.coordinator.node_id == 1
    assert sorted(rig.metadata.view.nodes) == [1, 2, 3]
    assert [one.api for one in rig.network.asked][:1] == [ApiKey.API_VERSIONS]
    assert len(rig.network.connections) == 1  # both requests went through the first connection


def test_without_a_group_no_coordinator_is_looked_for() -> None:
    rig = ClientRig(group_id=None)
    rig.run(10_000)
    assert rig.network.asked_for(ApiKey.FIND_COORDINATOR) == []


def test_a_consumer_that_waits_makes_few_passes() -> None:
    rig = ClientRig()
    rig.run(60_000)
    assert rig.passes < 30
