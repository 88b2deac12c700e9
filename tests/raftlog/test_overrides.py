"""Each override of the library that one node alone can test: without it, a defect of the audit appears."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
from pysyncobj import syncobj

from raftlog.consensus import pysyncobj_engine
from raftlog.consensus.core import RaftCore
from raftlog.consensus.progress import majority
from raftlog.consensus.pysyncobj_engine import LastEntry
from raftlog.env.simulated_files import Crash, SimFiles
from tests.support.manual_host import Stopped
from tests.support.single_replica import PATH, SingleReplica, formatted


@pytest.fixture
def node() -> SingleReplica:
    files = SimFiles()
    formatted(files)
    return SingleReplica(files).start()


def _core(node: SingleReplica) -> RaftCore:
    raft = node.replica._raft
    assert raft is not None
    return raft


def test_the_librarys_commit_index_is_not_used(node: SingleReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    """D1, D18: the library's commit loop counts entries that are only in memory."""
    index = node.put(("a", "1"))
    core = _core(node)
    monkeypatch.delattr(pysyncobj_engine._Library, "_SyncObj__raftCommitIndex")
    library = core.engine.library
    library._SyncObj__raftCommitIndex = 0
    core.tick(node.host.monotonic_ms())
    assert library._SyncObj__raftCommitIndex == index, "without the override an unsynced entry is committed"
    assert core.commit_index == node.replica.commit_index == index - 1


@pytest.mark.parametrize("ablated", [False, True])
def test_an_election_does_not_walk_the_log(ablated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """D18: the library's commit loop looks at every entry above the commit index in each tick of a leader."""
    files = SimFiles()
    formatted(files)
    node = SingleReplica(files).start()
    for number in range(2000):
        node.put((f"k{number}", "v"))
    node.host.run()
    looked_at = 0
    library = pysyncobj_engine._Library
    look = library._SyncObj__getEntries

    def counting(self: object, *args: Any) -> object:
        nonlocal looked_at
        looked_at += 1
        return look(self, *args)

    monkeypatch.setattr(library, "_SyncObj__getEntries", counting)
    if ablated:
        monkeypatch.delattr(library, "_SyncObj__raftCommitIndex")
    assert SingleReplica(files.crash(Crash.KEPT), boot=2).start().replica.is_ready
    assert (looked_at > 2000) if ablated else (looked_at < 5)


def test_override_4_only_entries_of_the_own_term_commit(
    node: SingleReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raft 5.4.2: an entry of an earlier term commits with one of the own term, never by counting."""
    node.put(("a", "1"))
    work = node.replica._journal.begin_flush()
    work()
    node.replica._journal.end_flush()
    raft = _core(node)
    before = raft.commit_index
    monkeypatch.setattr(raft._log, "term_at", lambda index: 0)
    raft.commit()
    assert raft.commit_index == before
    monkeypatch.undo()
    raft.commit()
    assert raft.commit_index == before + 1


def test_override_5_the_command_queue_is_dead(node: SingleReplica) -> None:
    """D14: with the library's own queue a pipe fills after 65,536 commands."""
    raft = _core(node)
    raft.engine.library._applyCommand(b"x", None)
    raft.tick(node.host.monotonic_ms())
    assert node.replica.last_index == 1


def test_override_6_the_barrier_is_per_term_and_not_one_shot(node: SingleReplica) -> None:
    raft = _core(node)
    applied = node.replica._applying.applied_index
    assert raft.is_serving(applied)
    raft.engine.library._SyncObj__onReadyCalled = True  # the library's isReady() is true from now on
    raft._first_index = applied + 1  # a new term's first entry is not applied yet
    assert raft.engine.library.isReady()
    assert not raft.is_serving(applied)


def test_override_7_a_start_believes_no_commit_index(node: SingleReplica) -> None:
    """D6: a commit index beyond the log's end would acknowledge without a quorum."""
    node.put_synced(("a", "1"))
    view = LastEntry(node.replica._journal, (1, None), _core(node))
    view.setRaftCommitIndex(10_000)
    assert view.getRaftCommitIndex() == 0
    assert view[:] == [(b"", 2, 1)]


def test_override_7_the_library_never_compacts_or_forks(node: SingleReplica) -> None:
    """D7, D8, D12, D17: no dump file is known to it, and its compaction is not reached."""
    raft = _core(node)
    library = raft.engine.library
    assert library.conf.fullDumpFile is None
    library.conf.logCompactionMinEntries = 0
    library.forceLogCompaction()
    for number in range(10):
        node.put_synced((f"k{number}", "v"))
        raft.tick(node.host.monotonic_ms())
    assert node.replica.last_index == 11
    assert library._SyncObj__forceLogCompaction is True


def test_override_7_a_term_counts_only_when_it_is_synced() -> None:
    files = SimFiles()
    formatted(files)
    files.fail = lambda number, operation, path: (
        OSError(5, "injected") if operation == "fsync_dir" and path.endswith("shard-0") else None
    )
    node = SingleReplica(files)
    with pytest.raises(Stopped, match="injected"):
        node.start()
    assert not node.replica.is_leader
    assert node.replica.term == 0
    files.fail = None
    again = SingleReplica(files.crash(Crash.LOST), boot=2).start()
    assert again.replica.term == 1


def test_a_node_alone_needs_no_ticks_and_no_threads(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[int] = []
    threads: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", threads.append)
    node: SingleReplica = request.getfixturevalue("node")
    raft = _core(node)
    raft.tick = lambda now_ms: ticks.append(1)  # type: ignore[method-assign]
    node.host.advance(3_600_000)
    assert ticks == []
    assert raft.is_leader
    assert threads == []


def test_its_clock_is_the_callers(node: SingleReplica) -> None:
    _core(node).tick(123_456.0)
    assert syncobj.monotonicTime() == 123.456


def test_another_release_of_the_library_is_refused() -> None:
    code = (
        "import pysyncobj.version; pysyncobj.version.VERSION = '0.3.18'\n"
        "try:\n    import raftlog.consensus.core\n"
        "except ImportError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "install pysyncobj==0.3.17" in said
    assert pysyncobj_engine.PINNED_VERSION in said


def test_a_majority_is_more_than_half() -> None:
    assert majority([7]) == 7
    assert majority([7, 3, 1]) == 3
    assert majority([9, 8, 3, 2]) == 3
    assert majority([9, 8, 7, 2, 1]) == 7


def test_a_damaged_term_file_stops_the_node(node: SingleReplica) -> None:
    """The stock library ignores the damage and begins again with term 0 and no vote."""
    node.stop()
    disk = node.host.files
    assert isinstance(disk, SimFiles)
    disk.damage(f"{PATH}/shard-0/term", 14)
    with pytest.raises(Stopped, match=r"shard-0/term: byte 4: the CRC of this term file does not match"):
        SingleReplica(disk, boot=2).start()
