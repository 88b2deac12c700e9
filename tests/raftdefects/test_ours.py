"""The stock library's defects, tried on our engine: three replicas in virtual time, with the override that
prevents a defect switched off, and with all overrides on.

Each test runs one scenario twice. `off` is the engine without the override; the scenario must then show the
defect, or it proves nothing. `RaftCore` is the core as it is, and must not show it. (The stock library in the
same scenarios is in `test_stock_in_virtual_time.py`; components that we do not use at all are in
`test_stock_components.py`.)

| Defect | Override | Switched off |
|---|---|---|
| D1 | 1 `first_new`: truncate at the first conflict only | truncate behind what the message follows |
| D1 | 4 `acknowledged`: only what is synced | what is in memory |
| D2 | 1 `is_answer`: of the own term | of any term |
| D4 | 3 fail-stop while applying | go on, and apply again |
| D5 | 5 waiters hear of the end; fall back after 300 ms | nobody is told; 30 s |
| D6 | 7 `getRaftCommitIndex`: the snapshot's | what was stored once |
| D7 | 7 `__tryLogCompaction` does nothing | the library's |
| D10 | 7 a damaged snapshot stops the node | it is only logged |
| D11 | 1 `back_off`: by whole terms | by one entry |
| D15 | 6 `is_serving`: the own term's first entry is applied | leads, hence serves |
| D16 | 5 `propose`, no forwarding, no verdict on what may still commit | (nothing to switch off) |
| D18 | 4 `committable`, the library's `matchIndex` stays 0 | the library commits |
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import pytest
from pysyncobj import syncobj

from raftlog.consensus import pysyncobj_engine
from raftlog.consensus.core import RaftCore
from raftlog.consensus.messages import Ack, Append, Reject, SnapshotAck, decode
from raftlog.env.errors import Corrupt
from raftlog.env.simulated_files import Crash
from raftlog.replica.applier import Applier
from raftlog.replica.replica import Replica
from tests.report import count_fault
from tests.support.replica_cluster import PATH, ClusterMachine, ClusterNode, ReplicaCluster
from tests.support.single_replica import SETTINGS

SMALL_BATCHES = dataclasses.replace(SETTINGS, replicate_batch_bytes=500)


def started(engine: type[RaftCore] = RaftCore, **cluster: Any) -> tuple[ReplicaCluster, ClusterNode]:
    """Return three nodes and their leader."""
    made = ReplicaCluster(engine=engine, **cluster).start()
    leader = made.elect()
    made.settle()
    return made, leader


def hold(cluster: ReplicaCluster, *ways: tuple[int, int]) -> None:
    """Drop all messages sent on these ways, without the links noticing."""
    count_fault("raftdefects", "one-way cut", len(ways))
    cluster.cut |= set(ways)


def next_leaders_log(cluster: ReplicaCluster) -> int:
    """Return the index of the next leader's last entry, without the first one of its own term."""
    cluster.until(lambda: any(node.replica.is_leader for node in cluster.running))
    return max(node.replica.last_index for node in cluster.running if node.replica.is_leader) - 1


# D1


class TruncatesAlways(RaftCore):
    def first_new(self, frames: bytes, prev: int) -> tuple[int, int]:
        return 0, prev


def lose_with_a_batch_that_comes_twice(engine: type[RaftCore]) -> tuple[int, int]:
    """Return the last acknowledged entry and the last entry of the next leader."""
    cluster, leader = started(engine, settings=SMALL_BATCHES)
    follower, slow = cluster.followers()
    hold(cluster, (leader.number, slow.number))
    batches: list[bytes] = []

    def overhear(source: int, target: int, payload: bytes) -> bool:
        message = decode(payload)
        if target == follower.number and isinstance(message, Append) and message.frames:
            batches.append(payload)
        return False

    cluster.dropped = overhear
    last = leader.put_many(100)
    cluster.until(lambda: leader.machine.committed_index >= last)
    assert len(batches) > 3
    follower.replica.peer_message(leader.number, batches[1])
    leader.kill()
    cluster.heal()
    return last, next_leaders_log(cluster)


def test_d1_a_batch_that_comes_twice_truncates_nothing() -> None:
    acknowledged, kept = lose_with_a_batch_that_comes_twice(TruncatesAlways)
    assert kept < acknowledged
    acknowledged, kept = lose_with_a_batch_that_comes_twice(RaftCore)
    assert kept == acknowledged


