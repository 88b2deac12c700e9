"""Components of pysyncobj that lose data or let strangers in, shown with real files, sockets and processes;
and checks that this project reaches none of them.

| Defect | The component | Shown here by |
|---|---|---|
| D8 | `FileJournal.deleteEntriesTo` rewrites the journal in place | kill -9 in the middle of it |
| D9 | `FileJournal` has no checksum and never syncs | a flipped bit is read as data |
| D12 | a journal without a dump file is accepted | the state is gone after a compaction |
| D13 | the transport unpickles what anybody sends, at every address | a file made by a stranger's bytes |
| D14 | `PipeNotifier` writes into a pipe until it is full | the 65,537th command raises |
| D17 | the dump is written by a forked child that keeps all sockets | the port stays taken |
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import pkgutil
import signal
import socket
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from pysyncobj import (
    SyncObj,
    SyncObjConf,
    journal,
    pipe_notifier,
    replicated,
    serializer,
    syncobj,
    tcp_connection,
    tcp_server,
    transport,
)

import raftlog
from raftlog.consensus.core import RaftCore
from raftlog.env.simulated_files import Crash, SimFiles
from tests.raftdefects.stock import Clock, StockCluster
from tests.report import count_fault
from tests.support.single_replica import SingleReplica, formatted

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

STOCK_COMPONENTS = (
    journal.FileJournal,
    journal.MemoryJournal,
    transport.TCPTransport,
    tcp_connection.TcpConnection,
    tcp_server.TcpServer,
    pipe_notifier.PipeNotifier,
)


def test_d8_kill_9_in_the_middle_of_a_trim_loses_the_log(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    script = f"""
import os, signal
from pysyncobj.journal import FileJournal
journal = FileJournal({str(path)!r})
for index in range(1, 20_001):
    journal.add(b"entry", index, 1)
add, done = journal.add, 0
def dying(*entry):
    global done
    done += 1
    if done == 500:
        os.kill(os.getpid(), signal.SIGKILL)
    add(*entry)
journal.add = dying
journal.deleteEntriesTo(100)
"""
    ended = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    count_fault("raftdefects", "kill -9")
    log = journal.FileJournal(str(path))
    assert len(log) == 499, "of 19,900 entries that were to stay"
    log._destroy()


def test_d9_a_flipped_bit_loads_silently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    synced: list[object] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(os, "fdatasync", synced.append)
    log = journal.FileJournal(str(path))
    log.add(b"pay 100", 1, 1)
    log.setCurrentTerm(7, "B")
    log._destroy()
    assert synced == [], "neither entries nor votes are ever synced"
    data = bytearray(path.read_bytes())
    data[data.index(b"pay 100") + 4] ^= 0x08
    path.write_bytes(data)
    count_fault("raftdefects", "flipped bit")
    log = journal.FileJournal(str(path))
    assert log[0] == (b"pay 900", 1, 1)
    log._destroy()


def test_d9_a_damaged_vote_is_read_as_none(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    log = journal.FileJournal(str(path))
    log.setCurrentTerm(7, "B")
    log._destroy()
    (tmp_path / "journal.meta").write_bytes(b"\x80")
    log = journal.FileJournal(str(path))
    assert (log.getCurrentTerm(), log.getVotedForNodeId()) == (0, None), "it may vote again in term 7"
    log._destroy()


def test_d12_a_journal_without_a_dump_file_loses_its_state(clock: Clock, tmp_path: Path) -> None:
    def on_files(name: str) -> dict[str, Any]:
        return {"journalFile": str(tmp_path / name)}

    stock = StockCluster(clock, on_files)
    leader = stock.elect("A")
    for number in range(100):
        leader.put(number)
    stock.run(0.5)
    for name in "ABC":
        stock[name].forceLogCompaction()
    stock.run(0.5)
    stock.close()
    again = StockCluster(clock, on_files)
    again.elect("A")
    again.run(0.5)
    assert [len(again[name].applied) for name in "ABC"] == [0, 0, 0]
    again.close()


class Marker:
    """An object that pickles to a call of `open`; any other call would work too."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


