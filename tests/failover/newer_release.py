"""A node of a release to come, which reads and writes one format level more than this one.

python -P -m tests.failover.newer_release [as with `python -m cluster`]
"""

from __future__ import annotations

import sys

import cluster.node
from cluster.main import main

if __name__ == "__main__":  # whoever imports this for its path stays what it is
    cluster.node.LATEST_FORMAT_LEVEL += 1  # type: ignore[attr-defined]  # what it was imported as
    sys.exit(main(sys.argv[1:]))
