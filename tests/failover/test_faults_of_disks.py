"""A node that was down for long, a disk that is new, old or full: docs/operations.md describes each case.

The others serve meanwhile, nothing acknowledged is lost, and at the end all three hold the same.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import load
from benchmarks.raw import RawGroup, Refused
from cluster.launching.launcher import (
    ClusterProcess,
    LaunchError,
    NodeProcess,
    launch_cluster,
    prepare_cluster,
)
from history.checking.commits import missing_commits
from quorate.connection import ConnectionLost
from raftlog.env.files import OsFiles
from raftlog.storage.directory import read_identity
from tests.failover.conftest import SETTINGS
from tests.report import count_fault
from tests.support.real_cluster import (
    TOPIC,
    Committer,
    addresses,
    check_equal,
    check_fetched,
    check_nothing_lost,
    committers,
    create_topic,
    group_in,
    is_joining,
    leader_of,
    log_status,
    quorate,
    status,
    trouble,
    wait_for_line,
    wait_until_equal,
)
from tests.support.waiting import wait_for

PARTITIONS = 100
MISSED_RECORDS = 220_000
BATCH = 100
TAIL_RECORDS = 60_000
"""Few enough for several snapshots while the follower is down."""

DISK_MIB = 160
DISK_KEPT_MIB = 64
"""With less free space a leader accepts no writes (`raftlog.env.settings.disk_free_bytes_min`)."""


# Down for long


@pytest.mark.timeout(180)
@pytest.mark.parametrize("keeps_archive", [True, False])
def test_a_follower_long_behind_catches_up(tmp_path: Path, keeps_archive: bool) -> None:
    """It gets the leader's archive, so that its history stays whole, or a snapshot if there is none."""
    settings = {"snapshot.tail.records": str(TAIL_RECORDS), "log.segment.bytes": str(1 << 20)}
    if not keeps_archive:
        settings["log.archive.retention.bytes"] = "0"
    cluster = launch_cluster(tmp_path / "cluster", settings=settings)
    try:
        create_topic(cluster, PARTITIONS)
        group_id = group_in(0, "behind")
        leader = leader_of(cluster.nodes, group_id)
        follower = next(node for node in cluster.nodes if node is not leader)
        _commit_rounds(cluster.nodes, group_id, range(1, 10))
        wait_until_equal(cluster.nodes)
        missed_from = log_status(follower, 0)["last_index"] + 1
        follower.kill()
        count_fault("failover", "a follower away for 220,000 records")
        others = [node for node in cluster.nodes if node is not follower]
        rounds = MISSED_RECORDS // PARTITIONS
        _commit_rounds(others, group_id, range(10, 10 + rounds))
        for node in others:
            _wait_for_snapshot(node, missed_from)
        busy = Committer(addresses(others), group_in(0, "busy"))
        busy.wait_for_more()
        follower.start()
        wait_for(lambda: log_status(follower, 0)["snapshot_index"] > missed_from, "it has a snapshot too")
        busy.stop()
        wait_until_equal(cluster.nodes)
        assert _was_installed(follower) is not keeps_archive
        others[0].kill()  # the node that was behind now counts for the quorum
        remaining = [node for node in cluster.nodes if node is not others[0]]
        check_fetched(remaining, group_id, 9 + rounds)
        check_fetched(remaining, busy.group_id, busy.acknowledged[-1][1])
        cluster.stop()
        if keeps_archive:
            every = [((group_id, TOPIC, 0), offset) for offset in range(1, 10 + rounds)]
            assert missing_commits(str(follower.data), every) == []
        check_equal(cluster)
    finally:
        cluster.kill()


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(6))
def test_catching_up_goes_on_however_often_it_is_cut_short(tmp_path: Path, seed: int) -> None:
    """The follower, or its leader, is killed at any moment, while it catches up from archive or snapshot,
    with its old disk or a new one."""
    chance = random.Random(seed)
    settings = {"snapshot.tail.records": "30000", "log.segment.bytes": str(1 << 20)}
    if seed % 2:
        settings["log.archive.retention.bytes"] = "0"
    cluster = launch_cluster(tmp_path / "cluster", settings=settings)
    try:
        create_topic(cluster, PARTITIONS)
        leader = leader_of(cluster.nodes, group_in(0, "behind"))
        follower = next(node for node in cluster.nodes if node is not leader)
        follower.kill()
        others = [node for node in cluster.nodes if node is not follower]
        _commit_rounds(others, group_in(0, "behind"), range(1, 1_000))
        for node in others:
            _wait_for_snapshot(node, 1)
        working = committers(cluster, "busy")
        if seed % 3 == 0:
            _put_empty_disk(follower, replace=True)
        follower.spawn()
        for _ in range(10):
            time.sleep(chance.uniform(0.2, 2.0))
            cut = follower if chance.random() < 0.7 else chance.choice(others)
            cut.kill()
            cut.spawn()
            count_fault("failover", "catching up cut short")
        wait_for(lambda: not is_joining(follower), "every shard of the follower votes")
        for one in working:
            one.wait_for_more()
            one.stop()
        wait_until_equal(cluster.nodes)
        check_fetched(cluster.nodes, group_in(0, "behind"), 999)
        begin_late = (1, 2, 3) if seed % 2 else [follower.node_id]
        check_nothing_lost(cluster, working, begins_with_snapshot=begin_late)
    finally:
        cluster.kill()


