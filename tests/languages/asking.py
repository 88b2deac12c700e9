"""Topics and groups that a test makes, and questions to the coordinator, beside the stock clients."""

from __future__ import annotations

import uuid

from cluster.launching.launcher import ClusterProcess
from quorate.client import Client
from quorate.groupclient import GroupInfo


def new_topic(cluster: ClusterProcess, num_partitions: int) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    with Client(cluster.bootstrap) as client:
        client.create_topic(name, num_partitions)
    return name


def stored(cluster: ClusterProcess, group: str) -> dict[int, int]:
    """Return the offsets that a group has committed for its one topic, by partition."""
    with Client(cluster.bootstrap) as client:
        found = client.offsets(group)
    assert len(found) <= 1, found
    return next(iter(found.values()), {})


def listed(cluster: ClusterProcess, group: str) -> GroupInfo:
    with Client(cluster.bootstrap) as client:
        return next(one for one in client.groups() if one.group_id == group)
