"""Kill rounds on a three-node cluster, under clients that commit as fast as they are acknowledged.

A round removes the leader of one shard (`Fault`: killed, stopped, or cut off from its peers), under rules
without which it could not detect a loss:

* there are at least 100 acknowledged commits per second up to the fault, or the round does not count; each
  client records its commits in a file;
* the committing clients are killed in the same instant: librdkafka retries a commit in flight by itself, and
  that commit would hide a lost one;
* the leader must have changed;
* every key is fetched from the new leader before anyone commits it again, and a third of the keys are never
  committed again;
* every acknowledged (key, offset) of all rounds is looked for in the log at the end.

Besides, one group of consumers lives through all rounds (`benchmarks/consumer.py`); their diaries show that
no partition moved or had two owners. Another group in each shard is never stable: just before each fault one
member leaves and one joins, so that the leader is lost in the middle of a rebalance, and no member may get a
partition that another one still owns. A raw member measures each outage.
"""

from __future__ import annotations

import enum
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import consumer
from benchmarks.diaries import Diary, double_owners, read_diary
from benchmarks.raw import RawGroup, RawMember
from cluster.launching.launcher import ClusterProcess, NodeProcess
from history.checking.commits import Key, missing_commits
from history.checking.verify import report_text, verify
from records import shard_of
from tests.failover.mesh import Meshed
from tests.failover.proxy import Proxy
from tests.report import count_fault
from tests.support import committers
from tests.support.polled_consumers import Crowd
from tests.support.waiting import wait_for

NUM_SHARDS = 4
TOPIC, MEMBERS_TOPIC = "orders", "watched"
MEMBERS_GROUP = "watchers"
NUM_MEMBERS, MEMBERS_PARTITIONS = 4, 8
NUM_MOVERS = 2
MOVES_WITHIN_S = 0.2
"""Members leave and join at most this long before the fault: about the length of a rebalance."""
GROUPS_PER_SHARD = 3
KEYS_PER_GROUP = 3
COMMIT_S = 0.5
COMMITS_PER_S_MIN = 100
TRIES_MORE = 3
START_S = 30.0
AWAY_S = 1.5
"""A leader stays stopped or cut off for this long: several election timeouts."""


class Fault(enum.Enum):
    """A fault of a leader."""

    KILL = "kill -9 of the leader"
    PAUSE = "SIGSTOP of the leader, SIGCONT later"
    CUT = "connections of the leader aborted"