def _commit_rounds(nodes: list[NodeProcess], group_id: str, offsets: range) -> None:
    """Commit every partition once per offset; a batch that a change of leaders interrupted is sent again."""
    left = [load.commit_frame(group_id, TOPIC, PARTITIONS, offset) for offset in offsets]
    while left:
        leader = leader_of(nodes, group_id)
        with (
            contextlib.suppress(ConnectionError, RuntimeError),
            load.peers((leader.host, leader.port), 1) as (peer,),
        ):
            while left:
                batch = left[:BATCH]
                peer.socket.sendall(b"".join(batch))
                for _ in batch:
                    peer.skip(int.from_bytes(peer.exactly(4), "big"))
                load.check_commit(peer, batch[-1])  # the node that accepts the last one has led all the time
                del left[:BATCH]


def _wait_for_snapshot(leader: NodeProcess, missed_from: int) -> None:
    """Wait until the leader's live log no longer has the entry that the follower needs next."""
    wait_for(
        lambda: log_status(leader, 0).get("snapshot_index", 0) > missed_from, "the leader has a snapshot"
    )


def _was_installed(node: NodeProcess) -> bool:
    return "receiving the snapshot" in (node.data / "node.log").read_text()


# A new disk


@pytest.mark.timeout(120)
def test_a_new_disk_is_refused_until_it_says_that_it_replaces_the_old(cluster: ClusterProcess) -> None:
    create_topic(cluster)
    working = committers(cluster, "disk")
    for one in working:
        one.wait_for_more()
    lost = cluster.node(3)
    others = [node for node in cluster.nodes if node is not lost]
    lost.kill()
    count_fault("failover", "a disk lost")
    _put_empty_disk(lost, replace=False)
    lost.spawn()
    refuses = _who_refuses(others, lost, "was formatted again", "--replace")
    wait_for_line(refuses, "link to node 3", "was formatted again", "--replace")
    wait_for_line(lost, "it refused this node", "it knows this node with another disk", "--replace")
    wait_for(lambda: "--replace" in trouble(lost, 1), "the refused node says why")
    wait_for(lambda: "was formatted again" in _shown(others[0]), "the command line says why")
    for one in working:
        one.wait_for_more()
    lost.kill()
    _put_empty_disk(lost, replace=True)
    lost.start()
    wait_for(lambda: not is_joining(lost), "the new disk votes")
    for one in working:
        one.wait_for_more()
    others[0].kill()
    for one in working:
        one.wait_for_more()  # with a quorum of which the new disk is half
    others[0].start()
    check_nothing_lost(cluster, working, begins_with_snapshot=[3])


@pytest.mark.timeout(120)
def test_a_new_disk_acknowledges_nothing_before_it_has_met_every_other_node(cluster: ClusterProcess) -> None:
    """Its old disk may have granted a vote to the node that it has not met."""
    create_topic(cluster)
    group_id = group_in(0, "joining")
    group = RawGroup(addresses(cluster.nodes), group_id)
    group.until_accepted(group.commit, TOPIC, {0: 1})
    leader = leader_of(cluster.nodes, group_id)
    away, lost = (node for node in cluster.nodes if node is not leader)
    lost.kill()
    away.pause()
    count_fault("failover", "a disk lost while another node is away")
    _put_empty_disk(lost, replace=True)
    lost.spawn()
    wait_for(lambda: status(leader) and not trouble(leader, lost.node_id), "the new disk is in contact")
    wait_for(lambda: log_status(lost, 0).get("is_joining"), "the new disk joins")
    with pytest.raises((Refused, ConnectionLost)):
        group.commit(TOPIC, {0: 2})
    assert is_joining(lost)
    away.resume()
    wait_for(lambda: not is_joining(lost), "the new disk votes")
    group.until_accepted(group.commit, TOPIC, {0: 3})
    leader_of(cluster.nodes, group_id).kill()
    running = [node for node in cluster.nodes if node.is_running]
    group.nodes, group.coordinator = addresses(running), None
    group.until_accepted(group.commit, TOPIC, {0: 4})
    group.close()
    check_fetched(running, group_id, 4)
    cluster.stop()
    check_equal(cluster)


