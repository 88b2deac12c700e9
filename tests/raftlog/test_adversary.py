"""Adversarial schedules: nothing committed is lost, nothing false is believed, and the cluster goes on."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from raftlog.catch_up import follower_catch_up
from raftlog.consensus.messages import Append, MessageKind
from raftlog.env.rate_limit import RateLimitedLogger
from raftlog.env.simulated_files import Crash
from raftlog.replica.follower import DEFERRED_MAX
from raftlog.replica.replica import Replica
from tests.support.replica_cluster import ClusterNode, ReplicaCluster
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


def _slow_disk(node: ClusterNode) -> None:
    """Hold up the node's syncs on the disk thread."""
    node.host.hold_disk = True
    node.replica.group_commit.average_ms = 1000.0


# Replaced disks


def test_a_leader_that_does_not_know_yet_what_is_committed_admits_no_node() -> None:
    """A restarted leader's commit index is that of its snapshot until its own first entry is committed."""
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    cluster.settle()
    lagging, lost = cluster.followers()
    cluster.isolate(lagging.number)
    leader.put_committed(("precious", "1"))
    leader.kill()
    lost.wipe()
    cluster.heal()
    leader.start()
    cluster.until(lambda: leader.replica.is_leader)
    _slow_disk(lagging)
    lost.start()
    cluster.advance(100)
    assert lost.replica.leader_id == leader.number
    assert leader.replica.commit_index == 0
    cluster.advance(200)
    assert lost.replica.status()["is_joining"], "it lacks what its old disk has acknowledged"
    leader.kill()
    lagging.restart()
    cluster.advance(3000)
    assert cluster.leader is None
    leader.start()
    cluster.elect()
    cluster.until(lambda: not lost.replica.status()["is_joining"])
    cluster.assert_equal()


def test_a_replaced_disk_asks_for_the_terms_that_it_missed() -> None:
    """The terms that peers send when the link comes up are lost while either replica still loads."""
    cluster = ReplicaCluster().start()
    cluster.elect()
    cluster.settle()
    lost = cluster.followers()[0]
    lost.wipe()
    dropped: list[bytes] = []

    def first_terms(source: int, target: int, payload: bytes) -> bool:
        is_one = target == lost.number and payload[1] == MessageKind.TERM and len(dropped) < 2
        if is_one:
            dropped.append(payload)
        return is_one

    cluster.dropped = first_terms
    lost.start()
    cluster.until(lambda: len(dropped) == 2)
    cluster.until(lambda: not lost.replica.status()["is_joining"], 1000)
    cluster.assert_equal()


def test_a_disk_replaced_twice_counts_for_nothing_of_the_first() -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(50)
    cluster.settle()
    lost, other = cluster.followers()
    lost.wipe()
    other.pause()
    lost.start()
    peer = leader.replica._raft.progress.peers[lost.number]  # type: ignore[union-attr]
    cluster.until(lambda: peer.is_joining and peer.match_index > 50)
    lost.wipe()
    cluster.dropped = lambda source, target, payload: (
        target == lost.number and payload[1] == MessageKind.APPEND
    )
    lost.start()
    cluster.advance(50)
    assert peer.match_index == 0
    assert peer.joined_index == -1


def test_two_disks_replaced_at_once_never_outvote_the_third() -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    index = leader.put_many(50)
    cluster.settle()
    for node in cluster.followers():
        node.wipe()
        node.start()
    cluster.advance(20_000)
    assert leader.replica.last_index >= index
    assert all(node.replica.status()["is_joining"] for node in cluster.nodes.values() if node is not leader)
    assert cluster.leader is None


def test_a_crash_at_the_end_of_joining_forgets_no_vote() -> None:
    """After a failure at any file call of the step, the node still joins or remembers its vote."""
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(10)
    cluster.settle()
    lost = cluster.followers()[0]
    for crash in (Crash.KEPT, Crash.LOST, Crash.TORN):
        for operation in ("rename", "fsync", "fsync_dir", "unlink"):
            lost.wipe()
            lost.start()

            def fail(number: int, what: str, path: str, operation: str = operation) -> OSError | None:
                is_it = what == operation and ("/term" in path or "/joining" in path or what == "fsync_dir")
                return OSError(5, "injected") if is_it and lost.replica.last_index > 10 else None

            lost.files.fail = fail
            cluster.advance(400)
            lost.files.fail = None
            if lost.is_up:
                lost.kill(crash)
            else:
                lost.files = lost.files.crash(crash)
            lost.start()
            cluster.until(lambda: lost.replica.term > 0 and lost.replica._peering is not None)
            assert lost.replica.status()["is_joining"] or lost.replica.vote == str(lost.number)
            cluster.until(lambda: not lost.replica.status()["is_joining"])
    cluster.assert_equal()


# Standbys


