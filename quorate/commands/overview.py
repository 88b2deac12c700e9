"""The text of `quorate cluster status`: nodes, shards, problems, and the verdict.

Three views are combined: each node knows its own shards, the leader of a shard knows its followers, and each
end of a link knows why it is down. Unknown values are shown as `?`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from history.render import duration
from quorate.commands.verdict import (
    PROBLEMS_NAMED,
    ClusterVerdict,
    Views,
    leader_of,
    requests_in_force,
    shard_of_view,
    term_of,
)
from quorate.errors import ExitCode
from quorate.output import print_table, say


def print_cluster(url: str, document: Mapping[str, Any], views: Views, verdict: ClusterVerdict) -> None:
    """Print the overview; `document` is the view of the node at `url`, `views` has all of them."""
    say(f"cluster {document['cluster_id']}, seen by node {document['node_id']} at {url}")
    say(f"format level {document['format_level']}")
    say()
    rows = [_node_row(node, views) for node in document["nodes"]]
    print_table(("NODE", "KAFKA", "HTTP", "RELEASE", "UP", "LINK"), rows)
    say()
    ids = [node["node_id"] for node in document["nodes"]]
    shards = [_shard_row(number, ids, views) for number in (row["shard"] for row in document["shards"])]
    print_table(("SHARD", "LEADER", "TERM", "COMMITTED", *(f"NODE {node_id}" for node_id in ids)), shards)
    unnamed = verdict.problems[PROBLEMS_NAMED if verdict.code is ExitCode.DEGRADED else 0 :]
    notes = [*unnamed, *requests_in_force(views), *_jumped_clocks(views)]
    for line in ["", *notes, *([""] if notes else []), verdict.sentence]:
        say(line)


def _node_row(node: Mapping[str, Any], views: Views) -> tuple[object, ...]:
    view = views.get(node["node_id"])
    return (
        node["node_id"],
        _address(node["kafka"]),
        _address(node["http"]),
        node["release"],
        duration(view["uptime_ms"]) if view else ("?" if node["in_contact"] else None),
        _link(node),
    )


def _link(node: Mapping[str, Any]) -> str:
    if node["is_self"]:
        return "this node"
    link = node["link"] or {}
    state = "up" if node["in_contact"] else "DOWN"
    return state if "for_ms" not in link else f"{state} {duration(link['for_ms'])}"


def _shard_row(number: int, ids: Sequence[int], views: Views) -> tuple[object, ...]:
    own = {node_id: shard_of_view(view, number) for node_id, view in views.items()}
    leader = leader_of(own)
    told = own[leader] if leader is not None else max(own.values(), key=term_of)
    followers = {row["node_id"]: row for row in told.get("log", {}).get("followers") or ()}
    named = leader if leader is not None else told.get("leader_id")
    return (
        "metadata" if number < 0 else str(number),
        "none" if named is None else str(named),
        term_of(told),
        told.get("committed_index", 0),
        *(_place(node_id, leader, own, followers) for node_id in ids),
    )


def _place(
    node_id: int,
    leader: int | None,
    own: Mapping[int, Mapping[str, Any]],
    followers: Mapping[int, Mapping[str, Any]],
) -> str:
    """A node's role for a shard: the leader's state, or a follower's lag."""
    shard = own.get(node_id)
    if shard is not None and shard.get("halted_reason"):
        return "HALTED"
    if node_id == leader:
        return f"leads, {own[node_id]['state']}"
    row = followers.get(node_id)
    if row is None:
        return "?" if shard is None else str(shard["state"])
    if not row.get("in_contact", True):
        return "gone"
    mode = str(row.get("mode", "replicating"))
    lag = row.get("lag")
    behind = "?" if lag is None else f"lag {lag}"
    return behind if mode == "replicating" else f"{behind}, {mode}"


CLOCK_JUMP_MS = 3_600_000


def _jumped_clocks(views: Views) -> list[str]:
    """Lines about clocks that jumped, after which nothing is wrong."""
    lines = []
    for node_id, view in sorted(views.items()):
        jump_ms = (view.get("clock") or {}).get("not_believed_ms", 0)
        if jump_ms > CLOCK_JUMP_MS:
            ahead = f"most clocks are {duration(jump_ms)} ahead of the time that node {node_id} saw pass"
            lines.append(f"{ahead}: they jumped, or it was down; nothing expires by the difference for a day")
    return lines


def _address(address: Mapping[str, Any] | None) -> str | None:
    return None if address is None else f"{address['host']}:{address['port']}"
