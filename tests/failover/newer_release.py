"""A node of a future release, which reads and writes one format level more than this one.

python -P -m tests.failover.newer_release [as with `python -m cluster`]
"""

from __future__ import annotations

import sys

from cluster.main import main
from cluster.node import Node

if __name__ == "__main__":  # importing this module changes nothing
    Node.format_level_max += 1
    sys.exit(main(sys.argv[1:]))
