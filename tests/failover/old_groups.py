"""A group of an older protocol on a real cluster: consumers in processes of their own, faults, and proofs.

Each consumer keeps a diary (`tests.failover.old_consumer`); all facts are derived from the diaries, the
committed offsets, and the logs of all nodes:

* no partition is consumed by two consumers at once unless one of them is silent. Seed 000: its session is
  over since it sent its last request that was accepted. Push: it has no connection on which the coordinator
  was heard. Either: its process was killed, or did not run for `FROZEN_S`;
* after a kill each committed offset at the new leader is no lower than the last acknowledged one, before
  anyone commits again;
* a Start names no offset below one that was acknowledged before;
* every acknowledged (partition, offset) is in the log of every node, in an entry that is no younger than the
  acknowledgement, so that no later commit stands for a lost one.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.diaries import Diary, Span, read_diary
from benchmarks.raw import RawGroup
from cluster.launching.launcher import ClusterProcess, NodeProcess
from history.checking.commits import commits
from tests.support.real_cluster import addresses, leader_of
from tests.support.waiting import wait_for

HERE: Final = Path(__file__).parent
TOPIC: Final = "orders"
PARTITIONS: Final = 12
SESSION_MS, FREQUENCY = 3_000, 6
PING_MS, RETRIES = 800, 3
PATIENCE_S = {"rewrite": SESSION_MS / 1000, "push": PING_MS * (RETRIES + 1) / 1000}
"""The time that a consumer may be silent before its partitions go to others."""
FROZEN_S = 0.3
SETTLED_S = 20.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A protocol in its variant (push: how it fails over)."""

    protocol: str
    variant: str

    def __str__(self) -> str:
        return f"{self.protocol}, {self.variant}"


class OldConsumer:
    """One process and its diary."""

    def __init__(self, name: str, file: Path, asked: dict[str, Any]) -> None:
        self.name = name
        self.file = file
        self.killed_s = math.inf
        command = [sys.executable, "-m", "tests.failover.old_consumer"]
        command.append(json.dumps(asked | {"name": name, "file": str(file)}))
        with file.with_suffix(".err").open("w") as errors:
            self._process = subprocess.Popen(command, stderr=errors, cwd=HERE.parents[1])

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.killed_s = min(self.killed_s, time.monotonic())

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def diary(self) -> Diary:
        return read_diary(self.file)

    def spans(self) -> list[Span]:
        """The times at which it consumed each partition, until it was killed."""
        return [
            Span(one.partition, one.member, one.start_s, min(one.end_s, self.killed_s))
            for one in self.diary.spans()
        ]