# An old disk


@pytest.mark.timeout(120)
def test_an_old_copy_of_a_disk_is_refused(cluster: ClusterProcess, tmp_path: Path) -> None:
    create_topic(cluster)
    working = committers(cluster, "old")
    for one in working:
        one.wait_for_more()
    restored = cluster.node(2)
    others = [node for node in cluster.nodes if node is not restored]
    restored.stop()
    shutil.copytree(restored.data, tmp_path / "copy")
    for _ in range(2):
        restored.start()
        for one in working:
            one.wait_for_more()
        restored.stop()
    shutil.rmtree(restored.data)
    shutil.copytree(tmp_path / "copy", restored.data)
    count_fault("failover", "an old copy of a disk put back")
    restored.spawn()
    refuses = _who_refuses(others, restored, "old copy of its disk", "--replace")
    wait_for_line(refuses, "link to node 2", "old copy of its disk", "--replace")
    wait_for_line(restored, "an old copy was restored here", "--replace")
    wait_for(lambda: "--replace" in trouble(restored, 1), "the refused node says why")
    for one in working:
        one.wait_for_more()
    restored.kill()
    _put_empty_disk(restored, replace=True)
    restored.start()
    wait_for(lambda: not is_joining(restored), "the new disk votes")
    check_nothing_lost(cluster, working, begins_with_snapshot=[2])


def _who_refuses(nodes: list[NodeProcess], refused: NodeProcess, *words: str) -> NodeProcess:
    """Return a node whose status reports the refusal; after one refusal the node withdraws from all peers."""
    found: list[NodeProcess] = []

    def look() -> bool:
        found[:] = [node for node in nodes if all(word in trouble(node, refused.node_id) for word in words)]
        return bool(found)

    wait_for(look, f"a node says why it refuses node {refused.node_id}")
    return found[0]


def _shown(asked: NodeProcess) -> str:
    return quorate("cluster", "status", "--url", asked.url).stdout


def _put_empty_disk(node: NodeProcess, *, replace: bool) -> None:
    """Wipe the node's disk and format it as the documentation says."""
    identity = read_identity(OsFiles(), str(node.data))
    shutil.rmtree(node.data)
    words = ["--node-id", str(node.node_id), "--cluster-id", identity.cluster_id]
    words += ["--nodes", ",".join(map(str, identity.voters)), "--shards", str(identity.num_shards)]
    done = quorate("node", "format", "--data", str(node.data), *words, *(["--replace"] if replace else []))
    assert done.returncode == 0, done.stderr
    node.configure({})  # its configuration was on the disk


# A full disk


class SmallDisk:
    """A file system of its own size in a mount namespace of its own; `path` is where nodes see it."""

    def __init__(self, path: Path, size_mib: int) -> None:
        path.mkdir()
        self.path = path
        script = f"mount -t tmpfs -o size={size_mib}m none {path} && echo mounted && exec sleep 600"
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._holder.stdout is not None
        self.is_mounted = self._holder.stdout.readline() == b"mounted\n"

    @property
    def inside(self) -> Path:
        """The path by which the test reaches the file system."""
        return Path(f"/proc/{self._holder.pid}/root{self.path}")

    def fill(self, leave_mib: float) -> None:
        """Fill the disk up to this much free space."""
        free = os.statvfs(self.inside)
        left = free.f_bavail * free.f_frsize - int(leave_mib * (1 << 20))
        with contextlib.suppress(OSError), (self.inside / "filler").open("ab") as file:
            while left > 0:
                left -= file.write(bytes(min(left, 1 << 20)))
                file.flush()

    def free(self) -> None:
        (self.inside / "filler").unlink()

    def hold(self, node: NodeProcess) -> None:
        """Move a node's log here, and start the node in the mount namespace."""
        home = self.path / "node"
        for name in ("node", "boot", "metadata", *(f"shard-{number}" for number in range(4))):
            source = node.data / name
            (self.inside / "node").mkdir(exist_ok=True)
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, self.inside / "node" / name)
            shutil.rmtree(source) if source.is_dir() else source.unlink()
        node.configure({"data.dir": str(home)})
        node.command[:0] = ["nsenter", "--target", str(self._holder.pid), "--mount"]

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()
        if self._holder.stdout is not None:
            self._holder.stdout.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter"))):
        pytest.skip("only root can mount a small file system")
    disk = SmallDisk(tmp_path / "disk", DISK_MIB)
    try:
        if not disk.is_mounted:
            pytest.skip("mounting a file system is not allowed here")
        yield disk
    finally:
        disk.close()


