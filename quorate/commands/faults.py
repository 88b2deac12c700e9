"""`quorate faults …`: make the nodes go wrong on purpose, to see what a client makes of it.

A fault is set on every node, since the coordinator of a group may move, and has the same id everywhere. Each
node applies and counts its own; none survives a restart of its node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from history.moments import parse_span
from history.render import duration, plural
from quorate.commands.options import (
    DEFAULT_TIMEOUT_S,
    DEFAULT_URL,
    Json,
    Timeout,
    Url,
    argument,
    new_app,
    option,
)
from quorate.errors import CommandError, ExitCode
from quorate.http_client import OTHERS_TIMEOUT_S, HttpRefused, ask_json, first_of, node_url
from quorate.output import print_json, print_table, say

app = new_app("Make nodes delay, drop and refuse requests on purpose, to test clients.")

FAULTS = "/v1/faults"
TIMED = {"delay": "delay_ms", "throttle": "throttle_ms"}
"""Actions whose VALUE is a time, and the field that it sets."""

NOT_FOUND = 404

Nodes = Annotated[list[int] | None, option("--node", "NODE", "Only this node, or these. Default: all nodes.")]


class _Node(NamedTuple):
    node_id: int
    url: str


@app.command("add")
def add(
    action: Annotated[str, argument("ACTION", "One of delay, drop, error, close, silence, throttle.")],
    value: Annotated[
        str | None,
        argument("[VALUE]", "delay, throttle: a time such as 500ms. error: Kafka's name or number."),
    ] = None,
    api: Annotated[
        str | None, option("--api", "NAMES", "Kafka's name of an API, or several with commas.")
    ] = None,
    group: Annotated[str | None, option("--group", "GROUP", "Requests that name this group.")] = None,
    member: Annotated[
        str | None, option("--member", "ID", "Requests that name this member id or group instance id.")
    ] = None,
    client_id: Annotated[str | None, option("--client-id", "ID", "Requests with this client id.")] = None,
    connection: Annotated[
        str | None, option("--connection", "HOST[:PORT]", "Requests from this address.")
    ] = None,
    delay: Annotated[
        str | None, option("--delay", "TIME", "Let the fault show only after this time.")
    ] = None,
    after: Annotated[int | None, option("--after", "N", "First let N requests that match through.")] = None,
    times: Annotated[int | None, option("--times", "N", "Apply it N times. Default: without limit.")] = None,
    rate: Annotated[
        float | None, option("--rate", "SHARE", "Apply it to this share of them, up to 1.")
    ] = None,
    seed: Annotated[int | None, option("--seed", "N", "Choose by this seed, see --rate. Default: 0.")] = None,
    lasting: Annotated[str | None, option("--for", "TIME", "End it after this time, such as 10s.")] = None,
    node: Nodes = None,
    url: Url = DEFAULT_URL,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Set a fault: from now on, requests that match all options are treated as ACTION says.

    delay TIME: the reply leaves later. drop: the request is carried out, and the connection is closed
    instead of a reply. error CODE: this error is answered, nothing is carried out. close: the connection is
    closed, nothing is carried out. silence: the connection is not answered any more. throttle TIME: the
    reply has this throttle time.

    Nodes of `quorate up` allow it; others need faults.enable = true.

    Example: quorate faults add error STALE_MEMBER_EPOCH --api OffsetCommit --group billing --times 1
    """
    whom = {"api": api, "group": group, "member": member, "client_id": client_id, "connection": connection}
    often = {"after": after, "times": times, "rate": rate, "seed": seed}
    body = {"action": action, **_of_value(action, value, delay), **whom, **often}
    if lasting is not None:
        body["for_ms"] = _span("--for", lasting)
    nodes, missing = _nodes(url, node, timeout_s)
    known, silent = _asked(nodes, timeout_s)
    _demand_enabled(known)
    fault_id = max(state["next_id"] for state in known.values())
    given = {name: one for name, one in body.items() if one is not None} | {"id": fault_id}
    fault = _set(list(known), given, timeout_s)
    without = sorted(missing + silent)
    if json:
        print_json({"nodes": [one.node_id for one in known], "without": without, "fault": fault})
        return
    say(f"fault {fault_id} on {_node_names([one.node_id for one in known])}: {_sentence(fault)}")
    _say_missing(without)


@app.command("list")
def list_faults(
    node: Nodes = None, url: Url = DEFAULT_URL, timeout_s: Timeout = DEFAULT_TIMEOUT_S, json: Json = False
) -> None:
    """List the faults of every node, with how many requests matched and how often each was applied.

    Example: quorate faults list
    """
    nodes, missing = _nodes(url, node, timeout_s)
    known, silent = _asked(nodes, timeout_s)
    without = sorted(missing + silent)
    if json:
        shown = [{"node_id": one.node_id, **state} for one, state in known.items()]
        print_json({"nodes": shown, "without": without})
        return
    rows = [
        (fault["id"], one.node_id, _does(fault), fault["matched"], fault["applied"], _state(fault))
        for one, state in known.items()
        for fault in state["faults"]
    ]
    rows.sort()
    print_table(("FAULT", "NODE", "WHAT", "MATCHED", "APPLIED", "STATE"), rows, empty="no faults")
    if disabled := [one.node_id for one, state in known.items() if not state["enabled"]]:
        say(f"{_node_names(disabled)}: faults are not allowed (faults.enable)")
    _say_missing(without)


