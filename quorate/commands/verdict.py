"""The verdict of `quorate cluster status`: all well, degraded and by what, or no majority.

It is drawn from the views of all nodes that answered. What they show is listed problem by problem; the
sentence at the end names the first ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from history.render import duration
from quorate.errors import ExitCode

Views = Mapping[int, Mapping[str, Any]]
"""The cluster as seen by each node that answered, by node id."""

PROBLEMS_NAMED = 3
"""Problems named in the sentence; the others are listed above it."""

LAG_ENTRIES = 10_000
"""A follower lags if it is behind by more: a leader hands its shard to any follower that is nearer."""

CLOCK_WRONG_MS = 1_000


@dataclass(frozen=True, slots=True)
class ClusterVerdict:
    """The judgement of a cluster; `problems` has a line for each thing."""

    code: ExitCode
    sentence: str
    problems: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The verdict as `--json` prints it."""
        word = {ExitCode.OK: "ALL_WELL", ExitCode.DEGRADED: "DEGRADED", ExitCode.NO_MAJORITY: "NO_MAJORITY"}
        return {
            "state": word[self.code],
            "sentence": self.sentence,
            "problems": list(self.problems),
            "exit_code": int(self.code),
        }


def verdict_of(views: Views) -> ClusterVerdict:
    """The verdict on a cluster, from the views of at least one node."""
    ids = _node_ids(views)
    away = _away(views, ids)
    problems = (*_of_nodes(views, ids, away), *_of_shards(views, ids, away))
    connected = max((_in_contact(view) for view in views.values()), key=len)
    if not has_majority(views):
        if connected <= set(views) and len(away) + len(connected) == len(ids):
            verb = "is" if len(connected) == 1 else "are"
            what = f"of {len(ids)} nodes only {_nodes_words(connected)} {verb} up"
        else:
            what = "too few nodes are connected with each other"
        return ClusterVerdict(
            ExitCode.NO_MAJORITY, f"no majority: {what}, so no shard can be served", problems
        )
    if problems:
        named = "; ".join(problems[:PROBLEMS_NAMED])
        more = len(problems) - PROBLEMS_NAMED
        named += f"; and {more} more" if more > 0 else ""
        return ClusterVerdict(ExitCode.DEGRADED, f"degraded: {named}", problems)
    nodes = "the node is up" if len(ids) == 1 else f"all {len(ids)} nodes are up"
    return ClusterVerdict(ExitCode.OK, f"all well: {nodes}, and every shard is served", ())


def has_majority(views: Views, *, without: int | None = None) -> bool:
    """Whether a node that answered reaches a majority, itself included; or would do so without a node."""
    return 2 * max(len(_in_contact(view) - {without}) for view in views.values()) > len(_node_ids(views))


def requests_in_force(views: Views) -> list[str]:
    """Lines about drained nodes, and leaders that transfers asked for."""
    newest = max(views.values(), key=lambda view: int(view["shards"][0].get("committed_index", 0)))
    lines = [
        f"node {node_id} is drained: it leads nothing until `quorate cluster undrain {node_id}`"
        for node_id in _drained(newest)
    ]
    for shard in newest["shards"]:
        if (asked := shard.get("asked_leader")) is None:
            continue
        leader = leader_of({one: shard_of_view(view, shard["shard"]) for one, view in views.items()})
        does = "leads" if leader == asked else "shall lead"
        word = "metadata" if shard["shard"] < 0 else shard["shard"]
        until = f"until `quorate cluster transfer {word} --undo`"
        lines.append(f"node {asked} {does} {name_of(shard['shard'])} by request, {until}")
    return lines


def _drained(view: Mapping[str, Any]) -> list[int]:
    return [node["node_id"] for node in view["nodes"] if node.get("drained")]