@pytest.fixture
def on_small_disk(small_disk: SmallDisk, tmp_path: Path) -> Iterator[ClusterProcess]:
    """A cluster whose node 3 has the small disk."""
    cluster = prepare_cluster(tmp_path / "cluster", settings=SETTINGS)
    try:
        small_disk.hold(cluster.node(3))
        for node in cluster.nodes:
            node.configure({"leader.balance.delay.ms": "2000"})
        cluster.start()
        create_topic(cluster)
        yield cluster
    finally:
        cluster.kill()


@pytest.mark.timeout(120)
def test_a_follower_with_a_full_disk_stops_and_comes_back_when_there_is_space(
    on_small_disk: ClusterProcess, small_disk: SmallDisk
) -> None:
    cluster = on_small_disk
    full = cluster.node(3)
    group_id = group_in(0, "full")
    one = Committer(addresses(cluster.nodes), group_id)
    one.wait_for_more()
    if leader_of(cluster.nodes, group_id) is full:
        assert quorate("cluster", "transfer", "0", "--to", "1", "--url", full.url).returncode == 0
    small_disk.fill(leave_mib=0)
    count_fault("failover", "a follower's disk is full")
    one.wait_for_more(200)
    full.wait(30)
    wait_for_line(full, "CRITICAL", "No space left on device")
    one.wait_for_more(200)
    with pytest.raises(LaunchError, match="No space left on device"):
        full.start()
    small_disk.free()
    full.start()
    one.wait_for_more()
    one.stop()
    wait_until_equal(cluster.nodes)
    cluster.node(1).kill()
    check_fetched([cluster.node(2), full], group_id, one.acknowledged[-1][1])


@pytest.mark.timeout(120)
def test_a_leader_whose_disk_fills_gives_its_shards_away_and_loses_nothing(
    on_small_disk: ClusterProcess, small_disk: SmallDisk
) -> None:
    """It gets them back when there is room; if the disk is suddenly full it stops, and another leads."""
    cluster = on_small_disk
    full = cluster.node(3)
    group_id = group_in(1, "full")
    wait_for(lambda: leader_of(cluster.nodes, group_id) is full, "node 3 leads its shard")
    one = Committer(addresses(cluster.nodes), group_id)
    one.wait_for_more()
    small_disk.fill(leave_mib=DISK_KEPT_MIB / 2)
    count_fault("failover", "a leader's disk is nearly full")
    wait_for(lambda: leader_of(cluster.nodes, group_id) is not full, "another node leads", within_s=5)
    wait_for_line(full, "bytes are free on the disk of", "writes are refused until space is freed")
    one.wait_for_more(200)
    leader = leader_of(cluster.nodes, group_id)
    refused = quorate("cluster", "transfer", "1", "--to", "3", "--url", leader.url)
    assert refused.returncode != 0
    assert "node 3 cannot serve: its disk is full" in refused.stderr
    shown = quorate("cluster", "status", "--url", leader.url)
    assert "node 3 cannot serve shard 1: its disk is full" in shown.stdout
    small_disk.free()
    wait_for_line(full, "writes are accepted again")
    wait_for(lambda: leader_of(cluster.nodes, group_id) is full, "it leads again")
    one.wait_for_more()
    small_disk.fill(leave_mib=0)
    count_fault("failover", "a leader's disk is full")
    one.stop()
    check_fetched(cluster.nodes, group_id, one.acknowledged[-1][1])
    small_disk.free()
    if not full.is_running:
        full.start()
    wait_until_equal(cluster.nodes)
    other = next(node for node in cluster.nodes if node is not full)
    other.kill()
    check_fetched([node for node in cluster.nodes if node.is_running], group_id, one.acknowledged[-1][1])