@app.command("clear")
def clear(
    ids: Annotated[list[int] | None, argument("[FAULT]", "Ids of faults. Default: all.")] = None,
    node: Nodes = None,
    url: Url = DEFAULT_URL,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """End and forget faults, all of them or those named. Connections that were silenced stay silent.

    Example: quorate faults clear 3
    """
    nodes, missing = _nodes(url, node, timeout_s)
    known, silent = _asked(nodes, timeout_s)
    present = {one: {fault["id"] for fault in state["faults"]} for one, state in known.items()}
    wanted = set(ids) if ids else set().union(*present.values())
    if absent := sorted(wanted - set().union(*present.values())):
        raise CommandError(
            f"there is no fault {absent[0]}", hint="`quorate faults list` shows them", code=ExitCode.REFUSED
        )
    cleared = [
        {"id": fault_id, "node_id": one.node_id}
        for one, found in present.items()
        for fault_id in sorted(found & wanted)
        if _delete(one, fault_id, timeout_s)
    ]
    without = sorted(missing + silent)
    if json:
        print_json({"cleared": cleared, "without": without})
        return
    for fault_id in sorted(wanted):
        where = [one["node_id"] for one in cleared if one["id"] == fault_id]
        if where:
            say(f"cleared fault {fault_id} on {_node_names(where)}")
    if not cleared:
        say("no faults")
    _say_missing(without)


def _of_value(action: str, value: str | None, delay: str | None) -> dict[str, Any]:
    """The fields that VALUE and --delay set; raises `CommandError` (usage)."""
    fields: dict[str, Any] = {} if delay is None else {"delay_ms": _span("--delay", delay)}
    if (action in TIMED or action == "error") != (value is not None):
        problem = "takes no value" if value is not None else "needs a value"
        hint = "quorate faults add delay 500ms, throttle 5s, error NOT_COORDINATOR, drop, close, silence"
        raise CommandError(f"the fault {action} {problem}", hint=hint, code=ExitCode.USAGE)
    if value is None:
        return fields
    if action == "error":
        return fields | {"error": value}
    return fields | {TIMED[action]: _span(action, value)}


def _span(name: str, text: str) -> int:
    try:
        return parse_span(text)
    except ValueError as error:
        raise CommandError(f"{name}: {error}", code=ExitCode.USAGE) from None


def _nodes(url: str, wanted: Sequence[int] | None, timeout_s: float) -> tuple[list[_Node], list[int]]:
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
            nodes.append(_Node(node["node_id"], address))
        elif node["in_contact"] and node["http"] and node["http"]["port"]:
            nodes.append(_Node(node["node_id"], node_url(node["http"])))
        else:
            missing.append(node["node_id"])
    return nodes, missing


def _asked(nodes: Sequence[_Node], timeout_s: float) -> tuple[dict[_Node, Any], list[int]]:
    """The faults of each node, and the ids of those that do not respond.

    Raises `CommandError` if none does."""
    found: dict[_Node, Any] = {}
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


def _demand_enabled(known: Mapping[_Node, Any]) -> None:
    disabled = [node.node_id for node, state in known.items() if not state["enabled"]]
    if disabled:
        raise CommandError(
            f"{_node_names(disabled)} must not be broken: faults.enable is false",
            hint="set faults.enable = true and restart it, or name others with --node; never where it serves "
            "real clients",
            code=ExitCode.REFUSED,
        )


def _set(nodes: Sequence[_Node], body: Mapping[str, Any], timeout_s: float) -> Any:
    """Set the fault on every node, or on none."""
    done: list[_Node] = []
    fault: Any = None
    for node in nodes:
        try:
            fault = ask_json(node.url + FAULTS, timeout_s, body)
        except CommandError:
            for one in done:
                with contextlib.suppress(CommandError):
                    _delete(one, body["id"], timeout_s)
            raise
        done.append(node)
    return fault


def _delete(node: _Node, fault_id: int, timeout_s: float) -> bool:
    """Clear one fault of a node; return whether it was there."""
    try:
        ask_json(f"{node.url}{FAULTS}/{fault_id}", timeout_s, method="DELETE")
    except HttpRefused as error:
        if error.answer.status == NOT_FOUND:
            return False
        raise
    return True


def _does(fault: Mapping[str, Any]) -> str:
    return f"{fault['words']}: {', '.join(_scope(fault)) or 'every request'}"


def _scope(fault: Mapping[str, Any]) -> Iterator[str]:
    if fault["api"]:
        yield fault["api"]
    for name, word in (("group", "group"), ("member", "member"), ("client_id", "client id")):
        if fault[name]:
            yield f"{word} {fault[name]}"
    if fault["connection"]:
        yield f"from {fault['connection']}"


def _sentence(fault: Mapping[str, Any]) -> str:
    """The fault in words: its effect, on which requests, and how often."""
    often = [] if fault["times"] is None else [f"at most {plural(fault['times'], 'time')} on each node"]
    if fault["after"]:
        often.append(f"after {plural(fault['after'], 'request')}")
    if fault["rate"] < 1:
        often.append(f"to a share of {fault['rate']:g} (seed {fault['seed']})")
    if fault["for_ms"]:
        often.append(f"for {duration(fault['for_ms'])}")
    return ", ".join([_does(fault), *often])


def _state(fault: Mapping[str, Any]) -> str:
    if fault["has_ended"]:
        return "ended"
    left = [] if fault["times"] is None else [f"{plural(fault['times'] - fault['applied'], 'time')} left"]
    if fault["left_ms"] is not None:
        left.append(f"{duration(fault['left_ms'])} left")
    return ", ".join(left) or "in force"


def _node_names(ids: Sequence[int]) -> str:
    return f"{'node' if len(ids) == 1 else 'nodes'} {', '.join(map(str, ids))}"


def _say_missing(ids: Sequence[int]) -> None:
    if ids:
        say(f"{_node_names(ids)} could not be asked; a node that restarts has no faults")
