"""`--follow`: each committed entry once, in order, from a cluster and from files that change."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from history.reading.opening import open_node
from history.reading.source import LogGap, NothingToRead
from history.render import UTC_STYLE
from quorate import following
from quorate.commands.log.tailing import explanation_as_it_grows, timeline_as_it_grows
from quorate.following import Item, NewLines, followed
from quorate.livelog import open_live
from raftlog.env.settings import LogSettings
from raftlog.storage.frames import Frame
from tests.report import count_fault
from tests.support.disk_node import DiskNode

from .lognode import LogNode

SMALL = LogSettings(segment_bytes=4_000, snapshot_tail_records=200)


def entries(found: Iterator[tuple[int, Item] | None], num: int) -> list[tuple[int, int]]:
    """Return (shard, index) of the next entries."""
    told = []
    for item in found:
        if item is not None:
            assert isinstance(item[1], Frame)
            told.append((item[0], item[1].index))
        if len(told) == num:
            break
    return told


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "POLL_S", 0.01)
    monkeypatch.setattr("quorate.livelog.FOLLOW_WAIT_MS", 100)


def test_several_shards_of_a_cluster_are_followed_at_once() -> None:
    node = LogNode(1, num_entries=3)
    try:
        found = followed(open_live(node.url, 1.0), {-1: 1, 0: 2})
        assert entries(found, 2) == [(0, 2), (0, 3)]
        node.append(2)
        assert entries(found, 2) == [(0, 4), (0, 5)]
    finally:
        node.close()


def test_what_retention_removed_before_is_told_as_a_gap() -> None:
    node = LogNode(1, num_entries=9)
    node.first_kept = 5
    try:
        found = followed(open_live(node.url, 1.0), {0: 1})
        first = next(found)
        assert first is not None
        assert isinstance(first[1], LogGap)
        assert "entries 1 to 4 are not kept here; continues at index 5" in first[1].words()
        assert entries(found, 5) == [(0, 5), (0, 6), (0, 7), (0, 8), (0, 9)]
    finally:
        node.close()


def test_a_directory_is_followed_while_a_node_seals_archives_and_restarts(tmp_path: Path) -> None:
    path = str(tmp_path / "node")
    node = DiskNode(path, num_shards=1, log=SMALL)
    node.create_topic("orders", 4)
    member = node.member("g", "app", "orders").join()
    found = followed(open_node(path), {0: 1})
    told: list[tuple[int, int]] = []
    for offset in range(400):
        member.commit({0: offset})
        if offset in (150, 300):
            (node.stop if offset == 150 else node.crash)()
            count_fault("quorate", "node restarted under a reader")
            node.start()
            member.join()
        if offset % 20 == 19:
            machine = node.machines[0]
            assert machine.replica is not None
            told += entries(found, machine.replica.commit_index - len(told))
    assert told == [(0, index) for index in range(1, len(told) + 1)]
    assert (tmp_path / "node" / "shard-0" / "archive").is_dir()
    assert len(told) > 400
    node.stop()


def test_a_directory_that_goes_away_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "node"
    node = DiskNode(str(path), num_shards=1)
    found = followed(open_node(str(path)), {0: 1})
    assert entries(found, 1) == [(0, 1)]
    node.stop()
    path.rename(tmp_path / "gone")
    monkeypatch.setattr(following, "GONE_S_MAX", 0.05)
    with pytest.raises((NothingToRead, OSError)):
        entries(found, 1)


def test_only_lines_that_are_new_are_told_below_their_head() -> None:
    lines = NewLines()
    assert lines.of(["epoch 1", "  moved"]) == ["epoch 1", "  moved"]
    assert lines.of(["epoch 1", "  moved", "  stable"]) == ["  stable"]
    assert lines.of(["epoch 2"]) == ["epoch 2"]
    assert lines.of(["epoch 1", "  moved", "  stable", "  late"]) == ["epoch 1", "  late"]


def until(lines: Iterator[str], words: str) -> list[str]:
    """Return the lines up to the first one that contains these words."""
    found = []
    for line in lines:
        found.append(line)
        if words in line:
            return found
    raise AssertionError("it has no end")


@pytest.mark.timeout(60)
def test_an_explanation_goes_on_with_what_happens(tmp_path: Path) -> None:
    path = str(tmp_path / "node")
    node = DiskNode(path, num_shards=1)
    node.create_topic("orders", 4)
    first = node.member("g", "app-1", "orders").join()
    window = {"style": UTC_STYLE}
    lines = explanation_as_it_grows(open_node(path), "g", None, window, as_json=False)
    told = until(lines, "owned by  m1: orders 0-3")
    assert told[1:3] == ["Group g", "from shard-0: entries 1 to 2, nothing missing"]
    steps = explanation_as_it_grows(open_node(path), "g", None, window, as_json=True)
    assert '"epoch": 1' in until(steps, '"kind": "epoch"')[-1]
    second = node.member("g", "app-2", "orders").join()
    told = until(lines, "epoch 1 -> 2") + until(lines, "moved")
    assert any("app-2" in line for line in told), "a member more is told below its head"
    assert not [line for line in told if "epoch 0 -> 1" in line], "what was told is not told again"
    node.pass_ms(2_000, first, second)
    told = until(lines, "stable    after")
    assert not [line for line in told if "because" in line or "->" in line]
    found = until(steps, '"epoch": 2')
    assert '"state": "Stable"' in found[-1]
    node.stop()


def test_a_timeline_grows_by_rows_and_by_what_becomes_of_them(tmp_path: Path) -> None:
    path = str(tmp_path / "node-1")
    node = DiskNode(path, num_shards=1)
    node.create_topic("orders", 4)
    first = node.member("g", "app-1", "orders").join()
    window = {"style": UTC_STYLE}
    lines = timeline_as_it_grows(open_node(path), "g", None, window, as_json=False)
    assert "epoch 1  stable after 0 ms: m1 (client app-1" in until(lines, "epoch 1")[-1]
    rows = timeline_as_it_grows(open_node(path), "g", None, window, as_json=True)
    assert json.loads(until(rows, '"epoch": 1')[-1])["settled"] is True
    second = node.member("g", "app-2", "orders").join()
    assert "not yet: m2 (client app-2" in until(lines, "epoch 2")[-1]
    node.pass_ms(2_000, first, second)
    assert "stable after" in until(lines, "epoch 2  stable")[-1]
    assert "m1: orders" in next(lines)
    settled = json.loads(until(rows, '"epoch": 2, "index"')[-1])
    assert settled["settled"], "what is known by now is told at once"
    assert set(settled["owners"]) == {"m1", "m2"}
    node.stop()


class Following:
    """`quorate log dump --follow --json` in a process of its own."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "quorate", "log", "dump", *words, "--follow", "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def line(self) -> dict[str, object]:
        assert self.process.stdout is not None
        found: dict[str, object] = json.loads(self.process.stdout.readline())
        return found

    def ended(self) -> tuple[int, bytes]:
        assert self.process.stderr is not None
        try:
            code = self.process.wait(20)
            return code, self.process.stderr.read()
        finally:
            self.process.kill()
            for stream in (self.process.stdout, self.process.stderr):
                if stream is not None:
                    stream.close()


