"""The objects that every request goes through have few attributes: see `ATTRIBUTES_MAX`."""

from __future__ import annotations

from cluster.kafka.connection import Connection
from tests.support.three_nodes import ThreeNodes

ATTRIBUTES_MAX = 30
"""CPython keeps the attributes of an object with more of them in a dictionary of its own, and each access to
one costs twice as much: heartbeats and commits were a twentieth slower with two more. `__slots__` have no
such bound."""


def test_the_objects_of_every_request_have_quick_attributes() -> None:
    nodes = ThreeNodes()
    machine = nodes.cluster[nodes.leader]
    assert machine.node is not None
    shards = machine.node.shards
    for one in [*shards, *(shard.replica for shard in shards), *(shard.machine for shard in shards)]:
        assert len(vars(one)) <= ATTRIBUTES_MAX, f"{type(one).__name__}: {sorted(vars(one))}"
    assert not hasattr(Connection(machine.node.kafka.context, machine.node.kafka), "__dict__")
