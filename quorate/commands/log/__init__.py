"""`quorate log …`: the offline readers of `history` on a node's directory, which they never write to.

The directory comes first, then what is asked. It may belong to a running node, be a copy, or be damaged; the
folder that holds a cluster's nodes (node-1, node-2, …) stands for whichever of them is furthest.
"""

from __future__ import annotations

from quorate.commands.log.causes import explain, terms
from quorate.commands.log.changes import diff
from quorate.commands.log.checks import compare, verify
from quorate.commands.log.entries import dump
from quorate.commands.log.exports import export
from quorate.commands.log.figures import stats
from quorate.commands.log.oddities import findings
from quorate.commands.log.owners import owner
from quorate.commands.log.states import replay
from quorate.commands.log.timeline import timeline
from quorate.commands.log.whatif import whatif
from quorate.commands.options import new_app

app = new_app("Read a node's log: what happened, and why.")
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
)
for _command in _COMMANDS:
    app.command(_command.__name__)(_command)