@pytest.fixture(params=["cluster", "files"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    if request.param == "cluster":
        node = LogNode(1, num_entries=3)
        yield "--url", node.url
        node.close()
    else:
        real = DiskNode(str(tmp_path / "node"), num_shards=1)
        yield str(tmp_path / "node"), "--shard=0"
        real.stop()


def test_ctrl_c_ends_it_with_its_exit_code_and_nothing_else(where: tuple[str, str]) -> None:
    running = Following(*where)
    assert running.line()["index"] == 1
    running.process.send_signal(signal.SIGINT)
    assert running.ended() == (130, b"")


def test_a_reader_that_goes_away_ends_it_quietly(where: tuple[str, str]) -> None:
    running = Following(*where)
    assert running.line()["index"] == 1
    assert running.process.stdout is not None
    running.process.stdout.close()
    count_fault("quorate", "pipe closed")
    assert running.ended() == (0, b"")


def test_a_dump_into_a_pipe_that_is_closed_is_quiet_too() -> None:
    """The pipe is closed while the command prints, not only while it waits."""
    node = LogNode(1, num_entries=3_000)
    try:
        command = f"{sys.executable} -m quorate log dump {node.url} | head -1; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30)
    finally:
        node.close()
    assert (done.stdout.splitlines()[1], done.stderr) == ("0", "")


def test_following_has_no_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from quorate.app import run

    assert run(["log", "dump", str(tmp_path), "--follow", "--until", "7"]) == 2
    assert "--follow has no end" in capsys.readouterr().err
