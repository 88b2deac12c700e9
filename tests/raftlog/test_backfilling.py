"""A node that installed a snapshot gets its old history back while the cluster runs, despite any fault."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import random
from collections.abc import Callable

import pytest

from raftlog.catch_up import archive_backfill
from raftlog.catch_up.archive_backfill import CHUNK_PACE_MS
from raftlog.consensus.messages import HistoryChunk, HistoryRequest, MessageKind, decode
from raftlog.env.settings import LogSettings
from raftlog.env.simulated_files import Crash
from raftlog.offline.reader import ShardReader
from raftlog.storage.archive import ARCHIVE, read_manifest
from tests.report import count_fault
from tests.support.replica_cluster import PATH, ClusterNode, ReplicaCluster
from tests.support.single_replica import SETTINGS, committed

SNAPSHOTS = dataclasses.replace(SETTINGS, segment_bytes=8_000, snapshot_tail_records=200)
HOME = f"{PATH}/shard-0"
LOG_NAME = "quorate.raftlog"
LOOK_AGAIN_MS = 3000.0
BARRED_MS = 12_000.0


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make chunks so small that a segment has several, and waits shorter."""
    monkeypatch.setattr(archive_backfill, "CHUNK_BYTES", 3000)
    monkeypatch.setattr(archive_backfill, "ANSWER_MS", 500.0)
    monkeypatch.setattr(archive_backfill, "LOOK_AGAIN_MS", LOOK_AGAIN_MS)
    monkeypatch.setattr(archive_backfill, "BARRED_MS", BARRED_MS)


def _grow(cluster: ReplicaCluster, count: int) -> None:
    leader = cluster.elect()
    for start in range(0, count, 50):
        for number in range(start, start + 50):
            leader.put((f"k{number % 97}", str(number)))
        cluster.advance(20)
    cluster.settle()
    cluster.advance(100)


def _cluster(settings: LogSettings = SNAPSHOTS, count: int = 1000) -> ReplicaCluster:
    """Return three nodes with several snapshots."""
    cluster = ReplicaCluster(settings=settings).start()
    cluster.elect()
    _grow(cluster, count)
    return cluster


def _replace(cluster: ReplicaCluster, node: ClusterNode) -> None:
    """Give the node a new disk with the leader's snapshot on it."""
    node.wipe()
    node.start()
    cluster.until(lambda: node.machine.resets and not node.replica.status()["is_joining"])
    assert _missing(node) > 400


def _replaced(cluster: ReplicaCluster) -> ClusterNode:
    node = cluster.followers()[0]
    _replace(cluster, node)
    return node


def _missing(node: ClusterNode) -> int:
    return read_manifest(node.files, f"{HOME}/{ARCHIVE}").dropped_index


def _until_whole(cluster: ReplicaCluster, node: ClusterNode, limit_ms: float = 10_000) -> None:
    cluster.until(lambda: node.is_up and _missing(node) == 0, limit_ms)


def _assert_whole(cluster: ReplicaCluster, *nodes: ClusterNode) -> None:
    """Assert that every node has every entry from the first on, all of them equal."""
    cluster.assert_equal()
    last = cluster.elect().replica.commit_index
    histories = []
    for node in nodes or cluster.running:
        reader = ShardReader(PATH, 0, node.files)
        assert [one for one in reader.verify() if one.severity != "torn"] == []
        histories.append([one.encode() for one in reader.frames(to_index=last)])
    assert len(histories[0]) == last
    assert all(one == histories[0] for one in histories)


def _asides(node: ClusterNode) -> list[str]:
    return [name for name in node.files.listdir(f"{HOME}/{ARCHIVE}") if name.endswith(".tmp")]


def _of(kind: MessageKind, payload: bytes) -> bool:
    return payload[1] == kind


def _chunks(cluster: ReplicaCluster, change: Callable[[int, int, bytes], bytes | None]) -> None:
    """Pass every chunk of history through `change`, which returns other bytes, or None to lose it."""
    send = cluster.send

    def changed(source: int, target: int, payload: bytes) -> bool:
        if not _of(MessageKind.HISTORY_CHUNK, payload):
            return send(source, target, payload)
        other = change(source, target, payload)
        return True if other is None else send(source, target, other)

    cluster.send = changed  # type: ignore[method-assign]


