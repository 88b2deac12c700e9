"""From a step to a request: what one side's client sends, with the epochs and ids that its server gave it.

Invariants: both sides are asked the same thing, and it is derived from what each *server* said. A
step that makes no sense at the moment (an older epoch of a member that never had one) asks nothing of
either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.differential import heartbeats, requests
from tests.differential.asked import Asked
from tests.differential.script import Step
from tests.differential.side import Side


def ask_for(step: Step, side: Side, group_id: str) -> Asked | None:
    """What `side` is asked at this step; None when it makes no sense there."""
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