class OldGroup:
    """The consumers of one group."""

    def __init__(self, kind: Kind, group_id: str, cluster: ClusterProcess, directory: Path) -> None:
        self.kind = kind
        self.group_id = group_id
        self.consumers: list[OldConsumer] = []
        self._cluster = cluster
        self._directory = directory
        self._directory.mkdir()

    def join(self, count: int = 1) -> None:
        """Start consumers. Every fourth one of a push group commits with its Pings."""
        ports = [(node.host, node.lineage_ports[self.kind.protocol]) for node in self._cluster.nodes]
        for _ in range(count):
            number = len(self.consumers)
            name = f"{self.group_id}-{number}"
            asked = {
                "protocol": self.kind.protocol,
                "variant": self.kind.variant,
                "group": self.group_id,
                "topic": TOPIC,
                "brokers": ports,
                "auto_commit": number % 4 == 3,
                "ping_interval_ms": PING_MS,
                "max_ping_retries": RETRIES,
                "session_ms": SESSION_MS,
                "frequency": FREQUENCY,
            }
            self.consumers.append(OldConsumer(name, self._directory / f"{name}.jsonl", asked))

    @property
    def live(self) -> list[OldConsumer]:
        return [one for one in self.consumers if one.is_alive]

    @property
    def are_awake(self) -> bool:
        """Whether every process has begun."""
        return all(one.diary.events for one in self.live)

    def end(self) -> None:
        for one in self.consumers:
            one.kill()

    # What they consume.

    def owners(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
        for one in self.live:
            for span in one.spans():
                if span.end_s == math.inf:
                    found[span.partition].append(one.name)
        return found

    def is_settled(self) -> bool:
        """Whether the consumers that live share out all partitions."""
        owners = self.owners()
        every = all(len(names) == 1 for names in owners.values())
        return every and {name for names in owners.values() for name in names} == {
            one.name for one in self.live
        }

    def settle(self) -> float:
        """Wait until they do; return the seconds."""
        return wait_for(
            self.is_settled, lambda: f"{self.kind}: all partitions shared out: {self.owners()}", SETTLED_S
        )

    def unowned_s(self, from_s: float, to_s: float) -> float:
        """Partition-seconds in an interval in which nobody consumed."""
        total_s = 0.0
        for number in range(PARTITIONS):
            spans = sorted(
                (max(span.start_s, from_s), min(span.end_s, to_s))
                for one in self.consumers
                for span in one.spans()
                if span.partition == number and span.start_s < to_s and span.end_s > from_s
            )
            at_s = from_s
            for start_s, end_s in spans:
                total_s += max(0.0, start_s - at_s)
                at_s = max(at_s, end_s)
            total_s += max(0.0, to_s - at_s)
        return total_s

    # Whether they are heard.

    def heard_after_s(self, since_s: float) -> dict[str, float | None]:
        """Seconds from `since_s` until each consumer that lives was heard; None if it was not yet."""
        return {one.name: _first_heard_s(one.diary, since_s) for one in self.live}

    def wait_heard(self, since_s: float) -> float:
        """Wait until all consumers that live were heard; return the last one's seconds."""
        wait_for(
            lambda: None not in self.heard_after_s(since_s).values(),
            lambda: f"{self.kind}: consumers heard: {self.heard_after_s(since_s)}",
            SETTLED_S,
        )
        return max(found for found in self.heard_after_s(since_s).values() if found is not None)

    def is_silent(self, one: OldConsumer, from_s: float, to_s: float) -> bool:
        """Whether a consumer was silent during the whole interval."""
        if from_s >= one.killed_s:
            return True
        silences = _frozen(one.diary)
        silences += _cut(one.diary) if self.kind.protocol == "push" else _over(one.diary)
        at_s = from_s
        for start_s, end_s in sorted(silences):
            if start_s <= at_s:
                at_s = max(at_s, end_s)
        return at_s >= to_s

    def doubled(self) -> list[tuple[Span, Span]]:
        """The times at which two consumers consumed a partition and neither was silent."""
        spans = [(one, span) for one in self.consumers for span in one.spans()]
        found = []
        for place, (one, span) in enumerate(spans):
            for other, another in spans[place + 1 :]:
                from_s, to_s = max(span.start_s, another.start_s), min(span.end_s, another.end_s)
                if other is one or another.partition != span.partition or from_s >= to_s:
                    continue
                to_s = min(to_s, time.monotonic())
                if not (self.is_silent(one, from_s, to_s) or self.is_silent(other, from_s, to_s)):
                    found.append((span, another))
        return found

    # What they committed.

    def acknowledged(self) -> list[tuple[int, int, int, float]]:
        """Partition, offset, wall ms, monotonic s of each acknowledged commit of a partition."""
        return [
            (int(partition), offset, event["wall_ms"], event["at_s"])
            for one in self.consumers
            for event in one.diary.of("acked")
            for partition, offset in event["offsets"].items()
        ]

    def wait_committing(self) -> None:
        """Wait until each consumer that lives has had a commit acknowledged since now.

        The next one is then under way: they commit without a pause, however slow the machine is."""
        since_s = time.monotonic()

        def silent() -> list[str]:
            return [one.name for one in self.live if max(one.diary.acked_s, default=0.0) <= since_s]

        wait_for(lambda: not silent(), lambda: f"{self.kind}: nothing is committed by {silent()}", SETTLED_S)

    def send(self, number: signal.Signals) -> None:
        for one in self.live:
            one.send(number)

    def check_committed(self, nodes: list[NodeProcess]) -> None:
        """Nobody commits now: compare what the leader answers with what was acknowledged."""
        last: dict[int, int] = {}
        for partition, offset, _, _ in self.acknowledged():
            last[partition] = max(offset, last.get(partition, -1))
        group = RawGroup(addresses(nodes), self.group_id)
        found = group.until_accepted(group.fetch, TOPIC, sorted(last))
        group.close()
        lost = {number: (at, found[number]) for number, at in last.items() if found[number] < at}
        assert not lost, f"{self.kind}: partition: (acknowledged, committed) {lost}"

    def check_starts(self) -> None:
        """No Start names an offset below one that had been acknowledged."""
        acknowledged = self.acknowledged()
        for one in self.consumers:
            for event in one.diary.of("started"):
                for name, offset in event["offsets"].items():
                    number = int(name)
                    before = [
                        at for part, at, _, at_s in acknowledged if part == number and at_s < event["at_s"]
                    ]
                    assert offset >= max(before, default=-1), f"{one.name}: {TOPIC}-{name} began too early"

    def check_log(self, node: NodeProcess) -> int:
        """Look for every acknowledged commit in a node's log; return how many there are."""
        written: dict[tuple[int, int], int] = {}
        for (_, topic, partition), every in commits(str(node.data), [self.group_id]).items():
            assert topic == TOPIC
            for one in every:
                written.setdefault((partition, one.offset), one.timestamp_ms)
        acknowledged = self.acknowledged()
        lost = [one for one in acknowledged if written.get(one[:2], math.inf) > one[2]]
        assert not lost, f"{self.kind}: node {node.node_id} has not, or too late, {lost[:10]}"
        return len(acknowledged)


def _first_heard_s(diary: Diary, since_s: float) -> float | None:
    """The time at which a consumer was heard after a fault: by an accepted request that was sent after it,
    or by a command that came after its old connection had ended, if it had one."""
    is_cut = True
    for event in diary.of("cut", "heard"):
        if event["event"] == "cut":
            is_cut = True
        elif event["at_s"] <= since_s:
            is_cut = False
        elif event["sent_s"] > since_s if "sent_s" in event else is_cut:
            return float(event["at_s"] - since_s)
    return None


def _frozen(diary: Diary) -> list[tuple[float, float]]:
    """The times without the process, each until the second sign of life: by then it has read everything."""
    signs = [event["at_s"] for event in diary.of("alive")]
    return [
        (before, signs[min(place + 2, len(signs) - 1)])
        for place, (before, after) in enumerate(pairwise(signs))
        if after - before > FROZEN_S
    ]


def _cut(diary: Diary) -> list[tuple[float, float]]:
    """From the end of a connection until the coordinator is heard on the next one."""
    found, since_s = [], None
    for event in diary.of("cut", "heard"):
        if event["event"] == "cut":
            since_s = event["at_s"]
        elif since_s is not None:
            found.append((since_s, event["at_s"]))
            since_s = None
    return found if since_s is None else [*found, (since_s, math.inf)]


def _over(diary: Diary) -> list[tuple[float, float]]:
    """From the end of each session until a request is accepted again."""
    heard = [(event["sent_s"] + PATIENCE_S["rewrite"], event["at_s"]) for event in diary.of("heard")]
    found = [(over_s, next_s) for (over_s, _), (_, next_s) in pairwise(heard) if over_s < next_s]
    return [*found, (heard[-1][0], math.inf)] if heard else []


def group_leader(cluster: ClusterProcess, group: OldGroup) -> NodeProcess:
    """The node that leads the group's shard, by the word of the running nodes."""
    return leader_of(
        [node for node in cluster.nodes if node.is_running and not node.is_paused], group.group_id
    )
