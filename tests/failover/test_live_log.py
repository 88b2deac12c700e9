"""The log of a running cluster of real processes: read and followed while nodes are killed, over HTTP and
from the directory of a node that writes it.
"""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.raw import RawGroup, RawMember
from cluster.launching.launcher import ClusterProcess, NodeProcess, launch_cluster
from history.reading.opening import open_node
from history.reading.source import LogGap, Walk
from history.telling.explain import explain
from quorate.client import Client
from quorate.livelog import open_live
from raftlog.storage.frames import Frame
from tests.report import count_fault
from tests.support.real_cluster import (
    TOPIC,
    addresses,
    committers,
    group_in,
    leader_of,
    log_status,
    quorate,
    wait_until_equal,
)
from tests.support.waiting import wait_for

SHARD = 0
SETTINGS = {"snapshot.tail.records": "1000", "log.segment.bytes": "60000"}
"""Segments are sealed and archived, and snapshots replaced, every few hundred entries."""

RETAINING = SETTINGS | {"log.archive.retention.bytes": "100000"}


class Followed:
    """`quorate log dump --follow --json` of one shard in a process of its own; its entries as they come."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "quorate", "log", "dump", *words, "--follow", "--json"]
        self.process = subprocess.Popen(
            [*command, "--shard", str(SHARD)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.indexes: list[int] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, index: int) -> None:
        """Wait until that entry was printed."""

        def came() -> bool:
            with contextlib.suppress(queue.Empty):
                while True:
                    said = json.loads(self._lines.get_nowait())
                    if "index" in said:
                        assert said["decided"]
                        self.indexes.append(said["index"])
            return bool(self.indexes) and self.indexes[-1] >= index

        wait_for(came, f"entry {index} is printed")

    def stop(self) -> None:
        """Press Ctrl-C; the command must end cleanly and have printed every entry once, in order."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(20) == 130
        assert self.process.stderr is not None
        assert self.process.stderr.read() == ""
        assert self.indexes == list(range(self.indexes[0], self.indexes[-1] + 1))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)


@pytest.fixture
def follow() -> Iterator[Any]:
    running: list[Followed] = []

    def start(*words: str) -> Followed:
        running.append(Followed(*words))
        return running[-1]

    yield start
    for one in running:
        one.kill()


def committed(node: NodeProcess) -> int:
    return int(log_status(node, SHARD)["commit_index"])


def url(node: NodeProcess) -> str:
    return f"http://{node.host}:{node.http_port}"


@pytest.mark.timeout(240)
def test_following_outlives_the_node_that_is_followed(cluster: ClusterProcess, follow: Any) -> None:
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, 10)
    working = committers(cluster, "live")
    group = group_in(SHARD, "live")
    leader = leader_of(cluster.nodes, group)
    by_url: Followed = follow("--url", url(leader))
    other = next(node for node in cluster.nodes if node is not leader)
    by_file: Followed = follow(str(other.data))
    folder: Followed = follow(str(Path(other.data).parent))
    for victim in (leader, other):
        working[SHARD].wait_for_more(100)
        by_url.wait_for(committed(victim))
        victim.kill()
        count_fault("failover", "killed while it is followed")
        working[SHARD].wait_for_more(100)
        victim.start()
        wait_for(lambda victim=victim: log_status(victim, SHARD), "it is back")
    for one in working:
        one.wait_for_more()
        one.stop()
    wait_until_equal(cluster.nodes)
    end = committed(leader)
    by_url.wait_for(end)
    folder.wait_for(end - 1)  # the last entry is proven by a later one
    by_file.wait_for(end - 1)
    for followed in (by_url, by_file, folder):
        followed.stop()
        assert followed.indexes[0] == 1
    answered = quorate("log", "explain", "--url", url(leader), "no-such-group")
    assert answered.returncode == 5
    assert len(answered.stderr.splitlines()) == 1


@pytest.mark.timeout(240)
def test_what_is_read_from_a_node_that_writes_is_whole(tmp_path: Path) -> None:
    """Segments are sealed, moved and removed, snapshots replaced under the readers; every answer is right."""
    cluster = launch_cluster(tmp_path / "cluster", num_nodes=3, settings=RETAINING)
    try:
        with Client(cluster.bootstrap) as client:
            client.create_topic(TOPIC, 10)
        working = committers(cluster, "busy", partitions=5)
        node = cluster.nodes[0]
        rounds = 0
        while log_status(node, SHARD)["snapshots_made"] < 4 or rounds < 5:
            for log in (
                open_node(str(node.data)),
                open_live(url(node)),
                open_node(str(tmp_path / "cluster")),
            ):
                for stateless in (True, False):
                    walk = Walk(SHARD, log.reader(SHARD), stateless=stateless)
                    check(list(walk), walk)
            rounds += 1
        for one in working:
            one.stop()
        log = open_live(url(node))
        live, files = (walked(one) for one in (log, open_node(str(node.data))))
        both = live.keys() & files.keys()
        assert len(both) > 100
        assert all(live[index] == files[index] for index in both)
        for name in ("replay", "terms", "dump"):
            done = quorate("log", name, "--url", url(node))
            assert (done.returncode, done.stderr) == (0, "")
    finally:
        cluster.kill()


def check(items: list[object], walk: Walk) -> None:
    """Check that the entries are dense: only retention may have removed some, as a gap says.

    It removes the beginning, and what a slow reader was about to read next."""
    index = 0
    for item in items:
        if isinstance(item, Frame):
            assert item.index == index + 1
            index = item.index
        elif isinstance(item, LogGap):
            assert (
                index == 0
                or "archive" in item.what
                or "not kept" in item.what
                or "no longer kept" in item.what
                or "removed by retention" in item.what
            ), item.words()
            assert "frame" not in item.what, item.words()
            index = (item.goes_on_at or 1) - 1
        else:
            index = item.header.last_index  # type: ignore[attr-defined]
    assert index > 0, walk.basis.words()


def walked(log: Any) -> dict[int, bytes]:
    walk = Walk(SHARD, log.reader(SHARD), stateless=True)
    return {item.index: item.encode() for item in walk if isinstance(item, Frame)}


@pytest.mark.timeout(120)
def test_an_explanation_is_the_same_from_any_node_and_from_files(cluster: ClusterProcess) -> None:
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, 10)
    group = group_in(SHARD, "told")
    member = RawMember(RawGroup(addresses(cluster.nodes), group), "raw", [TOPIC])
    member.settle()
    member.group.close()
    killed = leader_of(cluster.nodes, group)
    killed.kill()
    count_fault("failover", "node killed")
    rest = [node for node in cluster.nodes if node is not killed]
    wait_for(lambda: leader_of(rest, group), "another leads")
    wait_until_equal(rest)  # a follower's own files prove the new term's first entry only when it was told so
    told = [explain(open_live(url(node)), group).steps for node in rest]
    assert told[0] == told[1]
    (silent,) = open_live(url(rest[0])).remarks
    assert f"node {killed.node_id} does not respond" in silent
    cluster.stop()
    assert explain(str(rest[0].data), group).steps == told[0]