def test_a_follower_is_not_current_by_the_word_of_a_leader_that_has_just_restarted() -> None:
    """All restart: the new leader first sends its snapshot's commit index; no node has applied anything."""
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(100)
    cluster.settle()
    for node in cluster.running:
        node.kill()
    cluster.start()
    cluster.until(lambda: any(node.replica.is_current for node in cluster.running))
    for _ in range(50):
        for node in cluster.running:
            assert not node.replica.is_current or node.machine.applied > 100
        cluster.advance(1)
    assert all(node.replica.is_current for node in cluster.running)


# Snapshots from the leader


def _behind(cluster: ReplicaCluster) -> ClusterNode:
    cluster.elect()
    _grow(cluster, 100)
    cluster.settle()
    away = cluster.followers()[0]
    away.kill()
    _grow(cluster, 1500)
    cluster.advance(200)
    return away


def test_a_follower_is_fed_on_when_the_leader_made_another_snapshot_meanwhile() -> None:
    cluster = ReplicaCluster(settings=FORGETFUL, delay_ms=2.0).start()
    away = _behind(cluster)
    leader = cluster.elect()
    away.start()
    cluster.until(lambda: any("snapshot" in one["mode"] for one in leader.replica.leadership.followers()))
    away.host.hold_disk = True
    made = leader.replica.status()["snapshots_made"]
    _grow(cluster, 1500)
    cluster.until(lambda: leader.replica.status()["snapshots_made"] > made)
    away.host.hold_disk = False
    while away.host.disk:
        away.host.do_disk()
    cluster.until(lambda: away.replica.commit_index == leader.replica.commit_index, 5000)
    cluster.assert_equal()


def test_chunks_of_two_leaders_snapshots_are_not_mixed() -> None:
    """The last entries are equal and the bytes differ, as nodes keep different tombstones."""
    cluster = ReplicaCluster(settings=FORGETFUL).start()
    away = _behind(cluster)
    leader = cluster.elect()
    other = next(node for node in cluster.running if node is not leader)
    taken: list[tuple[int, int]] = []

    def one_chunk(source: int, target: int, payload: bytes) -> bool:
        if payload[1] != MessageKind.SNAPSHOT:
            return False
        taken.append((source, target))
        return sum(one == (source, target) for one in taken) > 1 and source == leader.number

    before = follower_catch_up.CHUNK_BYTES
    follower_catch_up.CHUNK_BYTES = 500
    try:
        cluster.dropped = one_chunk
        away.start()
        cluster.until(lambda: len(taken) > 1)
        cluster.advance(5)
        sink = away.replica._peering.installing._sink  # type: ignore[union-attr]
        assert sink is not None
        assert sink.offset == 500
        leader.kill()
        cluster.until(lambda: cluster.leader is other)
        cluster.until(lambda: (other.number, away.number) in taken)
        cluster.advance(1)
        fresh = away.replica._peering.installing._sink  # type: ignore[union-attr]
        assert fresh is not sink
        cluster.assert_equal()
    finally:
        follower_catch_up.CHUNK_BYTES = before


def test_a_clean_stop_in_the_middle_of_an_installation_can_be_started_again() -> None:
    cluster = ReplicaCluster(settings=FORGETFUL).start()
    away = _behind(cluster)
    away.start()
    away.host.hold_disk = True

    def is_on_disk() -> bool:
        peering = away.replica._peering
        if peering is not None and not peering.installing.is_on_disk and away.host.disk:
            away.host.do_disk()
        return peering is not None and peering.installing.is_on_disk

    cluster.until(is_on_disk)
    done: list[bool] = []
    away.replica.stop(lambda: done.append(True))
    cluster.advance(50)
    assert not done, "its files are being replaced"
    while away.host.disk:
        away.host.do_disk()
    cluster.until(lambda: done)
    away.directory.close()
    away.restart()
    cluster.assert_equal()


# A cluster's disk without the cluster


def test_a_member_of_a_cluster_never_leads_without_links() -> None:
    cluster = ReplicaCluster().start()
    cluster.elect()
    node = cluster.followers()[0]
    node.kill()
    node.start()
    node.host.is_dead = False
    directory = dataclasses.replace(node.directory)
    replica = Replica(node.host, directory, 0, node.machine, SETTINGS, None)
    replica.start()
    cluster.advance(2000)
    assert not replica.is_leader
    assert "has no links to the others" in str(node.fatal_message)


# Deposed leaders


def _depose(cluster: ReplicaCluster, leader: ClusterNode, unsure: int) -> ClusterNode:
    """Cut the leader off with entries of its own; return the new leader, which has others in their place."""
    cluster.isolate(leader.number)
    leader.put_many(unsure, "never-")
    cluster.until(lambda: cluster.leader is not None and cluster.leader is not leader)
    other = cluster.leader
    assert other is not None
    other.put_many(5, "instead-")
    cluster.advance(50)
    return other


