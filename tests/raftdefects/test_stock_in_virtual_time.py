"""Defects of the unmodified pysyncobj 0.3.17 that damage data, in virtual time.

| Defect | Shown here by | What it costs |
|---|---|---|
| D1 | a follower that gets a batch again cuts off what it acknowledged since | acknowledged entries lost |
| D2 | acknowledgements carry no term | a leader commits what no other node has |
| D4 | a callback or an apply that raises leaves the entry to be applied again | replicas differ |
| D5 | a deposed leader calls nobody back, and leads on for 30 s | clients wait for ever; two leaders |
| D6 | a commit index beyond the end of the log is believed | an isolated leader acknowledges alone |
| D7 | a crash between dump and trim clears the journal | acknowledged entries gone on all nodes |
| D10 | a damaged dump is only logged | an empty node leads |
| D11 | a divergent tail goes back one entry per heartbeat | half a minute without a replica |
| D15/16 | ready once is ready for ever; "leader changed" for what commits | stale reads; applied twice |
| D18 | each tick of a leader walks all that is not committed | heartbeats too late to stay leader |

None needs more than a slow link, a crash or an exception. `test_ours.py` has the other half: the same
scenarios on our engine, with the override that prevents the defect switched off, and with all of them on.
"""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from pysyncobj import FAIL_REASON, SERIALIZER_STATE
from pysyncobj.journal import MemoryJournal
from pysyncobj.node import Node

from tests.raftdefects.stock import NAMES, SUCCESS, Clock, StockCluster, StockNode
from tests.report import count_fault

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)  # the library does not close what it reads


def lose_acknowledged_entries(stock: StockCluster) -> tuple[set[int], set[int]]:
    """D1: return the values acknowledged to clients, and the values that the next leader applied."""
    leader, follower = stock.elect("A"), stock["B"]
    stock.held.add(("A", "C"))  # C is merely slow
    acknowledged: set[int] = set()
    for number in range(1000):
        leader.put(
            (number, bytes(200)),
            callback=lambda _result, error, number=number: error or acknowledged.add(number),
        )
    stock.tick("A", 0.2)  # appends them to its log
    stock.tick("A", 0.2)  # sends them, four batches
    stock.deliver("A", "B", 2)
    stock.deliver("B", "A")
    stock.tick("A", 0.2)  # an acknowledgement took its next index back: it sends batches again
    while follower.last_index < leader.last_index:
        stock.deliver("A", "B", 1)
    stock.deliver("B", "A")
    stock.tick("A", 0.01)  # commits, and calls back
    stock.deliver("A", "B", 1)  # the first of the batches that B has already
    stock.crash("A")
    stock.held.clear()
    stock.run(6.0)
    (winner,) = stock.leaders()
    return acknowledged, {value[0] for value in stock[winner].applied}


def test_d1_a_batch_that_comes_twice_truncates_what_was_acknowledged(stock: StockCluster) -> None:
    acknowledged, kept = lose_acknowledged_entries(stock)
    assert len(acknowledged) > 900
    assert len(acknowledged - kept) > 400
    count_fault("raftdefects", "acknowledged entry lost by the stock library", len(acknowledged - kept))


def test_d2_an_acknowledgement_of_an_old_term_commits_in_a_new_one(stock: StockCluster) -> None:
    stock.elect("A")
    stock.elect("B")
    leader = stock.elect("A")
    for name in NAMES:
        stock.hold(name)
    told: list[int] = []
    leader.put("x", callback=lambda _result, error: told.append(error))
    late = {"type": "next_node_idx", "next_node_idx": 10**6, "reset": False, "success": True}
    leader.transport._onMessageReceived(Node("B"), late)  # it has been in flight since A's first term
    for _ in range(3):
        stock.tick("A", 0.11)
    assert told == [SUCCESS]
    assert all(stock[name].last_index < leader.last_index for name in "BC")


def test_d4_a_callback_that_raises_applies_the_entry_again_on_that_node_only(stock: StockCluster) -> None:
    leader = stock.elect("A")
    calls: list[object] = []

    def callback(_result: object, _error: object) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("the client has gone")

    leader.put("x", callback=callback)
    with pytest.raises(ValueError, match="the client has gone"):
        stock.run(1.0)
    stock.run(1.0)
    assert {name: stock[name].applied for name in NAMES} == {"A": ["x", "x"], "B": ["x"], "C": ["x"]}