class AcknowledgesWhatIsInMemory(RaftCore):
    def acknowledged(self, matched_index: int) -> int:
        return matched_index

    def committable(self) -> int:
        index = self.progress.commit_index(self._log.last_index)
        return index if self._log.term_at(index) == self.term else 0


def lose_with_a_power_failure(engine: type[RaftCore]) -> tuple[int, int]:
    cluster, leader = started(engine)
    for node in cluster.running:
        node.host.hold_disk = True
        node.replica.group_commit.average_ms = 100.0  # syncs are slow, so they run on the disk thread
    last = leader.put_many(50)
    cluster.advance(20)
    acknowledged = min(leader.machine.committed_index, last)
    for node in cluster.nodes.values():
        node.kill(Crash.LOST)
    cluster.start()
    return acknowledged, next_leaders_log(cluster)


def test_d1_only_what_is_synced_is_acknowledged() -> None:
    acknowledged, kept = lose_with_a_power_failure(AcknowledgesWhatIsInMemory)
    assert kept < acknowledged
    acknowledged, kept = lose_with_a_power_failure(RaftCore)
    assert kept >= acknowledged


# D2


class CountsAnswersOfAnyTerm(RaftCore):
    def is_answer(self, term: int) -> bool:
        return self.is_leader


def commit_with_an_old_answer(engine: type[RaftCore]) -> bool:
    """Return whether a leader that reaches no peer commits."""
    cluster, leader = started(engine)
    old_term = leader.replica.term
    leader.restart()
    leader = cluster.elect()
    assert leader.replica.term > old_term
    others = [node.number for node in cluster.followers()]
    hold(
        cluster, *((leader.number, other) for other in others), *((other, leader.number) for other in others)
    )
    index = leader.put(("a", "1"))
    late = Ack(old_term, index, 0, cluster.now_ms)
    leader.replica.peer_message(others[0], late.encode())
    cluster.advance(20)
    return leader.machine.committed_index >= index


def test_d2_an_answer_of_an_old_term_counts_for_nothing() -> None:
    assert commit_with_an_old_answer(CountsAnswersOfAnyTerm)
    assert not commit_with_an_old_answer(RaftCore)


# D4


def apply_what_raises(patch: pytest.MonkeyPatch) -> tuple[int, bool]:
    """Return how often a follower applied an entry that raises, and whether it still runs."""
    cluster, leader = started()
    follower = cluster.followers()[0]
    applied = 0

    def broken(*_entry: object) -> None:
        nonlocal applied
        applied += 1
        raise RuntimeError("a bug in the state machine")

    patch.setattr(follower.machine, "apply_frame", broken)
    for number in range(5):
        leader.put_committed(("a", str(number)))
        cluster.advance(100)
    return applied, follower.host.fatal_message is None


def test_d4_an_entry_that_cannot_be_applied_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as off:
        off.setattr(Replica, "fail", lambda self, error: None)
        applied, runs = apply_what_raises(off)
        assert applied > 1
        assert runs
    assert apply_what_raises(monkeypatch) == (1, False)


# D5


class TellsNobody(RaftCore):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.engine.library.conf.leaderFallbackTimeout = 30.0

    def leadership_changed(self, *, is_leader: bool) -> None:
        """Notify no waiter, as the library never calls their callbacks."""
        self.is_leader, self.leader_id = is_leader, None


def cut_a_leader_off(engine: type[RaftCore]) -> tuple[int, float]:
    """Return how often its waiters were notified, and for how many ms two nodes led."""
    cluster, old = started(engine)
    others = [node.number for node in cluster.followers()]
    old.put(("a", "1"))
    hold(cluster, *((old.number, other) for other in others), *((other, old.number) for other in others))
    cluster.until(lambda: any(cluster.nodes[other].replica.is_leader for other in others))
    began_ms = cluster.now_ms
    while old.replica.is_leader and cluster.now_ms < began_ms + 10_000:
        cluster.advance(10)
    return len(old.machine.deposed_reasons), cluster.now_ms - began_ms


def test_d5_a_leader_without_contact_tells_its_waiters_and_ends_soon() -> None:
    told, both_ms = cut_a_leader_off(TellsNobody)
    assert told == 0
    assert both_ms >= 10_000
    told, both_ms = cut_a_leader_off(RaftCore)
    assert told == 1
    assert both_ms < SETTINGS.raft_min_timeout_ms