def test_nothing_is_cut_or_acknowledged_while_a_group_is_in_flight() -> None:
    """The group in flight holds entries that the new leader replaces."""
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(20)
    cluster.settle()
    certain = leader.replica.last_index
    _slow_disk(leader)
    other = _depose(cluster, leader, 50)
    cluster.heal()
    cluster.advance(300)
    journal = leader.replica._journal
    assert journal.is_flushing
    assert leader.replica.last_index == certain + 50, "cut under the disk thread's hands"
    raft = other.replica._raft
    assert raft is not None
    assert raft.progress.peers[leader.number].match_index <= certain
    leader.host.hold_disk = False
    while leader.host.disk:
        leader.host.do_disk()
    cluster.assert_equal()
    assert not any(b"never-" in key for _, key in leader.machine.values)
    leader.restart(Crash.LOST)
    cluster.assert_equal()


def test_entries_that_arrive_during_a_rebuild_are_applied_after_it() -> None:
    cluster = ReplicaCluster(
        settings=dataclasses.replace(SETTINGS, load_slice_ms=0.0, apply_batch_bytes=500)
    ).start()
    leader = cluster.elect()
    leader.put_many(300)
    cluster.settle()
    other = _depose(cluster, leader, 30)
    cluster.heal()
    cluster.until(lambda: leader.replica.is_rebuilding)
    assert not leader.replica.is_leader
    for number in range(20):
        other.put((f"meanwhile-{number}", "x"))
    cluster.assert_equal()
    assert leader.machine.resets == 1


def test_a_crash_or_a_stop_in_the_middle_of_a_rebuild_loses_nothing() -> None:
    for crash in (Crash.KEPT, Crash.LOST, Crash.TORN, None):
        cluster = ReplicaCluster(
            settings=dataclasses.replace(SETTINGS, load_slice_ms=0.0, apply_batch_bytes=500)
        ).start()
        leader = cluster.elect()
        leader.put_many(300)
        cluster.settle()
        _depose(cluster, leader, 30)
        cluster.heal()
        cluster.until(lambda leader=leader: leader.replica.is_rebuilding)
        if crash is None:
            done: list[bool] = []
            leader.replica.stop(lambda done=done: done.append(True))
            cluster.until(lambda done=done: done)
            leader.directory.close()
            leader.restart()
        else:
            leader.restart(crash)
        cluster.assert_equal()


def test_a_snapshot_point_among_entries_that_are_replaced_is_given_up() -> None:
    cluster = ReplicaCluster(settings=SNAPSHOTS).start()
    leader = cluster.elect()
    leader.put_many(150)
    cluster.settle()
    _depose(cluster, leader, 200)
    cluster.heal()
    cluster.assert_equal()
    _grow(cluster, 600)
    cluster.assert_equal()
    assert leader.replica.status()["snapshots_made"] >= 1
    for node in cluster.running:
        node.restart()
    cluster.assert_equal()


# Bounds


def test_a_peer_that_repeats_itself_is_written_about_seldom(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = 0.0
    limited = RateLimitedLogger(logging.getLogger("quorate.test"), lambda: now_ms)
    for at in range(0, 10_000, 50):
        now_ms = float(at)
        limited.error(2, "node %d", 2)
    assert caplog.messages == ["node 2"]
    now_ms = 10_050.0
    limited.error(2, "node %d", 2)
    assert caplog.messages[1:] == ["node 2 (199 similar lines were suppressed)"]
    for number in range(1000):
        limited.warning(("kind", number), "one of a kind")
    assert len(caplog.messages) < 100


def test_what_waits_for_a_sync_is_bounded() -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(20)
    cluster.settle()
    follower = cluster.followers()[0]
    _slow_disk(follower)
    leader.put(("in", "flight"))
    cluster.advance(5)
    journal = follower.replica._journal
    assert journal.is_flushing
    frames = leader.replica._journal.frames_for(10, 20, 1 << 20)
    again = Append(leader.replica.term, 9, leader.log_terms()[8], 0, cluster.now_ms, frames).encode()
    for _ in range(DEFERRED_MAX + 100):
        follower.replica.peer_message(leader.number, again)
    peering = follower.replica._peering
    assert peering is not None
    assert len(peering.following._deferred) == DEFERRED_MAX
    follower.host.hold_disk = False
    while follower.host.disk:
        follower.host.do_disk()
    cluster.assert_equal()


def test_what_was_told_as_committed_is_not_taken_back_by_a_rebuild() -> None:
    """A leader with a slow disk reports entries that the others have synced; once deposed, it rebuilds only
    up to the last entry that it has applied itself."""
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(20)
    cluster.settle()
    leader.put_committed(("synced", "here"))
    _slow_disk(leader)
    told = leader.put_committed(("synced", "by the others"))
    leader.put_committed(("so", "is this"))
    assert leader.replica._journal.durable_index < told
    _depose(cluster, leader, 10)
    cluster.heal()
    cluster.advance(50)
    while not leader.machine.resets:  # one group at a time
        if leader.host.disk:
            leader.host.do_disk()
        cluster.step()
    leader.host.hold_disk = False
    while leader.host.disk:
        leader.host.do_disk()
    cluster.assert_equal()
    assert leader.is_up
