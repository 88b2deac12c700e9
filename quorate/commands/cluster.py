"""`quorate cluster …`: the nodes' view of the cluster, and changes of leadership, over HTTP.

Any node can be asked. For the status, the others that it names are asked as well, since only a leader knows
the progress of its followers. A change that another node must make is forwarded to that node.

`kill`, `stop`, `cont` and `restart` talk to the `quorate up` that runs the cluster instead, so they also work
on nodes that are dead or stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

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
from quorate.commands.overview import print_cluster
from quorate.errors import CommandError, ExitCode
from quorate.http_client import OTHERS_TIMEOUT_S, HttpRefused, ask_json, first_of, node_url
from quorate.output import print_json

app = new_app("Show the cluster, transfer leadership, upgrade, and kill, pause or restart nodes.")


DEFAULT_DATA = Path("quorate-data")

ANSWER_TIMEOUT_S = 45.0
"""Seconds: a restart may take ten to stop and thirty to start; the launcher has its own limits."""

Node = Annotated[int, typer.Argument(metavar="NODE", min=1, help="The node's id.")]
Data = Annotated[Path, option("--data", "DIR", "The directory that `quorate up` was started with.")]

FOLLOWED_MAX = 4  # how often a change is forwarded: leadership may move meanwhile
PAUSE_S = 0.2  # seconds between two tries without a leader: an election takes about as long


@app.command("status")
def status(url: Url = DEFAULT_URL, timeout_s: Timeout = DEFAULT_TIMEOUT_S, json: Json = False) -> None:
    """Show every node and every shard: its leader, the lag of its followers, and links that are down and why.

    Example: quorate cluster status --url http://127.0.0.1:8092
    """
    document, address = first_of(url, timeout_s, lambda one, one_s: ask_json(one + "/v1/cluster", one_s))
    views = {document["node_id"]: document, **_other_views(document, min(timeout_s, OTHERS_TIMEOUT_S))}
    if json:
        others = {str(node_id): view for node_id, view in views.items() if node_id != document["node_id"]}
        print_json({**document, "views": others})
        return
    print_cluster(address, document, views)


@app.command("transfer")
def transfer(
    shard: Annotated[str, argument("SHARD", "A shard's number, or metadata.")],
    to: Annotated[
        int | None,
        option("--to", "NODE", "The new leader's node id. Default: the most advanced follower.", min=0),
    ] = None,
    url: Url = DEFAULT_URL,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Hand the leadership of a shard to another node, without data loss and almost without interruption.

    Example: quorate cluster transfer 2 --to 3
    """
    body = {} if to is None else {"to": to}
    answer = _change(url, f"/v1/shards/{quote(shard, safe='')}/transfer", body, timeout_s)
    if json:
        print_json(answer)
        return
    name = "metadata" if answer["shard"] < 0 else f"shard {answer['shard']}"
    old, new = answer["was_leader"], answer["leader_id"]
    if new == old:
        print(f"node {new} already leads {name}")
    elif new is None:
        print(f"node {old} transferred {name}; its new leader is not known yet")
    else:
        print(f"node {new} leads {name} now; node {old} did")


@app.command("upgrade")
def upgrade(url: Url = DEFAULT_URL, timeout_s: Timeout = DEFAULT_TIMEOUT_S, json: Json = False) -> None:
    """Let the cluster write the newest format that every node can read. There is no way back.

    Example: quorate cluster upgrade --url http://127.0.0.1:8092
    """
    answer = raise_format_level(url, timeout_s)
    if json:
        print_json(answer)
        return
    print(f"the cluster writes format level {answer['format_level']}")


def raise_format_level(urls: str, timeout_s: float) -> Any:
    """Let the leader of the metadata shard raise the level; returns its answer, raises `CommandError`."""
    return _change(urls, "/v1/cluster/upgrade", {}, timeout_s)


def _other_views(document: Mapping[str, Any], timeout_s: float) -> dict[int, Any]:
    """The status of the other nodes in contact, as far as they answer."""
    views = {}
    for node in document["nodes"]:
        if node["node_id"] == document["node_id"] or not node["http"] or not node["http"]["port"]:
            continue
        try:
            view = ask_json(node_url(node["http"]) + "/v1/cluster", timeout_s)
        except CommandError:
            continue
        if isinstance(view, dict) and view.get("node_id") == node["node_id"]:
            views[node["node_id"]] = view
    return views


def _change(urls: str, path: str, body: Mapping[str, Any], timeout_s: float) -> Any:
    """Request a change from the leader, waiting until there is one."""
    deadline_s = time.monotonic() + timeout_s
    followed = 0
    while True:
        left_s = max(0.1, deadline_s - time.monotonic())
        try:
            return first_of(urls, left_s, lambda one, one_s: ask_json(one + path, one_s, body))[0]
        except HttpRefused as error:
            refusal = error.answer.refusal
            word, leader = refusal.get("error"), refusal.get("leader")
            address = leader.get("http") if isinstance(leader, dict) else None
            if word == "NOT_LEADER" and address and address["port"] and followed < FOLLOWED_MAX:
                urls, followed = node_url(address), followed + 1
            elif word != "NO_LEADER" or time.monotonic() + PAUSE_S >= deadline_s:
                raise
            else:
                time.sleep(PAUSE_S)


def _supervised(command: str) -> Callable[..., None]:
    def ask(node: Node, data: Data = DEFAULT_DATA, json: Json = False) -> None:
        _ask_supervisor(command, node, data, json)

    return ask


_SUPERVISED = {
    "kill": "Kill a node of a cluster that `quorate up` runs, with kill -9.\n\n"
    "It stays down until `quorate cluster restart`.",
    "stop": "Pause a node (SIGSTOP): its connections stay open, and nothing answers.",
    "cont": "Resume a paused node (SIGCONT).",
    "restart": "Start a node that is down; a running one first hands over its leaderships and is stopped.\n\n"
    "Returns when the node serves again.",
}
for _name, _help in _SUPERVISED.items():
    app.command(_name, help=f"{_help}\n\nExample: quorate cluster {_name} 2")(_supervised(_name))


def _ask_supervisor(command: str, node_id: int, data: Path, json: bool) -> None:
    from cluster.launching.supervisor_socket import NoSupervisor, ask

    try:
        answer: dict[str, Any] = ask(data, command, node_id, ANSWER_TIMEOUT_S)
    except NoSupervisor as error:
        raise CommandError(
            str(error),
            hint=f"start one with `quorate up --nodes 3 --data {data}`, or give its directory with --data",
            code=ExitCode.UNREACHABLE,
        ) from error
    except TimeoutError as error:
        raise CommandError(
            f"the launcher of {data} did not respond within {ANSWER_TIMEOUT_S:.0f} s",
            hint="it is paused or very busy; it may still execute the request",
            code=ExitCode.UNREACHABLE,
        ) from error
    if "error" in answer:
        raise CommandError(answer["error"], hint=answer["hint"], code=ExitCode.REFUSED)
    if json:
        print_json(answer["node"])
    else:
        print(answer["said"])
