"""Faults on demand over HTTP (`/v1/faults`): set on every node of a cluster or on some, listed and cleared.

A fault is set on every node, since the coordinator of a group may move, and has the same id everywhere. Each
node applies and counts its own; none survives a restart of its node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from quorate.errors import CommandError, ExitCode
from quorate.http_client import OTHERS_TIMEOUT_S, HttpRefused, ask_json, first_of, node_url

FAULTS = "/v1/faults"
CLOCK = "/v1/clock"
NOT_FOUND = 404


class FaultNode(NamedTuple):
    """A node that can be asked for its faults."""

    node_id: int
    url: str


class AddedFault(NamedTuple):
    """A fault as a node shows it, the nodes that have it, and those that could not be asked."""

    nodes: list[int]
    without: list[int]
    fault: dict[str, Any]


def add_fault(
    url: str, body: Mapping[str, Any], wanted: Sequence[int] | None, timeout_s: float
) -> AddedFault:
    """Set a fault (the fields of `POST /v1/faults`, None left out) on the wanted nodes; None: on all.

    Raises `CommandError`; then no node has it."""
    nodes, missing = fault_nodes(url, wanted, timeout_s)
    known, silent = faults_of(nodes, timeout_s)
    demand_enabled(known)
    fault_id = max(state["next_id"] for state in known.values())
    given = {name: one for name, one in body.items() if one is not None} | {"id": fault_id}
    fault = set_fault(list(known), given, timeout_s)
    return AddedFault([one.node_id for one in known], sorted(missing + silent), fault)


def fault_nodes(
    url: str, wanted: Sequence[int] | None, timeout_s: float
) -> tuple[list[FaultNode], list[int]]:
    """The nodes to be asked, and the ids of those that cannot be reached through the cluster."""
    document, address = first_of(url, timeout_s, lambda one, one_s: ask_json(one + "/v1/cluster", one_s))
    known = [node["node_id"] for node in document["nodes"]]
    if unknown := sorted(set(wanted or ()) - set(known)):
        raise CommandError(
            f"there is no node {unknown[0]} in this cluster",
            hint=f"nodes: {', '.join(map(str, known))}",
            code=ExitCode.USAGE,
        )
    nodes, missing = [], []
    for node in document["nodes"]:
        if wanted and node["node_id"] not in wanted:
            continue
        if node["is_self"]:
            nodes.append(FaultNode(node["node_id"], address))
        elif node["in_contact"] and node["http"] and node["http"]["port"]:
            nodes.append(FaultNode(node["node_id"], node_url(node["http"])))
        else:
            missing.append(node["node_id"])
    return nodes, missing


def faults_of(nodes: Sequence[FaultNode], timeout_s: float) -> tuple[dict[FaultNode, Any], list[int]]:
    """The faults of each node, and the ids of those that do not respond.

    Raises `CommandError` if none does."""
    found: dict[FaultNode, Any] = {}
    silent = []
    one_s = timeout_s if len(nodes) == 1 else min(timeout_s, OTHERS_TIMEOUT_S)
    for node in nodes:
        try:
            found[node] = ask_json(node.url + FAULTS, one_s)
        except CommandError as error:
            if error.code != ExitCode.UNREACHABLE:
                raise
            silent.append(node.node_id)
    if not found:
        raise CommandError(
            "no node responds",
            hint="`quorate cluster status` shows which nodes are in contact",
            code=ExitCode.UNREACHABLE,
        )
    return found, silent


def demand_enabled(known: Mapping[FaultNode, Any]) -> None:
    disabled = [node.node_id for node, state in known.items() if not state["enabled"]]
    if disabled:
        raise CommandError(
            f"{node_names(disabled)} must not be broken: faults.enable is false",
            hint="set faults.enable = true and restart it, or name others with --node; never where it serves "
            "real clients",
            code=ExitCode.REFUSED,
        )


def set_fault(nodes: Sequence[FaultNode], body: Mapping[str, Any], timeout_s: float) -> Any:
    """Set the fault on every node, or on none."""
    done: list[FaultNode] = []
    fault: Any = None
    for node in nodes:
        try:
            fault = ask_json(node.url + FAULTS, timeout_s, body)
        except CommandError:
            for one in done:
                with contextlib.suppress(CommandError):
                    delete_fault(one.url, body["id"], timeout_s)
            raise
        done.append(node)
    return fault


def advance_clock(url: str, ms: int, timeout_s: float) -> None:
    """Let time pass at once on every node that can be reached. Raises `CommandError`."""
    for node in fault_nodes(url, None, timeout_s)[0]:
        ask_json(node.url + CLOCK, timeout_s, {"advance_ms": ms})


def delete_fault(url: str, fault_id: int, timeout_s: float) -> bool:
    """Clear one fault of a node; return whether it was there."""
    try:
        ask_json(f"{url}{FAULTS}/{fault_id}", timeout_s, method="DELETE")
    except HttpRefused as error:
        if error.answer.status == NOT_FOUND:
            return False
        raise
    return True


def node_names(ids: Sequence[int]) -> str:
    """Node ids in words."""
    return f"{'node' if len(ids) == 1 else 'nodes'} {', '.join(map(str, ids))}"
