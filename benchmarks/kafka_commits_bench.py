"""Commits per CPU-second beside Apache Kafka: `python -m benchmarks.kafka_commits_bench [--rounds N]`.

One node, which syncs every commit, and one broker of Apache Kafka 4.3, which does not, run at the same time
and alternate under the same load: 50 connections, each with 16 commits of one partition in flight. CPU
seconds are those of the server's process. Some rounds before the first counted one warm up the JVM. Without
Java, only the node is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import load
from benchmarks.apache import java_is_missing, launch_kafka
from benchmarks.figures import report
from cluster.launching.launcher import launch_node
from wire.apis import ApiKey
from wire.messages.find_coordinator import FindCoordinatorRequest

CONNECTIONS, IN_FLIGHT = 50, 16
WARM_UP = 3
TOPIC = "bench-commits"
READY_S = 60.0


@dataclass
class Server:
    """A server, and its commits per CPU-second in each round."""

    name: str
    pid: int
    address: tuple[str, int]
    rates: list[float] = field(default_factory=list)

    def wait_until_ready(self) -> None:
        """Commit once to every group: Kafka creates the topic of the offsets when it is first asked."""
        deadline_s = time.monotonic() + READY_S
        with load.peers(self.address, 1) as (peer,):
            load.create_topic(peer, TOPIC, 100)
            for number in range(CONNECTIONS):
                frame = load.commit_frame(f"bench-{number}", TOPIC, 1)
                while not self._commits(peer, frame):
                    if time.monotonic() > deadline_s:
                        raise TimeoutError(f"{self.name} accepts no commits")
                    peer.ask(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="bench-0", key_type=0))
                    time.sleep(0.1)

    def _commits(self, peer: load.Peer, frame: bytes) -> bool:
        try:
            load.check_commit(peer, frame)
        except RuntimeError:
            return False
        return True

    def measure(self, seconds: float) -> float:
        rate = load.commits(
            self.address, self.pid, connections=CONNECTIONS, in_flight=IN_FLIGHT, duration_s=seconds
        )
        return rate.per_cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn (default 2)")
    parser.add_argument("--rounds", type=int, default=9, help="of which the median is shown (default 9)")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quorate-bench-")))
        node = launch_node(work / "node")
        stack.callback(node.stop)
        servers = [Server("commits of 1 partition per CPU-s, with fsync", node.pid, (node.host, node.port))]
        if (why := java_is_missing()) is not None:
            print("without Apache Kafka:", why)
        else:
            kafka = stack.enter_context(launch_kafka(work / "kafka"))
            servers.append(Server("the same, Apache Kafka 4.3, no fsync", kafka.pids[0], kafka.addresses[0]))
        for server in servers:
            server.wait_until_ready()
        for number in range(WARM_UP + options.rounds):
            for server in servers if number % 2 else reversed(servers):
                rate = server.measure(options.seconds)
                if number >= WARM_UP:
                    server.rates.append(rate)
        for server in servers:
            figure = (
                f"{statistics.median(server.rates):,.0f} ({min(server.rates):,.0f}–{max(server.rates):,.0f})"
            )
            report(server.name, figure)
        if len(servers) > 1:
            ratios = [ours / theirs for ours, theirs in zip(*(one.rates for one in servers), strict=True)]
            report("ratio in the same round", f"{statistics.median(ratios):.2f}", ">= 1")


if __name__ == "__main__":
    main()