def test_d4_an_apply_that_raises_is_repeated_for_ever(stock: StockCluster) -> None:
    leader = stock.elect("A")
    leader.poison("x")
    raised = 0
    for _ in range(200):
        for name in NAMES:
            try:
                stock.tick(name, 0.01)
            except RuntimeError:
                raised += 1
        stock.deliver_all()
    assert raised > 50
    assert len(leader.applied) > 20, "the same entry again and again"


def test_d5_a_deposed_leader_never_calls_back_and_leads_on(stock: StockCluster) -> None:
    leader = stock.elect("A")
    told: list[int] = []
    stock.hold("A")
    for number in range(10):
        leader.put(number, callback=lambda _result, error: told.append(error))
    stock.run(0.5)
    stock.nodes["B"]._SyncObj__raftElectionDeadline = 0
    stock.run(20.0)
    assert set(stock.leaders()) >= {"A"}
    assert len(stock.leaders()) == 2, "two leaders for twenty seconds"
    for way in [way for way in stock.links if "A" in way]:
        stock.links[way].clear()  # the connections broke
    stock.held.clear()
    stock.run(20.0)
    assert not stock["A"]._isLeader()
    assert len(told) < 10, "callbacks that nobody will ever call"


def test_d6_a_commit_index_beyond_the_log_is_believed(clock: Clock, tmp_path: Path) -> None:
    def on_files(name: str) -> dict[str, Any]:
        return {"journalFile": str(tmp_path / name)}

    stock = StockCluster(clock, on_files)
    leader = stock.elect("A")
    for number in range(50):
        leader.put(number)
    stock.run(3.0)
    for name in NAMES:
        assert stock[name].raftCommitIndex == 52
    stock.close()
    for name in NAMES:
        _lose_tail(tmp_path / name, keep=10)  # a power failure: the journal is never synced
    again = StockCluster(clock, on_files)
    leader = again.elect("A")
    assert leader.last_index < leader.raftCommitIndex
    again.hold("A")
    told: list[int] = []
    leader.put("alone", callback=lambda _result, error: told.append(error))
    for _ in range(5):
        again.tick("A", 0.05)
    assert told == [SUCCESS], "acknowledged by a leader that reaches nobody"
    assert all("alone" not in again[name].applied for name in "BC")
    again.close()


def _lose_tail(path: Path, keep: int) -> None:
    """Restore the journal's header to that of its first `keep` entries."""
    data = bytearray(path.read_bytes())
    at = 40
    for _ in range(keep):
        at += struct.unpack_from("<I", data, at)[0] + 8
    struct.pack_into("<I", data, 36, at)
    path.write_bytes(data)


class Dumps:
    """The library's documented hook for dumps; the end of the child that writes one stays unnoticed."""

    def __init__(self) -> None:
        self.nodes: dict[str, StockNode] = {}

    def conf(self, name: str, home: Path) -> dict[str, Any]:
        def serializer(path: str, data: Any) -> None:
            Path(path).write_bytes(pickle.dumps((self.nodes[name].applied, data)))

        def deserializer(path: str) -> Any:
            applied, data = pickle.loads(Path(path).read_bytes())
            self.nodes[name].applied = applied
            return data

        return {
            "journalFile": str(home / f"{name}.journal"),
            "fullDumpFile": str(home / f"{name}.dump"),
            "serializer": serializer,
            "deserializer": deserializer,
            "serializeChecker": lambda: SERIALIZER_STATE.NOT_SERIALIZING,
        }


def test_d7_a_crash_between_dump_and_trim_clears_the_journal(clock: Clock, tmp_path: Path) -> None:
    dumps = Dumps()
    stock = StockCluster(clock, lambda name: dumps.conf(name, tmp_path))
    dumps.nodes = stock.nodes
    leader = stock.elect("A")
    acknowledged: set[int] = set()
    for number in range(100):
        leader.put(number, callback=lambda _result, error, number=number: error or acknowledged.add(number))
    stock.run(1.0)
    for name in NAMES:
        stock[name].forceLogCompaction()
    stock.run(0.1)  # the dump is in its place; the library waits for its child to be reaped
    for number in range(100, 200):
        leader.put(number, callback=lambda _result, error, number=number: error or acknowledged.add(number))
    stock.run(1.0)
    assert len(acknowledged) == 200
    stock.close()  # all three are killed; not even the page cache is lost
    again = StockCluster(clock, lambda name: dumps.conf(name, tmp_path))
    dumps.nodes = again.nodes
    again.elect("A")
    again.run(2.0)
    for name in NAMES:
        assert len(again[name].applied) == 100, "the second hundred is gone on every node"
    again.close()