# D6


class BelievesAStoredCommitIndex(RaftCore):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.commit_index = 1_000


def believe_a_stored_commit_index(engine: type[RaftCore]) -> bool:
    """Return whether a leader that reaches no peer commits, after a power failure that took its log's end."""
    cluster, leader = started()
    for number in range(5):
        leader.put_committed(("a", str(number)))
    for node in cluster.nodes.values():
        node.kill(Crash.LOST)
    cluster.engine = engine
    cluster.start()
    cluster.until(lambda: any(node.replica.is_leader for node in cluster.running))
    (leader,) = [node for node in cluster.running if node.replica.is_leader]
    others = [number for number in cluster.voters if number != leader.number]
    hold(
        cluster, *((leader.number, other) for other in others), *((other, leader.number) for other in others)
    )
    return leader.replica.commit_index >= leader.replica.last_index


def test_d6_a_start_believes_no_commit_index_beyond_its_log() -> None:
    assert believe_a_stored_commit_index(BelievesAStoredCommitIndex)
    assert not believe_a_stored_commit_index(RaftCore)


# D7


def test_d7_the_librarys_compaction_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the override it runs, and finds one entry, which is not enough to compact."""
    for is_off in (True, False):
        with monkeypatch.context() as patch:
            if is_off:
                patch.delattr(pysyncobj_engine._Library, "_SyncObj__tryLogCompaction")
            cluster, leader = started()
            leader.put_committed(("a", "1"))
            engine = leader.replica._raft
            assert engine is not None
            library = engine.engine.library
            library.forceLogCompaction()
            cluster.advance(1_000)
            assert library._SyncObj__forceLogCompaction is not is_off
            assert leader.is_up
            assert leader.replica._journal.base_index == 0


def test_d7_a_crash_between_snapshot_and_trim_loses_nothing() -> None:
    """All nodes are killed in the same instant, with the snapshot in place and the log not yet trimmed."""
    settings = dataclasses.replace(SETTINGS, segment_bytes=4096, snapshot_tail_records=64)
    cluster, leader = started(settings=settings)
    placed: list[int] = []

    def on_call(_number: int, operation: str, path: str, done: bool) -> None:
        if operation == "rename" and path.endswith("/snapshot") and done:
            placed.append(leader.machine.committed_index)

    leader.files.on_call = on_call
    last = 0
    while not placed:
        last = leader.put_committed((f"k{last % 10}", str(last)))
    for node in cluster.nodes.values():
        node.kill()
    cluster.start()
    again = cluster.elect()
    assert again.replica.last_index > last
    cluster.assert_equal()


# D10


def start_on_a_damaged_snapshot(patch: pytest.MonkeyPatch, *, off: bool) -> ClusterNode:
    settings = dataclasses.replace(SETTINGS, segment_bytes=4096, snapshot_tail_records=64)
    cluster, leader = started(settings=settings)
    number = 0
    while leader.replica._journal.base_index == 0:
        number += 1
        leader.put_committed((f"k{number % 10}", str(number)))
    leader.kill()
    leader.files.damage(f"{PATH}/shard-0/snapshot", 40)
    count_fault("raftdefects", "damaged snapshot")
    if off:
        restore = Applier.restore

        def careless(self: Applier) -> Any:
            with contextlib.suppress(Corrupt):  # log the damage and go on without the snapshot
                yield from restore(self)

        patch.setattr(Applier, "restore", careless)
    leader.start()
    cluster.advance(5_000)
    return leader


def test_d10_a_damaged_snapshot_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with the override off it does not lead with an empty state: its log does not begin at index 1."""
    with monkeypatch.context() as patch:
        careless = start_on_a_damaged_snapshot(patch, off=True)
        assert "snapshot: byte" not in (careless.fatal_message or "")
    node = start_on_a_damaged_snapshot(monkeypatch, off=False)
    assert not node.is_up
    assert "snapshot" in (node.fatal_message or "")


# D11


class BacksOffByOne(RaftCore):
    def back_off(self, index: int) -> int:
        return index


