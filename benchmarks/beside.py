"""This checkout's node compared with those of others: `python -m benchmarks.beside CHECKOUT … [--rounds N]`.

All nodes run at the same time and alternate under the same load, a second each, in an order that is reversed
every round, so that other work on the machine affects all of them. Each other checkout needs its own virtual
environment in `.venv`. Prints a line for each load and checkout: the median rate per CPU-second of the node,
its range, and the median of the ratios to the first checkout in the same round.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import load

HERE: Final = Path(__file__).resolve().parent.parent
CONNECTIONS: Final = 50
START: Final = """
import sys
from pathlib import Path
from cluster.launching.launcher import launch_node
node = launch_node(Path(sys.argv[1]))
print(node.pid, node.host, node.port, flush=True)
sys.stdin.read()
node.stop()
"""


@dataclass(frozen=True)
class Node:
    """A single-node cluster run from the checkout `name`."""

    name: Path
    pid: int
    address: tuple[str, int]


def _heartbeats(in_flight: int) -> Callable[[Node, int], load.Rate]:
    return lambda node, round_: load.steady_heartbeats(
        node.address, node.pid, in_flight=in_flight, duration_s=1.0, group_id=f"beside-{in_flight}-{round_}"
    )


def _commits(node: Node, _: int) -> load.Rate:
    return load.commits(
        node.address, node.pid, connections=CONNECTIONS, in_flight=16, partitions=1, duration_s=1.0
    )


LOADS: Final = {
    "commits of 1 partition, 50 x 16": _commits,
    "heartbeats, 50 x 1": _heartbeats(1),
    "heartbeats, 50 x 16": _heartbeats(16),
}


@contextlib.contextmanager
def _node(checkout: Path, data: Path) -> Iterator[Node]:
    """Run a node during the block; its process stops it when its input is closed."""
    process = subprocess.Popen(
        [checkout / ".venv" / "bin" / "python", "-c", START, data],
        cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        pid, host, port = process.stdout.readline().split()
        node = Node(checkout, int(pid), (host, int(port)))
        with load.peers(node.address, 1) as (peer,):
            load.create_topic(peer, "bench", CONNECTIONS)
        yield node


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument(
        "checkouts", nargs="+", type=Path, help="the first is what the others are compared with"
    )
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="turns of each (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
        checkouts = [*(checkout.resolve() for checkout in options.checkouts), HERE]
        nodes = [
            stack.enter_context(_node(checkout, Path(work, str(number))))
            for number, checkout in enumerate(checkouts)
        ]
        for what, measure in LOADS.items():
            rates: dict[Node, list[float]] = {node: [] for node in nodes}
            for number in range(options.rounds):
                for node in nodes if number % 2 else reversed(nodes):
                    rates[node].append(measure(node, number).per_cpu_s)
            for node in nodes:
                mine = rates[node]
                ratio = statistics.median(
                    [one / first for one, first in zip(mine, rates[nodes[0]], strict=True)]
                )
                print(
                    f"{what:<32} {node.name.name:<16} {statistics.median(mine):>9,.0f} per CPU-s "
                    f"({min(mine):,.0f} to {max(mine):,.0f})   {ratio:.3f} of {nodes[0].name.name}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
