"""Crash points, enumerated: a recorded run is stopped before and after every call that changes the disk, with
unsynced bytes kept, lost or torn. The disk that is left must open and hold every acknowledged entry.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno

import pytest

from raftlog.env.errors import RaftlogError
from raftlog.env.simulated_files import Crash, SimFile, SimFiles
from raftlog.offline.reader import ShardReader
from raftlog.storage.directory import NotFormatted, format_node
from raftlog.storage.group_commit import MARK_EVERY_MS
from tests.report import count_fault
from tests.support.manual_host import Stopped
from tests.support.single_replica import IDENTITY, PATH, SETTINGS, SingleReplica

CRASHING = dataclasses.replace(
    SETTINGS,
    segment_bytes=6_000,
    snapshot_tail_records=100,
    delete_retention_ms=0,
    log_archive_retention_bytes=9_000,
)
"""Small bounds, so that a short run rolls, seals, snapshots, archives and drops."""
CRASH_POINTS_MIN = 2750
FAILING_CALLS_MIN = 400
STOPPED_MIN = 250

Acknowledged = dict[str, str]


class Run:
    """The recorded run; `sent` is everything proposed."""

    def __init__(self, disk: SimFiles) -> None:
        self.disk = disk
        self.formatted = False
        self.sent: list[tuple[str, str]] = []
        self.node: SingleReplica | None = None
        self._indexes: list[tuple[int, int]] = []

    @property
    def acknowledged(self) -> int:
        """Return how many of `sent` have been acknowledged so far."""
        committed = 0 if self.node is None else self.node.machine.committed_index
        return sum(1 for index, _ in self._indexes if index <= committed)

    def go(self) -> None:
        """Format, then run three times: append one by one and in groups, roll, snapshot, archive, reopen."""
        format_node(self.disk, PATH, IDENTITY)
        self.formatted = True
        for boot in (1, 2, 3):
            self.node = SingleReplica(self.disk, CRASHING, boot=boot).start()
            for number in range(6):
                self._put(boot, number)
                self.node.host.advance(MARK_EVERY_MS if number % 2 else 0)
            for number in range(6, 150):
                self._put(boot, number)
                if number % 12 == 0:
                    self.node.host.run()
            self.node.host.run()
            assert self.acknowledged == len(self.sent)
            if boot == 2:
                self.disk = self._crashed(self.disk)
            else:
                self.node.stop()

    def _put(self, boot: int, number: int) -> None:
        assert self.node is not None
        pair = (f"key-{number % 50}", f"value-{boot}-{number}")
        self.sent.append(pair)
        self._indexes.append((self.node.put(pair), len(self.sent)))

    def _crashed(self, disk: SimFiles) -> SimFiles:
        """Go on with the disk of a crash, watched by the same observer."""
        after = disk.crash(Crash.LOST)
        after.on_call, after.fail = disk.on_call, disk.fail
        return after


def check_survivor(
    disk: SimFiles, run_formatted: bool, sent: list[tuple[str, str]], acknowledged: int
) -> None:
    """Open the disk after a crash; it must hold a prefix of `sent` with at least every acknowledged entry."""
    try:
        node = SingleReplica(disk, CRASHING, boot=9)
    except NotFormatted:
        assert not run_formatted, "the format was acknowledged, and the directory is not formatted"
        format_node(disk, PATH, IDENTITY)
        SingleReplica(disk, CRASHING, boot=9).start()
        return
    node.start()
    assert node.replica.is_ready, node.host.fatal_message
    values = {key[2][3:-2].decode(): value.decode() for key, value in _values(node)}
    states = [dict(sent[:count]) for count in range(acknowledged, len(sent) + 1)]
    assert values in states, f"lost: {[k for k, v in states[0].items() if values.get(k) != v][:5]}"
    assert ShardReader(PATH, 0, disk).verify() == []


def _values(node: SingleReplica) -> list[tuple[tuple[int, int, bytes], bytes]]:
    return [((0, 0, key), value) for (kind, key), value in node.machine.values.items() if kind == 1002]


def test_every_crash_point_loads() -> None:
    points = 0
    failures: list[BaseException] = []
    run = Run(SimFiles(seed=1))

    def at_call(number: int, operation: str, path: str, done: bool) -> None:
        nonlocal points
        for how in Crash:
            points += 1
            try:
                left = run.disk.crash(how, seed=number)
                check_survivor(left, run.formatted, list(run.sent), run.acknowledged)
            except Exception as failure:  # the running node must not see it
                failure.add_note(f"{how} {'after' if done else 'before'} call {number}, {operation} {path}")
                failures.append(failure)

    run.disk.on_call = at_call
    run.go()
    print(f"{points} crash points")
    count_fault("raftlog", "crash point", points)
    for failure in failures[:1]:
        raise failure
    assert points >= CRASH_POINTS_MIN


@pytest.mark.thorough
def test_every_failing_call_stops_the_node_or_does_no_harm() -> None:
    """Each write, sync, rename ... fails once, in a run of its own (EIO and ENOSPC in turn). A running node
    reports it and stops, a failed snapshot or marker only warns, and nothing acknowledged is lost."""
    total = _count_calls()
    stopped = 0
    for failing in range(1, total + 1):
        run = Run(SimFiles(seed=failing))
        said = _run_failing(run, failing, errno.EIO if failing % 2 else errno.ENOSPC)
        if said is not None and said.startswith("shard-0 "):
            stopped += 1
            assert "injected" in said
            assert "free space or replace the disk" in said
        for how in (Crash.LOST, Crash.TORN):
            check_survivor(run.disk.crash(how, seed=failing), run.formatted, run.sent, run.acknowledged)
    print(f"{total} failing calls, {stopped} stopped a running node")
    count_fault("raftlog", "failing file call", total)
    assert total >= FAILING_CALLS_MIN
    assert stopped >= STOPPED_MIN


def _run_failing(run: Run, failing: int, code: int) -> str | None:
    """Run with one failing call, and return what stopped the run."""
    seen = 0

    def fail(number: int, operation: str, path: str) -> OSError | None:
        nonlocal seen
        seen += 1
        return OSError(code, f"injected into {operation}", path) if seen == failing else None

    run.disk.fail = fail
    try:
        run.go()
    except (Stopped, OSError) as error:  # an OSError: while formatting or opening, when nothing runs yet
        return str(error)
    finally:
        run.disk.fail = None
    return None


def _count_calls() -> int:
    run = Run(SimFiles())
    calls = 0

    def count(number: int, operation: str, path: str, done: bool) -> None:
        nonlocal calls
        calls += done

    run.disk.on_call = count
    run.go()
    return calls


def test_the_enumeration_finds_a_missing_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation: with a file layer that does not sync, some crash point loses what was acknowledged."""
    monkeypatch.setattr(SimFile, "fdatasync", lambda self: None)
    run = Run(SimFiles(seed=1))
    lost = 0

    def at_call(number: int, operation: str, path: str, done: bool) -> None:
        nonlocal lost
        if run.node is not None and not lost and run.acknowledged > 20:
            try:
                check_survivor(run.disk.crash(Crash.LOST), run.formatted, list(run.sent), run.acknowledged)
            except (AssertionError, Stopped, RaftlogError):
                lost += 1

    run.disk.on_call = at_call
    with contextlib.suppress(Stopped, RaftlogError):
        run.go()
    assert lost
