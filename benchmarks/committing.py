"""Background load: `python -m benchmarks.committing BOOTSTRAP TOPIC GROUPS`, until it is killed.

One connection commits one partition of one group after the other, follows each group's coordinator, and
continues through every failover. It is a separate process so that it takes no time from the measuring one.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.raw import RawGroup
from quorate.retrying_client import parse_bootstrap


def commit_for_ever(bootstrap: str, topic: str, num_groups: int) -> None:
    nodes = parse_bootstrap(bootstrap)
    groups = [RawGroup(nodes, f"load-{number}") for number in range(num_groups)]
    offset = 0
    while True:
        offset += 1
        for group in groups:
            group.until_accepted(group.commit, topic, {0: offset})


@contextlib.contextmanager
def committing(bootstrap: str, topic: str, num_groups: int = 8) -> Iterator[None]:
    """Run the load during the body."""
    command = [sys.executable, "-m", "benchmarks.committing", bootstrap, topic, str(num_groups)]
    with subprocess.Popen(command) as child:
        try:
            yield
            if child.poll() is not None:
                raise RuntimeError(
                    f"the background load ended before it was stopped, with {child.returncode}"
                )
        finally:
            child.kill()


if __name__ == "__main__":
    commit_for_ever(sys.argv[1], sys.argv[2], int(sys.argv[3]))
