"""Seeded disorder: nodes killed, paused, cut off, their power lost, links reset, messages lost, while entries
are proposed; acknowledged entries stay, and afterwards all logs are equal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from raftlog.env.settings import LogSettings
from raftlog.env.simulated_files import Crash
from raftlog.storage.directory import is_joining
from tests.report import count_fault
from tests.support.replica_cluster import PATH, ClusterHost, ClusterNode, ReplicaCluster
from tests.support.single_replica import SETTINGS

FORGETFUL = dataclasses.replace(
    SETTINGS, segment_bytes=4_000, snapshot_tail_records=100, log_archive_retention_bytes=0
)


class Chaos:
    """One schedule, from one seed."""

    def __init__(self, seed: int, settings: LogSettings = SETTINGS) -> None:
        self.cluster = ReplicaCluster(seed=seed, delay_ms=0.1 + seed % 5, settings=settings)
        self.rng = self.cluster.rng
        self.acknowledged: dict[str, str] = {}
        self.waiting: list[tuple[ClusterNode, int, str, str]] = []
        self.count = 0

    def run(self, rounds: int) -> None:
        cluster = self.cluster.start()
        for _ in range(rounds):
            self.rng.choice(self.steps())()
            cluster.advance(self.rng.uniform(1, 400))
            self.collect()
        cluster.dropped = lambda source, target, payload: False
        self.nobody_stopped_itself()
        for node in cluster.nodes.values():
            if node.is_up and node.host.is_paused:
                node.host.resume()
            if not node.is_up:
                node.start()
        cluster.heal()
        cluster.elect()
        cluster.assert_equal()
        self.nobody_stopped_itself()
        for key, value in self.acknowledged.items():
            found = [body for _, body in cluster.committed.values() if key.encode() in body]
            assert any(value.encode() in body for body in found), f"{key} was acknowledged and is gone"
        machine = cluster.running[0].machine
        for one in cluster.running:
            assert one.machine.values == machine.values

    def nobody_stopped_itself(self) -> None:
        assert [node.fatal_message for node in self.cluster.nodes.values() if node.fatal_message] == []

    def steps(self) -> list[Callable[[], None]]:
        """Return the possible next steps, each equally likely."""
        return [self.write, self.write, self.write, self.kill, self.pause, self.cut, self.reset, self.lossy]

    def write(self) -> None:
        leaders = [node for node in self.cluster.running if node.replica.is_ready and not node.host.is_paused]
        for node in leaders:
            for _ in range(self.rng.randrange(1, 30)):
                self.count += 1
                key, value = f"key-{self.count}-", f"value-{self.count}-"
                self.waiting.append((node, node.put((key, value)), key, value))

    def collect(self) -> None:
        """Count an entry as acknowledged once the machine that proposed it shows it as committed."""
        for node, index, key, value in list(self.waiting):
            if node.is_up and node.machine.committed_index >= index and index in node.machine.log:
                body = node.machine.log[index][1]
                if key.encode() in body:
                    self.acknowledged[key] = value
        self.waiting = [one for one in self.waiting if one[0].machine.committed_index < one[1]]

    def some(self) -> ClusterNode:
        leader = self.cluster.leader
        if leader is not None and self.rng.random() < 0.5:
            return leader
        return self.cluster.nodes[self.rng.choice(self.cluster.voters)]

    def kill(self) -> None:
        node = self.some()
        if node.is_up:
            node.kill(self.rng.choice([Crash.KEPT, Crash.LOST, Crash.TORN]))
            self.cluster.push(self.cluster.now_ms + self.rng.uniform(5, 900), None, self._start, node)

    def _start(self, node: ClusterNode) -> None:
        if not node.is_up:
            node.start()

    def pause(self) -> None:
        node = self.some()
        if node.is_up and not node.host.is_paused:
            node.pause()
            host = node.host
            self.cluster.push(self.cluster.now_ms + self.rng.uniform(5, 1500), None, host.resume)

    def cut(self) -> None:
        self.cluster.isolate(self.some().number)
        self.cluster.push(self.cluster.now_ms + self.rng.uniform(50, 1500), None, self.cluster.heal)

    def reset(self) -> None:
        one, other = self.rng.sample(self.cluster.voters, 2)
        count_fault("raftlog", "connection broken")
        self.cluster.unlink(one, other, again_ms=self.rng.uniform(1, 200))

    def lossy(self) -> None:
        if self.rng.random() < 0.5:
            self.cluster.dropped = lambda source, target, payload: False
        else:
            count_fault("raftlog", "messages lost")
            self.cluster.dropped = lambda source, target, payload: self.rng.random() < 0.1


class ChaosOfDisks(Chaos):
    """A schedule in which disks are also replaced, one after another, and some stall. Snapshots are frequent
    and the archive is short, so that snapshots are installed."""

    def steps(self) -> list[Callable[[], None]]:
        return [*super().steps(), self.write, self.write, self.replace, self.stall]

    def replace(self) -> None:
        """Replace a disk, unless another one is still new: three nodes survive one loss at a time."""
        homes = [(node, f"{PATH}/shard-0") for node in self.cluster.nodes.values()]
        if not any(is_joining(node.files, home) for node, home in homes):
            node = self.some()
            node.wipe()
            node.start()

    def stall(self) -> None:
        node = self.some()
        if node.is_up and not node.host.disk_ms:
            count_fault("raftlog", "slow disk")
            node.host.disk_ms = self.rng.uniform(1, 1500)
            node.replica.group_commit.average_ms = 1000.0
            self.cluster.push(
                self.cluster.now_ms + self.rng.uniform(100, 1500), None, self._relieve, node.host
            )

    def _relieve(self, host: ClusterHost) -> None:
        host.disk_ms = 0.0


@pytest.mark.parametrize("seed", range(25))
def test_what_was_acknowledged_survives_replaced_disks(seed: int) -> None:
    ChaosOfDisks(seed, FORGETFUL).run(60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_what_was_acknowledged_survives_many_replaced_disks(seed: int) -> None:
    ChaosOfDisks(seed, FORGETFUL).run(200)


@pytest.mark.parametrize("seed", range(25))
def test_what_was_acknowledged_survives_disorder(seed: int) -> None:
    Chaos(seed).run(60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_what_was_acknowledged_survives_longer_disorder(seed: int) -> None:
    Chaos(seed).run(200)