def test_a_replaced_disk_gets_the_whole_history_back(caplog: pytest.LogCaptureFixture) -> None:
    cluster = _cluster()
    with caplog.at_level(logging.INFO, LOG_NAME):
        node = _replaced(cluster)
        missing = _missing(node)
        cluster.until(lambda: node.replica.status()["backfill"]["from"] is not None)
        leader = cluster.elect()
        status = node.replica.status()["backfill"]
        assert status == {"missing_before": missing, "fetched_segments": 0, "from": status["from"]}
        assert status["from"] not in (node.number, leader.number), "the leader has the most to do"
        _until_whole(cluster, node)
        cluster.advance(1000)
    _assert_whole(cluster)
    segments = len(read_manifest(node.files, f"{HOME}/{ARCHIVE}").segments)
    assert node.replica.status()["backfill"] == {
        "missing_before": 0,
        "fetched_segments": segments,
        "from": None,
    }
    lines = [one.getMessage() for one in caplog.records if "history" in one.getMessage()]
    assert [("fetching the history before" in one, "from entry 1 on" in one) for one in lines] == [
        (True, False),
        (False, True),
    ]
    assert _asides(node) == []


def test_what_was_fetched_serves_readers_and_followers() -> None:
    cluster = _cluster()
    node = _replaced(cluster)
    _until_whole(cluster, node)
    assert [one.index for one in committed(node.replica)][:3] == [1, 2, 3]
    others = [other for other in cluster.nodes.values() if other is not node]
    for other in others:
        _replace(cluster, other)  # in the end all that they have came from `node`
        _until_whole(cluster, other, 60_000)
    _assert_whole(cluster)


def test_it_is_fetched_slowly_and_one_chunk_at_a_time() -> None:
    cluster = _cluster()
    asked: list[float] = []
    send, under_way = cluster.send, [0]

    def noted(source: int, target: int, payload: bytes) -> bool:
        message = decode(payload)
        if isinstance(message, HistoryRequest) and message.bytes_max:  # not the request for what exists
            asked.append(cluster.now_ms)
            under_way[0] += 1
            assert under_way[0] == 1
        elif isinstance(message, HistoryChunk):
            under_way[0] = 0
        return send(source, target, payload)

    cluster.send = noted  # type: ignore[method-assign]
    node = _replaced(cluster)
    _until_whole(cluster, node)
    gaps = [after - before for before, after in itertools.pairwise(asked)]
    assert len(gaps) > 5
    assert min(gaps) >= CHUNK_PACE_MS * 2, "a share for each of the node's two shards"


def test_restarts_and_lost_power_cost_a_segment_at_most() -> None:
    cluster = _cluster(count=1500)
    node = _replaced(cluster)
    lives = 0
    for crash in (Crash.LOST, Crash.TORN, Crash.KEPT):
        before = _missing(node)
        cluster.until(lambda before=before: _missing(node) < before)  # type: ignore[misc]
        reached = _missing(node)
        node.restart(crash)
        lives += 1
        assert _missing(node) <= reached or crash is not Crash.KEPT
        assert _missing(node) < before
    assert lives == 3
    _until_whole(cluster, node)
    _assert_whole(cluster)
    assert _asides(node) == []


def test_links_that_break_and_leaders_that_change_only_delay_it() -> None:
    cluster = _cluster(count=1500)
    node = _replaced(cluster)
    for _ in range(4):
        cluster.until(lambda: node.replica.status()["backfill"]["from"] is not None)
        count_fault("raftlog", "peer lost while it sends history")
        cluster.nodes[node.replica.status()["backfill"]["from"]].restart()
        cluster.elect()
    _until_whole(cluster, node, 60_000)
    _assert_whole(cluster)


def test_chunks_that_are_lost_are_asked_for_again() -> None:
    cluster = _cluster()
    rng = random.Random(5)
    _chunks(cluster, lambda source, target, payload: payload if rng.random() < 0.8 else None)
    count_fault("raftlog", "history chunk lost")
    node = _replaced(cluster)
    _until_whole(cluster, node, 600_000)
    _assert_whole(cluster)