def test_d10_a_node_with_a_damaged_dump_starts_empty_and_leads(clock: Clock, tmp_path: Path) -> None:
    def on_files(name: str) -> dict[str, Any]:
        paths = {
            "journalFile": str(tmp_path / f"{name}.journal"),
            "fullDumpFile": str(tmp_path / f"{name}.dump"),
        }
        return {**paths, "useFork": False}

    stock = StockCluster(clock, on_files)
    leader = stock.elect("A")
    for number in range(100):
        leader.put(number)
    stock.run(0.5)
    for name in NAMES:
        stock[name].forceLogCompaction()
    stock.run(0.5)
    stock.close()
    (tmp_path / "A.dump").write_bytes(b"")  # renamed without a sync, then the power failed
    again = StockCluster(clock, on_files)
    leader = again.elect("A")
    again.run(2.0)
    assert leader.applied == []
    assert len(again["B"].applied) == 100
    again.close()


def resynchronise(stock: StockCluster, tail: int) -> float:
    """D11: return how many seconds a deposed leader with `tail` entries of its own takes to catch up."""
    old = stock.elect("A")
    stock.run(0.2)
    stock.hold("A")
    for number in range(tail):
        old.put(number)
    stock.run(0.1)
    new = stock.elect("B")
    for number in range(tail + 20):
        new.put(-number)
    stock.run(0.5)
    for way in [way for way in stock.links if "A" in way]:
        stock.links[way].clear()
    stock.held.clear()
    started_s = stock.clock.now_s
    while old.log != new.log and stock.clock.now_s < started_s + 120:
        stock.run(0.1, step_s=0.02)
    return stock.clock.now_s - started_s


def test_d11_a_divergent_tail_goes_back_one_entry_per_heartbeat(stock: StockCluster) -> None:
    assert resynchronise(stock, 200) > 15


def test_d15_ready_once_is_ready_for_ever(stock: StockCluster) -> None:
    stock.elect("A")
    stock.run(1.0)
    follower = stock["C"]
    assert follower.isReady()
    stock.hold("C")
    stock["A"].put("newer")
    stock.run(60.0)
    assert stock["A"].applied == ["newer"]
    assert follower.isReady()
    assert follower.applied == [], "a minute behind, and it says that it is ready"


def test_d16_leader_changed_is_said_of_a_command_that_commits(stock: StockCluster) -> None:
    stock.elect("A")
    stock.run(1.0)
    told: list[int] = []
    stock["B"].put("once", callback=lambda _result, error: told.append(error))
    stock.tick("B", 0.01)
    stock.deliver("B", "A")
    stock.tick("A", 0.2)  # in its log
    stock.tick("A", 0.2)  # sent to both
    stock.deliver("A", "C")  # C has it, and wins
    stock.links["A", "B"].clear()
    stock.crash("A")
    stock["C"]._SyncObj__raftElectionDeadline = 0
    stock.run(1.0)
    assert told == [FAIL_REASON.LEADER_CHANGED]
    stock["B"].put("once")  # so the client tries again
    stock.run(1.0)
    assert stock["C"].applied == ["once", "once"]


def test_d18_a_leader_walks_all_that_is_not_committed_in_every_tick(clock: Clock) -> None:
    """At 20 µs per entry, 100,000 of them make one tick longer than any follower waits for a heartbeat."""
    entries, cost_s = 100_000, 2e-5
    preloaded = MemoryJournal()
    for index in range(1, entries + 1):
        preloaded.add(b"\1", index, 1)
    looked_at = 0

    class Restarted(StockNode):
        def _SyncObj__getEntries(self, *args: Any) -> Any:
            nonlocal looked_at
            looked_at += 1
            clock.now_s += cost_s
            return super()._SyncObj__getEntries(*args)

    class Restart(StockCluster):
        node_class = Restarted

    stock = Restart(clock)
    for name in NAMES:
        held = MemoryJournal()
        held._MemoryJournal__journal = list(preloaded[:])
        stock[name]._SyncObj__raftLog = held
        stock[name]._SyncObj__raftCurrentTerm = 1
    started_s = clock.now_s
    while stock["A"].raftCommitIndex <= entries:
        stock.run(0.1)
    assert looked_at > 2 * entries
    assert max(stock[name].raftCurrentTerm for name in NAMES) > 2, "leaders that could not stay leader"
    assert clock.now_s - started_s > 4, "where one election takes 0.4 to 1.4 s"