@dataclass(slots=True)
class Outages:
    """Seconds from the fault until the next leader accepted a heartbeat, by fault."""

    by_fault: dict[Fault, list[float]] = field(default_factory=dict)

    def add(self, fault: Fault, seconds: float) -> None:
        self.by_fault.setdefault(fault, []).append(seconds)

    def __str__(self) -> str:
        lines = []
        for fault, seconds in self.by_fault.items():
            ordered = sorted(seconds)
            middle = ordered[len(ordered) // 2]
            lines.append(
                f"{fault.value}: {len(ordered)} rounds, first heartbeat accepted after "
                f"{ordered[0]:.2f} / {middle:.2f} / {ordered[-1]:.2f} s (min / median / max)"
            )
        return "\n".join(lines)


class Rounds:
    """The cluster, the keys, and everything ever acknowledged."""

    def __init__(self, cluster: ClusterProcess, directory: Path, meshed: Meshed | None = None) -> None:
        self.cluster = cluster
        self.meshed = meshed
        self.directory = directory
        self.outages = Outages()
        self.num_rounds = 0
        self.num_slow = 0
        self.groups = _groups_by_shard()
        self.keys: dict[str, list[int]] = {group: [] for groups in self.groups.values() for group in groups}
        self.next_partition = 0
        self.offsets: dict[tuple[str, int], int] = {}
        self.all_acknowledged: list[tuple[Key, int]] = []
        self._members: list[subprocess.Popen[bytes]] = []
        self._settled_s = 0.0
        self._movers: dict[int, Crowd] = {}
        self._leaving: list[threading.Thread] = []

    # ---- the group that lives through all rounds ----

    def start_members(self) -> None:
        for number in range(NUM_MEMBERS):
            command = [sys.executable, "-P", consumer.__file__, self.cluster.bootstrap]
            command += [MEMBERS_GROUP, MEMBERS_TOPIC, str(self._diary(number))]
            self._members.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        even = [MEMBERS_PARTITIONS // NUM_MEMBERS] * NUM_MEMBERS
        wait_for(lambda: self._shares() == even, lambda: f"shares {self._shares()}", START_S)
        self._settled_s = time.monotonic()

    def kill_members(self) -> None:
        for process in self._members:
            process.kill()
            process.wait()
        self._members.clear()

    def diaries(self) -> list[Diary]:
        return [read_diary(self._diary(number)) for number in range(NUM_MEMBERS)]

    def _diary(self, number: int) -> Path:
        return self.directory / f"member-{number}.jsonl"

    def _shares(self) -> list[int]:
        """Return the number of partitions of each consumer."""
        return [sum(span.end_s == float("inf") for span in diary.spans()) for diary in self.diaries()]

    # ---- the groups that are never stable ----

    def start_movers(self) -> None:
        for shard in range(NUM_SHARDS):
            name = next(name for name in _names("movers") if shard_of(name, NUM_SHARDS) == shard)
            self._movers[shard] = Crowd(self.cluster.bootstrap, name, MEMBERS_TOPIC)
            for _ in range(NUM_MOVERS):
                self._movers[shard].join()
        for crowd in self._movers.values():
            crowd.wait_balanced(MEMBERS_PARTITIONS)

    def stop_movers(self) -> None:
        """Let them leave; fail if a member was assigned a partition that another one still owned."""
        for leaving in self._leaving:
            leaving.join()
        while self._movers:
            _, crowd = self._movers.popitem()
            crowd.close()

    def _move(self, shard: int) -> None:
        """Let one member join and the oldest one leave, and wait for a random moment before the fault."""
        crowd = self._movers[shard]
        oldest = next(member for member in crowd.members if not member.closed)
        crowd.join()
        leaving = threading.Thread(target=oldest.close)
        leaving.start()
        self._leaving.append(leaving)
        time.sleep(MOVES_WITHIN_S * (self.num_rounds % 5) / 4)

    # ---- a round ----

    def run(self, faults: Sequence[Fault], count: int) -> None:
        """Run `count` rounds that are fast enough, alternating faults; a busy machine may need more."""
        tries_max = count + count // 4 + TRIES_MORE
        while self.num_rounds - self.num_slow < count:
            assert self.num_rounds < tries_max, f"{self.num_slow} of {self.num_rounds} rounds were too slow"
            self.run_round(faults[self.num_rounds % len(faults)])

    def run_round(self, fault: Fault) -> None:
        self.num_rounds += 1
        shard = self.num_rounds % NUM_SHARDS
        groups = self.groups[shard]
        files = self.directory / f"round-{self.num_rounds}"
        files.mkdir()
        self._choose_keys(groups)
        leader = self.leader_of(groups[0])
        watcher = self._watcher(groups[0])
        started = {
            group: {str(key): self.offsets.get((group, key), 0) for key in self.keys[group]}
            for group in groups
        }
        command = [
            sys.executable,
            "-P",
            committers.__file__,
            self.cluster.bootstrap,
            TOPIC,
            str(files),
        ]
        with subprocess.Popen([*command, json.dumps(started)], stderr=subprocess.DEVNULL) as process:
            try:
                self._wait_for_commits(files, groups)
                self._move(shard)
                self._wait_for_commits(files, groups)  # the moving members take CPU too
                faulted_s, faulted_ms = time.monotonic(), time.time() * 1000
                self._strike(fault, leader)
            finally:
                process.kill()
        try:
            watcher.group.nodes, watcher.group.coordinator = self._others(leader), None
            watcher.group.until_accepted(watcher.beat)
            self.outages.add(fault, time.monotonic() - faulted_s)
            self._check(files, groups, faulted_ms, self._others(leader))
            assert self.leader_of(groups[0], self._others(leader)) is not leader
        finally:
            watcher.group.close()
            self._mend(fault, leader, faulted_s + AWAY_S)
        self._wait_until_whole()

    def _strike(self, fault: Fault, leader: NodeProcess) -> None:
        if fault is Fault.KILL:
            leader.kill()
        elif fault is Fault.PAUSE:
            leader.pause()
        else:
            for proxy in self._links_of(leader):
                proxy.cut()
        count_fault("failover", fault.value)

    def _mend(self, fault: Fault, leader: NodeProcess, until_s: float) -> None:
        """Start a killed leader again at once; end another fault at `until_s`."""
        if fault is Fault.KILL:
            leader.start()
            return
        time.sleep(max(0.0, until_s - time.monotonic()))
        if fault is Fault.PAUSE:
            leader.resume()
        else:
            for proxy in self._links_of(leader):
                proxy.heal()

    def _links_of(self, node: NodeProcess) -> list[Proxy]:
        assert self.meshed is not None, "links are cut in their proxies"
        return [proxy for proxy, _ in self.meshed.links_of(node.node_id)]

    def leader_of(self, group_id: str, nodes: list[tuple[str, int]] | None = None) -> NodeProcess:
        group = RawGroup(nodes or self._addresses(), group_id)
        address = group.until_accepted(group.find)
        group.close()
        return next(node for node in self.cluster.nodes if (node.host, node.port) == address)

    def _watcher(self, beside: str) -> RawMember:
        """Return a stable member of a group of its own in the same shard."""
        shard = shard_of(beside, NUM_SHARDS)
        names = _names(f"watch-{self.num_rounds}")
        group_id = next(name for name in names if shard_of(name, NUM_SHARDS) == shard)
        found = RawMember(RawGroup(self._addresses(), group_id), "watcher", [MEMBERS_TOPIC])
        found.settle()
        return found

    def _addresses(self) -> list[tuple[str, int]]:
        return [(node.host, node.port) for node in self.cluster.nodes]

    def _others(self, leader: NodeProcess) -> list[tuple[str, int]]:
        return [(node.host, node.port) for node in self.cluster.nodes if node is not leader]

    def _choose_keys(self, groups: list[str]) -> None:
        """Keep two thirds of the last round's keys; the first third is never committed again."""
        for group in groups:
            partitions = self.keys[group]
            del partitions[:1]
            while len(partitions) < KEYS_PER_GROUP:
                partitions.append(self.next_partition)
                self.next_partition += 1

    def _wait_for_commits(self, files: Path, groups: list[str]) -> None:
        """Wait until every client has committed, and all of them fast enough for `COMMIT_S` seconds."""
        recent = 0

        def are_fast() -> bool:
            nonlocal recent
            since_ms = (time.time() - COMMIT_S) * 1000
            told = [committers.acknowledged(files / group) for group in groups]
            recent = sum(at_ms > since_ms for one in told for at_ms, _ in one)
            return all(told) and recent >= COMMIT_S * COMMITS_PER_S_MIN

        wait_for(are_fast, lambda: f"only {recent / COMMIT_S:.0f} commits per second", START_S)

    def _check(self, files: Path, groups: list[str], faulted_ms: float, nodes: list[tuple[str, int]]) -> None:
        """Fetch every key from the new leader before any client commits it again."""
        num_commits = 0  # commits of the last moments, which could be lost
        for group_id in groups:
            acknowledged = committers.acknowledged(files / group_id)
            group = RawGroup(nodes, group_id)
            found = group.until_accepted(group.fetch, TOPIC, list(acknowledged[-1][1]))
            group.close()
            for partition, offset in acknowledged[-1][1].items():
                assert found[partition] >= offset, f"{group_id} {TOPIC}-{partition} lost commits"
                self.offsets[group_id, partition] = found[partition]
            num_commits += sum(at_ms > faulted_ms - 1000 * COMMIT_S for at_ms, _ in acknowledged)
            self.all_acknowledged += [
                ((group_id, TOPIC, partition), offset)
                for _, offsets in acknowledged
                for partition, offset in offsets.items()
            ]
        self.num_slow += num_commits < COMMIT_S * COMMITS_PER_S_MIN

    def _wait_until_whole(self) -> None:
        """Wait until every node names a coordinator for every group again, itself if it leads."""
        for node in self.cluster.nodes:
            for groups in self.groups.values():
                group = RawGroup([(node.host, node.port)], groups[0])
                group.until_accepted(group.find)
                group.close()

    # ---- the end ----

    def check_members(self) -> None:
        """Check that no partition moved or had two owners, and that no acknowledged commit is lost."""
        self.kill_members()  # their last requests may still be carried out, so offsets may only be higher
        diaries = self.diaries()
        assert double_owners(diaries) == []
        moves = [
            event
            for diary in diaries
            for event in diary.of("assigned", "revoked", "lost")
            if event["at_s"] > self._settled_s
        ]
        assert moves == []
        group = RawGroup(self._addresses(), MEMBERS_GROUP)
        found = group.until_accepted(group.fetch, MEMBERS_TOPIC, list(range(MEMBERS_PARTITIONS)))
        group.close()
        for diary in diaries:
            for partition, offset in diary.last_acknowledged().items():
                assert found[partition] >= offset, f"{diary.member} lost a commit of partition {partition}"

    def check_movers(self) -> None:
        """Check that their rebalances end, also those that a fault interrupted."""
        for crowd in self._movers.values():
            crowd.wait_balanced(MEMBERS_PARTITIONS)
        self.stop_movers()

    def longest_gaps_s(self, faults_s: list[float]) -> list[float]:
        """Return the longest wait of a consumer for an acknowledgement, per fault (monotonic time)."""
        diaries = self.diaries()
        return [max(diary.longest_gap_s(at_s, at_s + 1.0) for diary in diaries) for at_s in faults_s]

    def check_logs(self) -> None:
        """Check that every acknowledged (key, offset) of all rounds is in the files of every node, and that
        no partition has two owners at any index."""
        self.cluster.stop()
        for node in self.cluster.nodes:
            assert missing_commits(str(node.data), self.all_acknowledged) == [], f"node {node.node_id}"
            report = verify(str(node.data))
            assert report.ok, "\n".join(report_text(report))


def _names(prefix: str) -> Iterator[str]:
    return (f"{prefix}-{number}" for number in range(1_000))


def _groups_by_shard() -> dict[int, list[str]]:
    """Return the names of `GROUPS_PER_SHARD` groups for each shard."""
    found: dict[int, list[str]] = {shard: [] for shard in range(NUM_SHARDS)}
    for number in range(10_000):
        name = f"group-{number}"
        groups = found[shard_of(name, NUM_SHARDS)]
        if len(groups) < GROUPS_PER_SHARD:
            groups.append(name)
    return found