def test_damage_from_a_peer_is_refused_and_another_one_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    cluster = _cluster()
    leader = cluster.elect()
    node, liar = cluster.followers()

    def damage(source: int, target: int, payload: bytes) -> bytes:
        if source != liar.number or len(payload) < 500:
            return payload
        count_fault("raftlog", "history damaged on its way")
        return payload[:-100] + bytes([payload[-100] ^ 1]) + payload[-99:]

    _chunks(cluster, damage)
    with caplog.at_level(logging.WARNING, LOG_NAME):
        _replace(cluster, node)
        _until_whole(cluster, node)
    refused = [one for one in caplog.records if "which was refused" in one.getMessage()]
    assert len(refused) == 1, "it is not asked again soon"
    assert f"node {liar.number}" in refused[0].getMessage()
    assert leader.is_up
    _assert_whole(cluster)


def test_with_damaged_peers_only_nothing_is_adopted() -> None:
    cluster = _cluster()
    _chunks(cluster, lambda source, target, payload: payload[:-1] + bytes([payload[-1] ^ 1]))
    node = _replaced(cluster)
    missing = _missing(node)
    cluster.advance(3 * LOOK_AGAIN_MS)
    assert _missing(node) == missing
    assert _asides(node) == []
    cluster.advance(BARRED_MS)
    assert node.is_up
    assert _missing(node) == missing


def test_a_peer_that_says_anything_else_is_not_believed() -> None:
    cluster = _cluster()
    node = _replaced(cluster)
    asking = node.replica._peering.backfilling  # type: ignore[union-attr]
    cluster.until(lambda: asking.status()["from"] is not None)
    rng = random.Random(7)
    for _ in range(300):
        count_fault("raftlog", "made-up history chunk")
        peer = rng.choice([1, 2, 3, 9])
        index, size = rng.choice([0, 64, _missing(node)]), rng.choice([0, 1, 70, 1 << 62])
        chain, data = rng.choice([b"", bytes(16)]), bytes(rng.choice([0, 1, 70, 300_000]))
        asking.answered(peer, HistoryChunk(index, size, -5, chain, rng.choice([0, 1, 1 << 62]), data))
        cluster.advance(rng.choice([0, 1, 50]))
        assert node.is_up
    node.restart()
    _until_whole(cluster, node, 60_000)
    _assert_whole(cluster)


def test_peers_without_it_are_asked_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    cluster = _cluster(dataclasses.replace(SNAPSHOTS, log_archive_retention_bytes=0))
    cluster.settings = SNAPSHOTS
    asked: list[float] = []
    send = cluster.send

    def noted(source: int, target: int, payload: bytes) -> bool:
        if _of(MessageKind.HISTORY_REQUEST, payload):
            asked.append(cluster.now_ms)
        return send(source, target, payload)

    cluster.send = noted  # type: ignore[method-assign]
    with caplog.at_level(logging.INFO, LOG_NAME):
        node = _replaced(cluster)
        missing = _missing(node)
        cluster.advance(5 * LOOK_AGAIN_MS)
    assert _missing(node) == missing
    assert 2 <= len(asked) <= 14
    assert not [one for one in caplog.records if "history" in one.getMessage()]


