"""Serving requests leaves no reference cycles: the collector never visits most of a large node's state."""

from __future__ import annotations

import pytest

from tests.support.listener_rig import ORDERS, Rig, heartbeat
from tests.support.reference_cycles import cycles_of
from wire.apis import ApiKey
from wire.messages.metadata import MetadataRequest
from wire.messages.offset_commit import OffsetCommitRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup


def connections(rig: Rig) -> None:
    for correlation_id in range(5):
        client = rig.connect()
        client.send(heartbeat(correlation_id) + heartbeat(correlation_id + 1))
        rig.run()
        rig.ask(client, ApiKey.METADATA, 12, MetadataRequest(topics=None))
        rig.ask(client, ApiKey.OFFSET_COMMIT, 9, OffsetCommitRequest(group_id="g"))
        groups = [OffsetFetchRequestGroup(group_id="g")]
        rig.ask(client, ApiKey.OFFSET_FETCH, 9, OffsetFetchRequest(groups=groups))
        if correlation_id % 2:
            client.send(heartbeat(8)[:-3])
        rig.run()
        client.transport.abort()
        rig.run(100)


@pytest.mark.parametrize("clock_step_ms", [0.0, 0.5])
def test_connections_that_come_and_go(clock_step_ms: float) -> None:
    rig = Rig(clock_step_ms=clock_step_ms)
    assert rig.node.catalog.topic(ORDERS.name) is not None
    assert not cycles_of(lambda: connections(rig))


def test_the_counting_finds_cycles() -> None:
    def serve() -> None:
        request = OffsetCommitRequest(group_id="g")
        request.topics.append(request)  # type: ignore[arg-type]

    assert cycles_of(serve) == {"wire.messages.offset_commit.OffsetCommitRequest": 1}
