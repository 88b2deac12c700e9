"""The wait of `quorate cluster drain`: until a node leads nothing, and can be missed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from quorate.commands.verdict import (
    LAG_ENTRIES,
    Views,
    has_majority,
    leader_of,
    name_of,
    shard_of_view,
    term_of,
)
from quorate.commands.views import ask_views
from quorate.errors import CommandError, ExitCode

DRAIN_TIMEOUT_S = 30.0
"""By default a node has so long to hand over what it leads. Mostly it takes less than a second."""

POLL_S = 0.25


def wait_until_empty(urls: str, node_id: int, deadline_s: float) -> str:
    """Wait until the node leads nothing and another serves every shard; returns what to tell the operator.

    Raises `CommandError` (degraded) if it does not happen before `deadline_s` by the monotonic clock, or if
    the others are no majority without the node.
    """
    while True:
        left_s = deadline_s - time.monotonic()
        views = ask_views(urls, max(0.1, left_s))[2]
        missing = _not_moved(views, node_id)
        if not missing:
            break
        if left_s <= POLL_S:
            hint = (
                f"it hands over as soon as it can; `quorate cluster undrain {node_id}` withdraws the request"
            )
            message = f"node {node_id} is drained, but may not be stopped yet: {'; '.join(missing)}"
            raise CommandError(message, hint=hint, code=ExitCode.DEGRADED)
        time.sleep(POLL_S)
    if not has_majority(views, without=node_id):
        raise CommandError(
            f"node {node_id} leads nothing, but without it there is no majority: do not stop it",
            hint="`quorate cluster status` shows which nodes are away",
            code=ExitCode.DEGRADED,
        )
    back = f"`quorate cluster undrain {node_id}`"
    if node_id not in views:
        return f"node {node_id} leads nothing and does not respond; it will lead nothing until {back}"
    return f"node {node_id} leads nothing and may be stopped; it will lead nothing until {back}"


def _not_moved(views: Views, node_id: int) -> list[str]:
    """The reasons why the node is not empty, shards with the same reason together; empty if nothing does."""
    shards: dict[str, list[str]] = {}
    for number in [shard["shard"] for shard in next(iter(views.values()))["shards"]]:
        own = {one: shard_of_view(view, number) for one, view in views.items()}
        leader = leader_of(own)
        if leader is None:
            leader = max(own.values(), key=term_of).get("leader_id")
        if leader == node_id:
            why = f"it leads {{}}{_why(own.get(node_id) or {})}"
        elif leader is None:
            why = "nobody leads {}"
        elif leader in own and own[leader].get("state") != "Ready":
            why = f"node {leader} does not serve {{}} yet"
        else:
            continue
        shards.setdefault(why, []).append(name_of(number))
    return [why.replace("{}", ", ".join(names)) for why, names in shards.items()]


def _why(leading: Mapping[str, Any]) -> str:
    """The reasons why no other node takes a shard over, as its leader knows them."""
    reasons = []
    for row in leading.get("log", {}).get("followers") or ():
        other = f"node {row['node_id']}"
        lag = row.get("lag") or 0
        if not row.get("in_contact", True):
            reasons.append(f"{other} is not connected")
        elif row.get("is_drained"):
            reasons.append(f"{other} is drained too")
        elif obstacle := row.get("cannot_serve"):
            reasons.append(f"{other} cannot serve it: {obstacle}")
        elif row.get("is_joining") or lag > LAG_ENTRIES:
            reasons.append(f"{other} is {lag} entries behind")
    return f" ({', '.join(reasons)})" if reasons else ""
