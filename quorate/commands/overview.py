"""The text of `quorate cluster status`: nodes, shards, and problems of links.

Three views are combined: each node knows its own shards, the leader of a shard knows its followers, and each
end of a link knows why it is down. Unknown values are shown as `?`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quorate.output import print_table

Views = Mapping[int, Mapping[str, Any]]
"""The cluster as seen by each node that answered, by node id."""


def print_cluster(url: str, document: Mapping[str, Any], views: Views) -> None:
    """Print the overview; `document` is the view of the node at `url`, `views` has all of them."""
    print(f"cluster {document['cluster_id']}, seen by node {document['node_id']} at {url}")
    print(f"format level {document['format_level']}")
    print()
    rows = [_node_row(node, views) for node in document["nodes"]]
    print_table(("NODE", "KAFKA", "HTTP", "RELEASE", "UP", "LINK"), rows)
    print()
    ids = [node["node_id"] for node in document["nodes"]]
    shards = [_shard_row(number, ids, views) for number in (row["shard"] for row in document["shards"])]
    print_table(("SHARD", "LEADER", "TERM", "COMMITTED", *(f"NODE {node_id}" for node_id in ids)), shards)
    for line in _troubles(views):
        print(line)


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
        return "asked"
    link = node["link"] or {}
    state = "up" if node["in_contact"] else "DOWN"
    return state if "for_ms" not in link else f"{state} {duration(link['for_ms'])}"


def _shard_row(number: int, ids: Sequence[int], views: Views) -> tuple[object, ...]:
    """One shard; its leader is the node that claims to lead in the highest term."""
    own = {node_id: _shard(view, number) for node_id, view in views.items()}
    leading = [node_id for node_id, shard in own.items() if shard.get("leader_id") == node_id]
    leader = max(leading, key=lambda node_id: _term(own[node_id]), default=None)
    told = own[leader] if leader is not None else max(own.values(), key=_term)
    followers = {row["node_id"]: row for row in told.get("log", {}).get("followers") or ()}
    named = leader if leader is not None else told.get("leader_id")
    return (
        "metadata" if number < 0 else str(number),
        "none" if named is None else str(named),
        _term(told),
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


def _troubles(views: Views) -> list[str]:
    """Lines about links that are down, wrong clocks, halted shards, and shards that a node cannot serve.

    A link that is down has a line from each end that was reached.
    """
    lines = []
    for node_id, view in sorted(views.items()):
        lines += _wrong_clocks(node_id, view.get("clock") or {})
        for node in view["nodes"]:
            if node["is_self"] or node["in_contact"]:
                continue
            trouble = (node["link"] or {}).get("trouble")
            why = f": {trouble}" if trouble else ""
            lines.append(f"node {node_id} has no link to node {node['node_id']}{why}")
        for shard in view["shards"]:
            if shard.get("halted_reason"):
                lines.append(f"node {node_id} has halted {shard['name']}: {shard['halted_reason']}")
            if obstacle := shard.get("log", {}).get("cannot_serve"):
                lines.append(f"node {node_id} cannot serve {shard['name']}: {obstacle}")
    return ["", *lines] if lines else []


CLOCK_WRONG_MS = 1_000
CLOCK_JUMP_MS = 3_600_000


def _wrong_clocks(node_id: int, clock: Mapping[str, Any]) -> list[str]:
    own_ms, jump_ms = clock.get("own_ahead_ms", 0), clock.get("not_believed_ms", 0)
    lines = []
    if abs(own_ms) > CLOCK_WRONG_MS:
        way = "ahead of" if own_ms > 0 else "behind"
        lines.append(f"the wall clock of node {node_id} is {duration(abs(own_ms))} {way} the cluster's time")
    if jump_ms > CLOCK_JUMP_MS:
        ahead = f"most clocks are {duration(jump_ms)} ahead of the time that node {node_id} saw pass"
        lines.append(f"{ahead}: they jumped, or it was down; nothing expires by the difference for a day")
    return lines


def _shard(view: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(shard for shard in view["shards"] if shard["shard"] == number)
    return found


def _term(shard: Mapping[str, Any]) -> int:
    return int(shard.get("log", {}).get("term", 0))


def _address(address: Mapping[str, Any] | None) -> str | None:
    return None if address is None else f"{address['host']}:{address['port']}"


def duration(elapsed_ms: float) -> str:
    """A duration in its largest suitable unit: `40 s`, `12 min`, `3 h`, `5 d`."""
    seconds = int(elapsed_ms / 1000)
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s} {unit}"
    return f"{seconds} s"