def test_retention_of_its_own_ends_it() -> None:
    cluster = _cluster()
    whole_bytes = sum(
        one.log_bytes for one in read_manifest(cluster.elect().files, f"{HOME}/{ARCHIVE}").segments
    )
    cluster.settings = dataclasses.replace(SNAPSHOTS, log_archive_retention_bytes=whole_bytes // 2)
    node = _replaced(cluster)
    missing = _missing(node)
    cluster.until(lambda: _missing(node) < missing)
    cluster.advance(2 * LOOK_AGAIN_MS)
    kept = read_manifest(node.files, f"{HOME}/{ARCHIVE}")
    assert 0 < kept.dropped_index < missing
    assert sum(one.log_bytes for one in kept.segments) <= whole_bytes // 2
    fetched = node.replica.status()["backfill"]["fetched_segments"]
    cluster.advance(3 * LOOK_AGAIN_MS)
    assert node.replica.status()["backfill"]["fetched_segments"] == fetched
    assert ShardReader(PATH, 0, node.files).verify() == []


def test_retention_of_the_peer_in_the_middle_of_it() -> None:
    cluster = _cluster(count=1500)
    node = _replaced(cluster)
    missing = _missing(node)
    cluster.until(lambda: _missing(node) < missing)
    cut = dataclasses.replace(SNAPSHOTS, log_archive_retention_bytes=0)
    for peer in cluster.running:
        if peer is not node:
            peer.replica._snapshotter._settings = cut  # type: ignore[union-attr]
    _grow(cluster, 500)
    cluster.advance(2 * LOOK_AGAIN_MS)
    assert _missing(node) <= missing
    assert ShardReader(PATH, 0, node.files).verify() == []
    cluster.assert_equal()


def test_a_snapshot_installed_meanwhile_begins_it_anew() -> None:
    """The node is far behind again, and the others have dropped the entries that would follow."""
    cluster = _cluster(dataclasses.replace(SNAPSHOTS, log_archive_retention_bytes=60_000))
    node = _replaced(cluster)
    cluster.until(lambda: node.replica.status()["backfill"]["from"] is not None)
    cluster.isolate(node.number)
    _grow_without(cluster, node, 6000)
    resets = node.machine.resets
    cluster.heal()
    cluster.until(lambda: node.machine.resets > resets, 30_000)
    missing = _missing(node)
    cluster.until(lambda: _missing(node) < missing, 60_000)
    cluster.assert_equal()
    assert ShardReader(PATH, 0, node.files).verify() == []


def _grow_without(cluster: ReplicaCluster, away: ClusterNode, count: int) -> None:
    leader = cluster.elect()
    for start in range(0, count, 50):
        for number in range(start, start + 50):
            leader.put((f"k{number % 97}", str(number)))
        cluster.advance(20)
    cluster.until(lambda: leader.machine.committed_index == leader.replica.last_index)
    assert away.is_up


def test_a_full_or_failing_disk_delays_the_backfill_and_stops_no_node() -> None:
    cluster = _cluster()
    node = cluster.followers()[0]
    node.wipe()
    node.start()
    failing = [True]

    def fail(number: int, operation: str, path: str) -> OSError | None:
        return OSError(28, "No space left on device") if failing[0] and "history." in path else None

    node.files.fail = fail
    cluster.until(lambda: node.machine.resets and not node.replica.status()["is_joining"])
    missing = _missing(node)
    count_fault("raftlog", "disk full while history is fetched")
    cluster.advance(2 * LOOK_AGAIN_MS)
    assert node.is_up
    assert _missing(node) == missing
    failing[0] = False
    _until_whole(cluster, node, 2 * LOOK_AGAIN_MS)
    _assert_whole(cluster)


def test_live_traffic_goes_on_beside_it() -> None:
    cluster = _cluster()
    node = _replaced(cluster)
    leader = cluster.elect()
    while _missing(node):
        leader.put_committed(("live", str(cluster.now_ms)))
        cluster.advance(5)
    _assert_whole(cluster)


@pytest.mark.parametrize("seed", range(6))
def test_under_random_faults(seed: int) -> None:
    cluster = ReplicaCluster(settings=SNAPSHOTS, seed=seed).start()
    cluster.elect()
    _grow(cluster, 1000)
    node = cluster.followers()[seed % 2]
    _replace(cluster, node)
    rng = random.Random(seed)
    for _ in range(12):
        cluster.advance(rng.uniform(5, 400))
        match rng.randrange(5):
            case 0:
                rng.choice(cluster.running).restart(rng.choice(list(Crash)))
            case 1:
                count_fault("raftlog", "link broken")
                cluster.unlink(*rng.sample(cluster.voters, 2))
            case 2:
                cluster.isolate(rng.choice(cluster.voters))
                cluster.advance(rng.uniform(50, 800))
                cluster.heal()
            case 3:
                leader = cluster.leader
                if leader is not None:
                    leader.put_many(100)
            case _:
                paused = rng.choice(cluster.running)
                paused.pause()
                cluster.advance(rng.uniform(50, 800))
                paused.host.resume()
        cluster.elect()
    _until_whole(cluster, node, 120_000)
    _assert_whole(cluster)


def test_a_request_for_anything_is_answered_or_ignored() -> None:
    cluster = _cluster()
    leader = cluster.elect()
    lending = leader.replica._peering.lending  # type: ignore[union-attr]
    rng = random.Random(3)
    other = cluster.followers()[0].number
    for _ in range(200):
        numbers = [rng.choice([0, 1, 64, 500, 5000, 1 << 62]) for _ in range(3)]
        lending.asked(other, HistoryRequest(*numbers))
        cluster.advance(rng.choice([0, 1]))
    assert leader.is_up
    cluster.assert_equal()
