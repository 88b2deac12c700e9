"""`quorate faults …`: make the nodes go wrong on purpose, to see what a client makes of it.

The requests to the nodes are in `quorate.faultclient`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from history.moments import parse_span
from history.render import duration, plural
from quorate.addresses import place_of_cluster
from quorate.commands.options import (
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    CommandGroup,
    Json,
    Timeout,
    Url,
    argument,
    option,
)
from quorate.errors import CommandError, ExitCode
from quorate.faultclient import add_fault, delete_fault, fault_nodes, faults_of, node_names
from quorate.output import print_json, print_table, say

app = CommandGroup("Make nodes delay, drop and refuse requests on purpose, to test clients.")

ACTIONS = ("delay", "drop", "error", "close", "silence", "throttle")
TIMED = {"delay": "delay_ms", "throttle": "throttle_ms"}
"""Actions whose VALUE is a time, and the field that it sets."""

Nodes = Annotated[list[int] | None, option("--node", "NODE", "Only this node, or these. Default: all nodes.")]


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
    bootstrap: Bootstrap = None,
    url: Url = None,
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
    url = place_of_cluster(bootstrap, url).http(timeout_s)
    done = add_fault(url, body, node, timeout_s)
    if json:
        print_json(done._asdict())
        return
    say(f"fault {done.fault['id']} on {node_names(done.nodes)}: {_sentence(done.fault)}")
    _say_missing(done.without)


@app.command("list")
def list_faults(
    node: Nodes = None,
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """List the faults of every node, with how many requests matched and how often each was applied.

    Example: quorate faults list
    """
    url = place_of_cluster(bootstrap, url).http(timeout_s)
    nodes, missing = fault_nodes(url, node, timeout_s)
    known, silent = faults_of(nodes, timeout_s)
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
        say(f"{node_names(disabled)}: faults are not allowed (faults.enable)")
    _say_missing(without)


@app.command("clear")
def clear(
    ids: Annotated[list[int] | None, argument("[FAULT]...", "Ids of faults. Default: all.")] = None,
    node: Nodes = None,
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """End and forget faults, all of them or those named. Connections that were silenced stay silent.

    Example: quorate faults clear 3
    """
    url = place_of_cluster(bootstrap, url).http(timeout_s)
    nodes, missing = fault_nodes(url, node, timeout_s)
    known, silent = faults_of(nodes, timeout_s)
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
        if delete_fault(one.url, fault_id, timeout_s)
    ]
    without = sorted(missing + silent)
    if json:
        print_json({"cleared": cleared, "without": without})
        return
    for fault_id in sorted(wanted):
        where = [one["node_id"] for one in cleared if one["id"] == fault_id]
        if where:
            say(f"cleared fault {fault_id} on {node_names(where)}")
    if not cleared:
        say("no faults")
    _say_missing(without)


def _of_value(action: str, value: str | None, delay: str | None) -> dict[str, Any]:
    """The fields that VALUE and --delay set; raises `CommandError` (usage)."""
    if action not in ACTIONS:
        hint = f"give one of {', '.join(ACTIONS)}"
        raise CommandError(f"{action!r} is not an ACTION", hint=hint, code=ExitCode.USAGE)
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


def _say_missing(ids: Sequence[int]) -> None:
    if ids:
        say(f"{node_names(ids)} could not be asked; a node that restarts has no faults")
