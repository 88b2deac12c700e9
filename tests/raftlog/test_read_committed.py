"""Reads of a running replica's log: committed entries, also those that its own disk lacks yet."""

from __future__ import annotations

import pytest

from tests.report import count_fault
from tests.support.replica_cluster import ReplicaCluster
from tests.support.single_replica import committed


@pytest.mark.timeout(20)
def test_committed_entries_that_are_not_synced_here_can_be_read() -> None:
    """The others form a quorum: an entry may be committed before this node's own disk has it."""
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(20)
    cluster.settle()
    count_fault("raftlog", "slow disk")
    leader.host.hold_disk = True
    leader.replica.group_commit.average_ms = 1000.0
    leader.put_many(5)
    cluster.advance(300)
    replica = leader.replica
    behind, newest = replica.status()["durable_index"], replica.commit_index
    assert behind < newest
    for first in (1, behind, behind + 1, newest):
        for bytes_max in (1, 100, 1 << 20):
            found = [one.index for one in committed(replica, first, bytes_max)]
            assert found == list(range(first, newest + 1))
    assert replica.log.read(newest + 1, 100) == b""
