"""Groups of the classic protocol on one node: `python -m benchmarks.classic_bench [--members N]`.

Heartbeats: those of 50 stable members, beside those of 50 members of the new protocol, in turns. Rebalances:
a group of N raw members, one connection each; one leaves, the others are told by their next heartbeats, which
all send at once, join again and send SyncGroup. CPU seconds are the node's. The longest turn of the loop
meanwhile is measured by `python -m benchmarks.turns_bench classic`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import classic, load
from benchmarks.figures import report
from cluster.launching.launcher import NodeProcess, launch_node

CONNECTIONS = 50
TURN_S = 1.5


def heartbeats(node: NodeProcess, rounds: int) -> None:
    address = (node.host, node.port)
    with load.peers(address, 1) as (peer,):
        load.create_topic(peer, "bench", CONNECTIONS)
    for in_flight in (16, 1):
        rates: list[tuple[float, float]] = []
        for number in range(rounds):
            shape = {"connections": CONNECTIONS, "in_flight": in_flight, "duration_s": TURN_S}
            name = f"beats-{in_flight}-{number}"
            new = load.steady_heartbeats(address, node.pid, group_id=name, **shape)
            old = classic.steady_heartbeats(address, node.pid, group_id=f"{name}-classic", **shape)
            rates.append((old.per_cpu_s, new.per_cpu_s))
        what = f"classic heartbeats per CPU-s, {CONNECTIONS} x {in_flight}, and the new protocol's"
        figure = " / ".join(f"{statistics.median(each):,.0f}" for each in zip(*rates, strict=True))
        report(what, figure)
        report(
            "ratio in the same round", f"{statistics.median(old / new for old, new in rates):.2f}", ">= 0.8"
        )


def rebalances(node: NodeProcess, num_members: int, rounds: int) -> None:
    address = (node.host, node.port)
    with load.peers(address, num_members) as opened:
        members = classic.stable_members(opened, f"classic-{num_members}")
        for _ in range(rounds):
            cpu_s, begun_s = load.cpu_seconds(node.pid), time.perf_counter()
            members = classic.rejoin_after_leaving(members)
            took_s = time.perf_counter() - begun_s
            cpu_s = load.cpu_seconds(node.pid) - cpu_s
            report(
                f"{len(members):,} members join again after one left", f"{took_s:.2f} s, CPU {cpu_s:.2f} s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=1_000, help="of the large group (default 1,000)")
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement (default 3)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
        node = launch_node(Path(directory) / "node")
        try:
            heartbeats(node, options.rounds)
            rebalances(node, options.members, options.rounds)
        finally:
            node.stop()


if __name__ == "__main__":
    main()
