"""`python -m tests.differential.unpaced`: a node that computes every target at once, as Kafka does here.

A group's wait for its next target depends on what the last one cost on this machine, so on a busy machine the
two sides would answer at different epochs. That pacing has tests of its own.
"""

import sys

from cluster.main import main
from coordinator.api import Context
from coordinator.leader_state.pacing import TargetPacing


def _at_once(pacing: TargetPacing, group_id: str, ctx: Context) -> bool:
    return True


if __name__ == "__main__":
    TargetPacing.may_compute = _at_once  # type: ignore[method-assign, assignment]
    sys.exit(main(sys.argv[1:]))
