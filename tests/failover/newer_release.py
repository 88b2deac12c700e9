"""A node of a future release, which reads and writes one format level more than this one.

python -P -m tests.failover.newer_release [as with `python -m cluster`]
"""

from __future__ import annotations

import sys

import cluster.node
from cluster.main import main

if __name__ == "__main__":  # importing this module changes nothing
    cluster.node.LATEST_FORMAT_LEVEL += 1  # type: ignore[attr-defined]  # the name that `cluster.node` imported
    sys.exit(main(sys.argv[1:]))
