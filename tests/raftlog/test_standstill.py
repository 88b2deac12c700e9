"""Schedules that might leave a node waiting for ever: stalled nodes recover, and the cluster goes on."""

from __future__ import annotations

import dataclasses

import pytest

from raftlog.consensus.messages import Append, MessageKind
from raftlog.env.errors import PeerMessageRefused
from raftlog.replica.replica_state import ReplicaState
from raftlog.storage.snapshot_install import SnapshotSink
from tests.report import count_fault
from tests.support.replica_cluster import ClusterNode, ReplicaCluster
from tests.support.single_replica import SETTINGS

FORGETFUL = dataclasses.replace(
    SETTINGS, segment_bytes=8_000, snapshot_tail_records=200, log_archive_retention_bytes=0
)


def _stall(node: ClusterNode) -> None:
    """Hold up the node's syncs on the disk thread."""
    count_fault("raftlog", "slow disk")
    node.host.hold_disk = True
    node.replica.group_commit.average_ms = 1000.0


def _relieve(node: ClusterNode) -> None:
    node.host.hold_disk = False
    while node.host.disk:
        node.host.do_disk()


def test_all_disks_that_stand_still_at_once_leave_no_node_without_a_timer() -> None:
    """No node may stand for election while its disk stalls; afterwards one must."""
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    cluster.settle()
    for node in cluster.running:
        _stall(node)
    leader.put(("in", "flight"))
    cluster.advance(8000)
    assert cluster.leader is None
    for node in cluster.running:
        _relieve(node)
    cluster.until(lambda: cluster.leader is not None, 3000)
    cluster.assert_equal()


def test_entries_that_waited_for_a_sync_are_checked_and_stop_no_node() -> None:
    """Entries that waited for the group in flight are checked like others: they harm neither the node nor the
    entries that wait after them."""
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(20)
    cluster.settle()
    follower = cluster.followers()[0]
    _stall(follower)
    leader.put(("in", "flight"))
    cluster.advance(5)
    assert follower.replica._journal.is_flushing
    frames = leader.replica._journal.frames_for(10, 20, 1 << 20)
    term = leader.replica.term
    terms = leader.log_terms()
    broken = Append(term, 9, terms[8], 0, cluster.now_ms, frames + frames[:10]).encode()
    follower.replica.peer_message(leader.number, broken)
    index = leader.put(("behind", "it"))
    cluster.advance(5)
    _relieve(follower)
    cluster.advance(20)
    assert follower.is_up
    assert follower.replica.last_index == index, "what waited behind it was dropped"
    cluster.assert_equal()


def test_a_term_that_cannot_be_stored_when_joining_ends_stops_the_node() -> None:
    """The last step of joining may come after a sync; its failure must not be lost."""
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(20)
    cluster.settle()
    lost = cluster.followers()[0]
    lost.wipe()
    lost.start()
    cluster.until(lambda: lost.replica._peering is not None)

    def fail(number: int, what: str, path: str) -> OSError | None:
        return OSError(5, "injected") if what == "fdatasync" and "/term" in path else None

    lost.files.fail = fail
    cluster.advance(2000)
    assert lost.fatal_message is not None


def test_what_a_joining_node_has_acknowledged_counts_when_it_has_joined() -> None:
    """No other entry is written: the leader must count again by itself."""
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(10)
    cluster.settle()
    lost, other = cluster.followers()
    lost.wipe()
    hold = [True]

    def no_word_of_joined(source: int, target: int, payload: bytes) -> bool:
        """Drop the third node's TERM messages to the replaced disk, so that it joins late."""
        return hold[0] and source == other.number and target == lost.number and payload[1] == MessageKind.TERM

    cluster.dropped = no_word_of_joined
    lost.start()
    peer = leader.replica._raft.progress.peers[lost.number]  # type: ignore[union-attr]
    cluster.until(lambda: peer.is_joining and peer.match_index >= 11 and peer.joined_index >= 0)
    other.pause()
    index = leader.put(("only", "here and there"))
    cluster.until(lambda: peer.match_index >= index, 100)
    assert leader.machine.committed_index < index
    hold[0] = False
    other.host.resume()
    cluster.dropped = lambda source, target, payload: (
        source == other.number and target == leader.number and payload[1] == MessageKind.ACK
    )
    cluster.until(lambda: not lost.replica.status()["is_joining"], 250)
    cluster.until(lambda: leader.machine.committed_index >= index, 200)


def test_a_snapshot_that_was_refused_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ReplicaCluster(settings=FORGETFUL).start()
    leader = cluster.elect()
    leader.put_many(50)
    cluster.settle()
    away = cluster.followers()[0]
    away.kill()
    for start in range(0, 1500, 50):
        for number in range(start, start + 50):
            leader.put((f"k{number % 97}", str(number)))
        cluster.advance(20)
    cluster.advance(200)
    refusals: list[bool] = []
    finish = SnapshotSink.finish

    def refuse_once(self: SnapshotSink, identity: object) -> object:
        if not refusals:
            refusals.append(True)
            self.abandon()
            raise PeerMessageRefused("damaged on its way")
        return finish(self, identity)  # type: ignore[arg-type]

    monkeypatch.setattr(SnapshotSink, "finish", refuse_once)
    away.start()
    cluster.until(lambda: refusals)
    cluster.until(lambda: away.replica.commit_index == leader.replica.commit_index, 6000)
    cluster.assert_equal()


def test_a_stop_while_the_log_is_loaded_ends() -> None:
    """A stop does not wait until the log is loaded."""
    cluster = ReplicaCluster(settings=dataclasses.replace(SETTINGS, load_slice_ms=0.0)).start()
    leader = cluster.elect()
    leader.put_many(3000)
    cluster.settle()
    stopped = cluster.followers()[0]
    stopped.kill()
    stopped.start()
    while not stopped.replica.last_index:
        cluster.step()
    assert stopped.replica.state is ReplicaState.LOADING
    done: list[bool] = []
    stopped.replica.stop(lambda: done.append(True))
    cluster.until(lambda: done, 100)
    stopped.directory.close()
    stopped.restart()
    cluster.assert_equal()
