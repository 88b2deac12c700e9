"""A replaced disk begins with a snapshot, and in the end holds every entry that was ever committed."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.raw import RawGroup
from cluster.launching.launcher import ClusterProcess, NodeProcess, launch_cluster
from history.checking.commits import missing_commits
from quorate.client import Client
from raftlog.env.files import OsFiles
from raftlog.offline.reader import ShardReader
from raftlog.storage.archive import ARCHIVE, read_manifest
from raftlog.storage.directory import read_identity, shard_name
from records import METADATA_SHARD
from tests.report import count_fault
from tests.support.real_cluster import (
    NUM_SHARDS,
    TOPIC,
    addresses,
    check_equal,
    committers,
    group_in,
    is_joining,
    log_status,
    log_text,
    quorate,
    status,
    wait_for_line,
    wait_until_equal,
)
from tests.support.waiting import wait_for

PARTITIONS = 20
ROUNDS = 400
SETTINGS = {"snapshot.tail.records": "2000", "log.segment.bytes": "200000"}
"""So small that two shards get several snapshots each."""
BUSY_SHARDS = (0, 1)


@pytest.mark.timeout(180)
def test_a_replaced_disk_gets_all_history_back_while_the_cluster_serves(tmp_path: Path) -> None:
    cluster = launch_cluster(tmp_path / "cluster", settings=SETTINGS)
    try:
        with Client(cluster.bootstrap) as client:
            client.create_topic(TOPIC, PARTITIONS)
        lost = cluster.node(3)
        assert str(lost.pid) in _processes(lost)
        others = [node for node in cluster.nodes if node is not lost]
        for first in (1, ROUNDS // 2 + 1):
            _commit_until_snapshots(cluster, others, first, first + ROUNDS // 2 - 1)
        lost.kill()
        count_fault("failover", "a disk lost")
        _put_empty_disk(lost)
        lost.start()
        wait_for(lambda: not is_joining(lost), "the new disk votes")
        working = committers(cluster, "live")
        wait_for_line(lost, "shard-0: fetching the history before entry")
        lost.kill()  # in the middle of the transfer
        count_fault("failover", "killed while it fetches history")
        lost.start()
        wait_for(lambda: _is_whole(lost), "all history is back", within_s=90)
        for one in working:
            one.wait_for_more()
            one.stop()
        assert log_status(lost, 0)["backfill"]["from"] is None
        wait_for_line(lost, "shard-0: has the history from entry 1 on")
        assert "which was refused" not in log_text(lost)
        wait_until_equal(cluster.nodes)
        cluster.stop()
        acknowledged = [commit for one in working for commit in one.acknowledged]
        for shard in BUSY_SHARDS:
            acknowledged += [((group_in(shard, "old"), TOPIC, 0), offset) for offset in range(1, ROUNDS + 1)]
        assert missing_commits(str(lost.data), acknowledged) == []
        _check_files(lost, others)
        check_equal(cluster)
    finally:
        cluster.kill()


def _commit_until_snapshots(cluster: ClusterProcess, nodes: list[NodeProcess], first: int, last: int) -> None:
    """Commit every partition of the busy shards once per offset, until `nodes` have snapshots that cover half
    of the current log: a snapshot begins at a commit, and only one is made at a time."""
    for shard in BUSY_SHARDS:
        group = RawGroup(addresses(cluster.nodes), group_in(shard, "old"))
        for offset in range(first, last + 1):
            group.until_accepted(group.commit, TOPIC, dict.fromkeys(range(PARTITIONS), offset))
        group.close()
    wait_for(lambda: min(map(_snapshot_index, nodes)) > last / 2, f"snapshots behind entry {last // 2}")


def _snapshot_index(node: NodeProcess) -> int:
    return min(log_status(node, shard).get("snapshot_index", 0) for shard in BUSY_SHARDS)


def _put_empty_disk(node: NodeProcess) -> None:
    """Replace the node's disk as docs/operations.md says."""
    wait_for(lambda: not _processes(node), "its jobs end with the killed node")
    identity = read_identity(OsFiles(), str(node.data))
    shutil.rmtree(node.data)
    words = ["--node-id", str(node.node_id), "--cluster-id", identity.cluster_id, "--replace"]
    words += ["--nodes", ",".join(map(str, identity.voters)), "--shards", str(identity.num_shards)]
    done = quorate("node", "format", "--data", str(node.data), *words)
    assert done.returncode == 0, done.stderr
    node.configure({})  # its configuration was on the disk


def _processes(node: NodeProcess) -> list[str]:
    """Return the live processes of its newest start, the node and its jobs, without zombies: they are the
    process group that the launcher created for it."""
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, _, group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(group) == node.pid and state not in "ZX":
                left.append(process.name)
    return left


def _is_whole(node: NodeProcess) -> bool:
    """Return whether no shard reports missing history, and the files of the busy ones confirm it."""
    logs = [one["log"] for one in status(node).get("shards", [])]
    if len(logs) != NUM_SHARDS + 1 or any(log["backfill"]["missing_before"] for log in logs):
        return False
    archives = [str(node.data / shard_name(shard) / ARCHIVE) for shard in BUSY_SHARDS]
    manifests = [read_manifest(OsFiles(), archive) for archive in archives]
    return all(one.dropped_index == 0 and one.segments for one in manifests)


def _check_files(lost: NodeProcess, others: list[NodeProcess]) -> None:
    """Check every byte of the new disk, and that its log equals the others' from the first entry on."""
    verified = quorate("log", "verify", str(lost.data))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    nodes = [lost, *others]
    for shard in (METADATA_SHARD, *BUSY_SHARDS):
        decided = min(ShardReader(node.data, shard).highest_commit() for node in nodes)
        words = ["--json", "--shard", "metadata" if shard == METADATA_SHARD else str(shard)]
        words += ["--since", "1", "--until", str(decided)]
        dumps = [_dump(node, *words) for node in nodes]
        assert len(dumps[0]) == decided > 0
        assert all(dump == dumps[0] for dump in dumps), f"shard {shard} differs"


def _dump(node: NodeProcess, *words: str) -> list[dict[str, Any]]:
    """Return every entry without its file and offset, as nodes may end their segments elsewhere."""
    done = quorate("log", "dump", str(node.data), *words)
    assert done.returncode == 0, done.stderr
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    return [{key: one[key] for key in one.keys() - {"file", "offset"}} for one in entries]
