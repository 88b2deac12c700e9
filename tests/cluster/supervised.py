"""Runs a supervisor over three stand-ins, as `quorate up --nodes 3` does over nodes.

python -m tests.cluster.supervised DIR [wish of node 1] [of node 2] [of node 3]
"""

from __future__ import annotations

import sys
from pathlib import Path

from cluster.launching.launcher import prepare_cluster
from cluster.launching.supervisor import Supervisor

STAND_IN = str(Path(__file__).with_name("stand_in.py"))


def main(data: Path, wishes: list[str]) -> None:
    cluster = prepare_cluster(data, 3)
    for node in cluster.nodes:
        wish = wishes[node.node_id - 1] if wishes else "well"
        node.command = [sys.executable, STAND_IN, str(node.node_id), wish]
    try:
        Supervisor(cluster, show).run(lambda: show("all serve"))
    finally:
        cluster.kill()


def show(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