def resynchronise(engine: type[RaftCore], tail: int) -> int:
    """Return how many refusals precede the first match of a deposed leader with `tail` entries of its own."""
    cluster, old = started(engine, settings=SMALL_BATCHES)
    others = [node.number for node in cluster.followers()]
    cluster.isolate(old.number)
    old.put_many(tail, prefix="lost")
    cluster.until(lambda: any(cluster.nodes[other].replica.is_ready for other in others))
    (new,) = (cluster.nodes[other] for other in others if cluster.nodes[other].replica.is_ready)
    new.put_many(tail + 20, prefix="kept")
    refusals = 0

    def count(source: int, _target: int, payload: bytes) -> bool:
        nonlocal refusals
        refusals += source == old.number and isinstance(decode(payload), Reject)
        return False

    cluster.advance(1_000)
    cluster.dropped = count
    cluster.heal()
    cluster.settle()
    cluster.assert_equal()
    return refusals


def test_d11_a_divergent_tail_goes_back_by_whole_terms() -> None:
    assert resynchronise(BacksOffByOne, 200) > 100
    assert resynchronise(RaftCore, 200) < 6


# D15, D16


class ServesAtOnce(RaftCore):
    def is_serving(self, applied_index: int) -> bool:
        return self.is_leader


def serve_after_a_restart(engine: type[RaftCore], patch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Return the last acknowledged entry and the applied index when a node first reported that it serves."""
    cluster, leader = started(engine)
    last = leader.put_many(300)
    cluster.until(lambda: leader.machine.committed_index >= last)
    for node in cluster.nodes.values():
        node.kill()
    applied: list[int] = []
    ready = ClusterMachine.ready

    def watched(self: ClusterMachine, term: int) -> None:
        applied.append(self.applied)
        ready(self, term)

    patch.setattr(ClusterMachine, "ready", watched)
    cluster.start()
    cluster.elect()
    return last, applied[0]


def test_d15_a_leader_serves_when_it_has_applied_all_that_was_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        acknowledged, applied = serve_after_a_restart(ServesAtOnce, patch)
        assert applied < acknowledged
    acknowledged, applied = serve_after_a_restart(RaftCore, monkeypatch)
    assert applied > acknowledged


def test_d16_an_entry_that_may_still_commit_is_not_called_failed() -> None:
    """The leader dies with an entry that one follower has: it commits, once, and was never called failed."""
    cluster, leader = started()
    follower, slow = cluster.followers()
    hold(cluster, (leader.number, slow.number), (follower.number, leader.number))
    index = leader.put(("a", "1"))
    cluster.until(lambda: follower.replica.last_index == index)
    assert leader.machine.committed_index < index
    leader.kill()
    cluster.heal()
    successor = cluster.elect()
    assert successor is follower, "the one that has it"
    cluster.settle()
    found = [
        number for number, (_, body) in successor.machine.log.items() if b"\xa1a" in body or number == index
    ]
    assert found == [index]
    assert leader.machine.deposed_reasons == []


# D18


class LetsTheLibraryCommit(RaftCore):
    def committable(self) -> int:
        return 0

    def answered(self, peer: int, message: Ack | Reject | SnapshotAck, now_ms: float) -> bool:
        if isinstance(message, Ack):
            node = self.engine._nodes[peer]
            self.engine.library._SyncObj__raftMatchIndex[node] = message.match_index
        return super().answered(peer, message, now_ms)


def walk(engine: type[RaftCore], patch: pytest.MonkeyPatch) -> int:
    """Return how often the library reads its log between a full restart and the first elected leader."""
    cluster, leader = started()
    last = leader.put_many(2_000)
    cluster.until(lambda: leader.machine.committed_index >= last)
    for node in cluster.nodes.values():
        node.kill()
    cluster.engine = engine
    looked_at = 0
    look = syncobj.SyncObj._SyncObj__getEntries

    def counting(self: syncobj.SyncObj, *arguments: Any) -> Any:
        nonlocal looked_at
        looked_at += 1
        return look(self, *arguments)

    patch.setattr(pysyncobj_engine._Library, "_SyncObj__getEntries", counting)
    cluster.start()
    cluster.until(lambda: any(node.replica.is_leader for node in cluster.running))
    cluster.advance(500)
    return looked_at


def test_d18_an_election_does_not_walk_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(pysyncobj_engine._Library, "_SyncObj__raftCommitIndex")
        assert walk(LetsTheLibraryCommit, patch) > 1_000
    with monkeypatch.context() as patch:
        assert walk(RaftCore, patch) < 100
