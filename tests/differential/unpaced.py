"""`python -m tests.differential.unpaced`: a node that computes every target at once, as the Kafka beside it
does.

How long a group waits for its next target goes by what the last one cost on this machine, so a busy machine
would make the two sides answer at different epochs. That pace has tests of its own.
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
