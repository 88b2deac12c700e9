"""Turns a step into a request of one side's client, with the epochs and ids that its server assigned.

Invariants: both sides get the same request, derived from the replies of each one's own *server*. A step that
makes no sense at the moment (an older epoch of a member that never had one) sends nothing to either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.differential import heartbeats, requests
from tests.differential.asked import Asked
from tests.differential.script import Step
from tests.differential.side import Side


def ask_for(step: Step, side: Side, group_id: str) -> Asked | None:
    """Return the request to `side` at this step; None if the step makes no sense there."""
    asked = _ASK[step.verb](step, side, group_id)
    if asked is not None:
        asked.has_unknown_field = step.get("tagged") == "1"
    return asked


_ASK: Final[dict[str, Callable[[Step, Side, str], Asked | None]]] = {
    "join": heartbeats.join,
    "beat": heartbeats.beat,
    "resubscribe": heartbeats.resubscribe,
    "assignor": heartbeats.assignor,
    "full": heartbeats.full,
    "leave": heartbeats.leave,
    "ghost": heartbeats.ghost,
    "stray": heartbeats.stray,
    "commit": requests.commit,
    "fetch": requests.fetch,
    "forget": requests.forget,
    "describe": requests.describe,
    "list": requests.list_groups,
    "delete": requests.delete,
    "classic": requests.classic,
    "configs": requests.configs,
}
