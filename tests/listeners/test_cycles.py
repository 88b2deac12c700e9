"""What serves requests leaves no cycles behind: the collector looks at much of a large node's state never."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.listener_rig import ORDERS, Rig, heartbeat
from wire.apis import ApiKey
from wire.messages.metadata import MetadataRequest
from wire.messages.offset_commit import OffsetCommitRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

OF_THE_SIMULATION = (
    "cluster.kafka.connection.Connection",
    "cluster.kafka.steady.FastReplies",
    "wire.framing.Framer",
    "raftlog.env.simulated_files.SimFiles",
)
"""The two ends of a simulated connection know each other; asyncio's and uvloop's let go when they close."""

OURS = ("cluster.kafka", "cluster.http", "cluster.runtime", "coordinator", "raftlog", "wire", "records")


def cycles_of(serve: Callable[[], None]) -> Counter[str]:
    """Objects of ours that only the collector would free."""
    serve()  # what is made once stays
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        serve()
        gc.collect()
        kinds = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    return Counter(
        {
            kind: number
            for kind, number in kinds.items()
            if kind.startswith(OURS) and kind not in OF_THE_SIMULATION
        }
    )


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