def shard_of_view(view: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """A node's view of its own replica of a shard."""
    found: Mapping[str, Any] = next(shard for shard in view["shards"] if shard["shard"] == number)
    return found


def term_of(shard: Mapping[str, Any]) -> int:
    return int(shard.get("log", {}).get("term", 0))


def leader_of(own: Mapping[int, Mapping[str, Any]]) -> int | None:
    """The node that claims to lead a shard in the highest term, given each node's view of its replica."""
    leading = [node_id for node_id, shard in own.items() if shard.get("leader_id") == node_id]
    return max(leading, key=lambda node_id: term_of(own[node_id]), default=None)


def name_of(number: int) -> str:
    return "the metadata shard" if number < 0 else f"shard {number}"


def _node_ids(views: Views) -> list[int]:
    return [node["node_id"] for node in next(iter(views.values()))["nodes"]]


def _in_contact(view: Mapping[str, Any]) -> set[int]:
    return {node["node_id"] for node in view["nodes"] if node["is_self"] or node["in_contact"]}


def _away(views: Views, ids: list[int]) -> set[int]:
    """The nodes that did not answer, and that no node that did is in contact with."""
    seen = set(views).union(*(_in_contact(view) for view in views.values()))
    return set(ids) - seen


def _nodes_words(node_ids: set[int]) -> str:
    *first, last = [str(node_id) for node_id in sorted(node_ids)]
    return f"nodes {', '.join(first)} and {last}" if first else f"node {last}"


def _of_nodes(views: Views, ids: list[int], away: set[int]) -> list[str]:
    """Nodes that are away or silent, links that are down, and wrong clocks.

    A link has a line from each end that was reached, since each knows its own reason.
    """
    problems = []
    for node_id in ids:
        if node_id in away:
            reasons = {_trouble(view, node_id) for view in views.values()} - {""}
            problems.append(
                f"node {node_id} is away" + (f": {' / '.join(sorted(reasons))}" if reasons else "")
            )
        elif node_id not in views:
            problems.append(f"node {node_id} does not respond to HTTP requests")
    for node_id, view in sorted(views.items()):
        for other in sorted(set(ids) - _in_contact(view) - away):
            why = _trouble(view, other)
            problems.append(f"node {node_id} has no link to node {other}" + (f": {why}" if why else ""))
        own_ms = (view.get("clock") or {}).get("own_ahead_ms", 0)
        if abs(own_ms) > CLOCK_WRONG_MS:
            way = "ahead of" if own_ms > 0 else "behind"
            problems.append(
                f"the wall clock of node {node_id} is {duration(abs(own_ms))} {way} the cluster's time"
            )
    return problems


def _trouble(view: Mapping[str, Any], node_id: int) -> str:
    """The reason why a node has no link to another, "" if it knows none."""
    node = next(node for node in view["nodes"] if node["node_id"] == node_id)
    return str((node["link"] or {}).get("trouble") or "")


def _of_shards(views: Views, ids: list[int], away: set[int]) -> list[str]:
    """Shards without a leader or not served yet, replicas that lag, and what keeps nodes from serving."""
    problems = []
    for number in [shard["shard"] for shard in next(iter(views.values()))["shards"]]:
        own = {node_id: shard_of_view(view, number) for node_id, view in views.items()}
        leader = leader_of(own)
        if leader is not None:
            if own[leader].get("state") != "Ready":
                problems.append(f"{name_of(number)} is not served yet: node {leader} leads it and catches up")
            problems += _of_followers(number, own[leader], away)
        elif not _is_led_by(own, set(ids) - away - set(views)):
            problems.append(f"{name_of(number)} has no leader")
        for node_id, shard in sorted(own.items()):
            if reason := shard.get("halted_reason"):
                problems.append(f"node {node_id} has halted {name_of(number)}: {reason}")
            if obstacle := shard.get("log", {}).get("cannot_serve"):
                problems.append(f"node {node_id} cannot serve {name_of(number)}: {obstacle}")
    return problems


def _is_led_by(own: Mapping[int, Mapping[str, Any]], silent: set[int]) -> bool:
    """Whether the newest leader known is among the nodes that are in contact but did not answer."""
    newest = max(own.values(), key=term_of)
    return newest.get("leader_id") in silent


def _of_followers(number: int, leading: Mapping[str, Any], away: set[int]) -> list[str]:
    problems = []
    for row in leading.get("log", {}).get("followers") or ():
        if row["node_id"] in away or not row.get("in_contact", True):
            continue  # said once, of the node or its link
        lag, mode = row.get("lag") or 0, str(row.get("mode", "replicating"))
        is_level = mode in ("replicating", "probing") and not row.get("is_joining")
        if lag > LAG_ENTRIES or not is_level:
            how = f" ({mode})" if mode != "replicating" else ""
            problems.append(f"node {row['node_id']} is {lag} entries behind in {name_of(number)}{how}")
    return problems
