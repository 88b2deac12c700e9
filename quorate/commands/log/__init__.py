"""`quorate log …`: the offline readers of `history` on a node's directory, which is never written to.

The directory comes first, then the question; without one it is `quorate-data`. It may belong to a running
node, be a copy, or be damaged. A folder that holds a cluster's nodes (node-1, node-2, …) stands for the most
advanced of them.
"""

from __future__ import annotations

from quorate.commands.log.archive import archive
from quorate.commands.log.compare import compare
from quorate.commands.log.diff import diff
from quorate.commands.log.dump import dump
from quorate.commands.log.explain import explain
from quorate.commands.log.export import export
from quorate.commands.log.findings import findings
from quorate.commands.log.owner import owner
from quorate.commands.log.replay import replay
from quorate.commands.log.stats import stats
from quorate.commands.log.terms import terms
from quorate.commands.log.timeline import timeline
from quorate.commands.log.verify import verify
from quorate.commands.log.whatif import whatif
from quorate.commands.options import CommandGroup

app = CommandGroup("Read a node's log: what happened, and why.")
_COMMANDS = (
    findings,
    explain,
    timeline,
    owner,
    diff,
    stats,
    export,
    whatif,
    replay,
    terms,
    dump,
    verify,
    compare,
    archive,
)
for _command in _COMMANDS:
    app.command(_command.__name__)(_command)
