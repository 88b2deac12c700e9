"""Followers far behind, replaced disks and divergent logs: how each catches up."""

from __future__ import annotations

import dataclasses

import pytest

from raftlog.env.simulated_files import Crash
from raftlog.env.state_machine import SnapshotHeader
from raftlog.storage.segments import LogIdentity
from raftlog.storage.snapshot_install import SnapshotSink
from tests.support.replica_cluster import PATH, ClusterNode, ReplicaCluster
from tests.support.single_replica import SETTINGS

SNAPSHOTS = dataclasses.replace(SETTINGS, segment_bytes=8_000, snapshot_tail_records=200)
FORGETFUL = dataclasses.replace(SNAPSHOTS, log_archive_retention_bytes=0)


def _grow(cluster: ReplicaCluster, count: int) -> None:
    leader = cluster.leader
    assert leader is not None
    for start in range(0, count, 50):
        for number in range(start, start + 50):
            leader.put((f"k{number % 97}", str(number)))
        cluster.advance(20)
    cluster.settle()
    cluster.advance(100)


def _left_behind(cluster: ReplicaCluster) -> ClusterNode:
    """A follower that is killed and misses many entries."""
    cluster.elect()
    _grow(cluster, 100)
    away = cluster.followers()[0]
    away.kill()
    _grow(cluster, 1500)
    return away


def test_a_follower_behind_the_snapshot_is_fed_from_the_archive() -> None:
    cluster = ReplicaCluster(settings=SNAPSHOTS).start()
    away = _left_behind(cluster)
    leader = cluster.leader
    assert leader is not None
    assert leader.replica.status()["snapshot_index"] > 1000
    away.start()
    cluster.assert_equal()
    assert away.machine.resets == 0
    cluster.advance(500)
    archived = [name for name in away.files.listdir(f"{PATH}/shard-0/archive") if name.endswith(".log")]
    assert "00000000000000000001.log" in archived


def test_a_follower_whose_entries_are_gone_gets_the_snapshot() -> None:
    cluster = ReplicaCluster(settings=FORGETFUL).start()
    away = _left_behind(cluster)
    away.start()
    cluster.assert_equal()
    assert away.machine.resets == 1
    assert away.replica.status()["snapshot_index"] > 1000
    _grow(cluster, 300)
    cluster.assert_equal()
    away.restart(Crash.LOST)
    cluster.assert_equal()


SLOW_DISK = dataclasses.replace(
    FORGETFUL, inline_sync_ms_max=0.0, replicate_batch_bytes=2000, replicate_window_bytes=4000
)


@pytest.mark.parametrize("seed", range(12))
def test_a_snapshot_right_behind_live_entries_finds_no_group_begun(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync mark of the last entries is due while the snapshot is put in place, which takes four syncs."""
    cluster = ReplicaCluster(settings=SLOW_DISK, seed=seed).start()
    leader = cluster.elect()
    _grow(cluster, 100)
    behind = cluster.followers()[0]
    behind.host.disk_ms = 3.0
    finish = SnapshotSink.finish

    def four_syncs(self: SnapshotSink, identity: LogIdentity) -> SnapshotHeader:
        host = behind.host
        host.hold_disk = True
        cluster.advance(4 * host.disk_ms)
        host.hold_disk = False
        for place in range(len(host.disk)):
            cluster.push(cluster.now_ms + (place + 1) * host.disk_ms, host, host.do_disk)
        return finish(self, identity)

    monkeypatch.setattr(SnapshotSink, "finish", four_syncs)
    while behind.machine.resets < 4:
        assert behind.is_up, behind.fatal_message
        assert leader.replica.last_index < 10_000, "no snapshot was sent"
        leader.put_many(20)
        cluster.advance(cluster.rng.uniform(1, 6))
    cluster.assert_equal()
    behind.restart(Crash.LOST)
    cluster.assert_equal()


def test_a_leader_lost_in_the_middle_of_a_snapshot_is_followed_by_another() -> None:
    cluster = ReplicaCluster(settings=FORGETFUL, delay_ms=5.0).start()
    away = _left_behind(cluster)
    away.start()
    leader = cluster.elect()
    cluster.until(lambda: any("snapshot" in one["mode"] for one in leader.replica.leadership.followers()))
    leader.restart()
    cluster.elect()
    cluster.assert_equal()


def test_a_replaced_disk_neither_votes_nor_counts_until_it_has_caught_up() -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(50)
    cluster.settle()
    lost = cluster.followers()[0]
    other = cluster.followers()[1]
    lost.wipe()
    other.pause()
    lost.start()
    cluster.until(lambda: lost.machine.applied == 0 and lost.replica.leader_id == leader.number)
    index = leader.put(("unsafe", "1"))
    cluster.advance(200)
    assert leader.machine.committed_index < index, "a joining node's answer must not count"
    assert lost.replica.status()["is_joining"]
    other.host.resume()
    cluster.elect()
    cluster.until(lambda: not lost.replica.status()["is_joining"])
    cluster.assert_equal()
    assert not lost.files.exists(f"{PATH}/shard-0/joining")


def test_a_replaced_disk_does_not_elect_a_node_that_lacks_acknowledged_entries() -> None:
    """The old disk's acknowledgement completed a quorum; the new disk has lost the entry."""
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    lost, lagging = cluster.followers()
    cluster.isolate(lagging.number)
    index = leader.put_committed(("precious", "1"))
    leader.kill()
    lost.wipe()
    lost.start()
    cluster.heal()
    cluster.advance(5000)
    assert cluster.leader is None, "only the node that is away has the entry"
    leader.start()
    cluster.elect()
    cluster.assert_equal()
    assert all(node.machine.applied > index for node in cluster.running)


def test_a_deposed_leader_keeps_its_projection() -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(100)
    cluster.settle()
    cluster.isolate(leader.number)
    cluster.until(lambda: cluster.leader is not None and cluster.leader is not leader)
    cluster.heal()
    cluster.assert_equal()
    assert leader.machine.resets == 0
    assert leader.machine.deposed_reasons


def test_a_deposed_leader_whose_entries_are_replaced_is_rebuilt() -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(100)
    cluster.settle()
    cluster.isolate(leader.number)
    unsure = leader.put_many(300, "never-")
    cluster.until(lambda: cluster.leader is not None and cluster.leader is not leader)
    other = cluster.leader
    assert other is not None
    other.put_many(5, "instead-")
    cluster.advance(50)
    cluster.heal()
    cluster.assert_equal()
    assert leader.machine.resets == 1
    assert leader.replica.status()["rebuilds"] == 1
    assert leader.replica.last_index < unsure
    assert not any(b"never-" in key for _, key in leader.machine.values)


def test_a_divergent_tail_is_found_in_a_few_round_trips() -> None:
    """D11: the library backs off one entry per heartbeat: 300 entries took 36 seconds."""
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    cluster.isolate(leader.number)
    leader.put_many(300, "never-")
    cluster.until(lambda: cluster.leader is not None and cluster.leader is not leader)
    other = cluster.leader
    assert other is not None
    other.put_many(300, "instead-")
    cluster.advance(50)
    cluster.heal()
    other.put(("one more", "entry"))
    assert cluster.until(lambda: leader.replica.commit_index >= 300) < 200