class Listening(SyncObj):  # type: ignore[misc]
    @replicated
    def put(self, value: Any) -> None:
        """Do nothing."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_d13_the_transport_runs_what_a_stranger_sends_and_listens_everywhere(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class OnLoopback(tcp_server.TcpServer):  # type: ignore[misc]
        def __init__(self, poller: object, host: str, *rest: object, **options: object) -> None:
            asked.append(host)
            super().__init__(poller, "127.0.0.1", *rest, **options)

    monkeypatch.setattr(transport, "TcpServer", OnLoopback)
    port, marker = free_port(), tmp_path / "made-by-a-stranger"
    node = Listening(f"127.0.0.1:{port}", [], SyncObjConf(autoTick=False))
    assert asked == ["0.0.0.0"], "though the address that it was given is 127.0.0.1"
    try:
        packet = zlib.compress(pickle.dumps(Marker(marker)))
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(struct.pack("i", len(packet)) + packet)
            for _ in range(200):
                node.doTick(0.01)
                if marker.exists():
                    break
        assert marker.exists()
    finally:
        node._doDestroy()


def test_d14_commands_fill_a_pipe(clock: Clock) -> None:
    address = f"127.0.0.1:{free_port()}"
    conf = SyncObjConf(autoTick=False, appendEntriesUseBatch=False, bindAddress=address)
    node = Listening(address, [], conf)
    taken = 0
    try:
        with contextlib.suppress(BlockingIOError):
            for _ in range(100_000):
                node.put(1)
                taken += 1
    finally:
        node._doDestroy()
        notifier = node._SyncObj__pipeNotifier
        os.close(notifier._PipeNotifier__pipeR)
        os.close(notifier._PipeNotifier__pipeW)
    assert taken == 65_536


def test_d17_the_child_that_writes_a_dump_keeps_the_port(tmp_path: Path) -> None:
    """The dump goes to a named pipe without a reader, so that the child surely still runs at the check; the
    script kills it at its end."""
    port = free_port()
    script = f"""
import os, signal, socket
from pysyncobj import SyncObj, SyncObjConf
os.mkfifo({str(tmp_path / "dump.tmp")!r})
address, dump = "127.0.0.1:{port}", {str(tmp_path / "dump")!r}
conf = SyncObjConf(autoTick=False, fullDumpFile=dump, logCompactionMinEntries=2, bindAddress=address)
node = SyncObj(address, [], conf)
node._SyncObj__raftElectionDeadline = 0
while not node._SyncObj__serializer._Serializer__pid:
    node.forceLogCompaction()
    node.doTick(0.01)
child = node._SyncObj__serializer._Serializer__pid
node._doDestroy()
try:
    again = socket.socket()
    again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    again.bind(("127.0.0.1", {port}))
    again.listen()
    print("free")
except OSError as error:
    print(error.strerror)
finally:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.strip() == "Address already in use"


# None of it can be reached


def modules() -> list[str]:
    return ["raftlog", *(module.name for module in pkgutil.walk_packages(raftlog.__path__, "raftlog."))]


def test_no_module_imports_what_is_replaced() -> None:
    """D8, D9, D13, D14, D17: no module of ours imports a component of the library that holds data."""
    for name in modules():
        reachable = [
            value for value in vars(importlib.import_module(name)).values() if isinstance(value, type)
        ]
        assert not set(reachable) & {*STOCK_COMPONENTS, serializer.Serializer}, name


def test_the_librarys_own_journals_are_refused() -> None:
    """D8, D9: the library's factory is replaced by one that creates no journal."""
    with pytest.raises(TypeError, match="the journal is always ours"):
        syncobj.createJournal("somewhere")
    with pytest.raises(TypeError, match="the journal is always ours"):
        syncobj.createJournal(None)


def test_a_node_never_reaches_what_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node leads, takes entries, is killed and starts again: nothing is pickled (D13), there is no pipe
    (D14), no dump and no child (D12, D17), and none of the library's components exists."""

    def reached(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("a component of the library is reached")

    for name in ("dumps", "loads", "dump", "load"):
        monkeypatch.setattr(syncobj.pickle, name, reached)
    monkeypatch.setattr(os, "fork", reached)
    monkeypatch.setattr(os, "pipe", reached)
    monkeypatch.setattr(socket, "socket", reached)
    for name in ("serialize", "deserialize", "getTransmissionData", "setTransmissionData"):
        monkeypatch.setattr(serializer.Serializer, name, reached)
    for component in STOCK_COMPONENTS:
        monkeypatch.setattr(component, "__init__", reached)
    files = SimFiles()
    node = SingleReplica(formatted(files)).start()
    for number in range(200):
        node.put_synced((f"k{number}", "v"))
        engine_of(node).tick(node.host.monotonic_ms())
    again = SingleReplica(files.crash(Crash.LOST), boot=2).start()
    assert again.replica.is_ready
    engine = engine_of(again).engine.library
    assert engine.conf.fullDumpFile is None
    assert not hasattr(engine, "_SyncObj__pipeNotifier")
    assert not isinstance(engine.conf.journalFile, STOCK_COMPONENTS)
    assert not isinstance(engine._SyncObj__transport, STOCK_COMPONENTS)


def engine_of(node: SingleReplica) -> RaftCore:
    engine = node.replica._raft
    assert engine is not None
    return engine
