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

from quorate.addresses import place_of_cluster
from quorate.commands.draining import DRAIN_TIMEOUT_S, wait_until_empty
from quorate.commands.options import (
    DEFAULT_DATA,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    CommandGroup,
    Json,
    Timeout,
    Url,
    argument,
    flag,
    launch_failure,
    option,
)
from quorate.commands.overview import print_cluster
from quorate.commands.verdict import name_of, verdict_of
from quorate.commands.views import ask_views
from quorate.errors import CommandError, ExitCode
from quorate.http_client import HttpRefused, ask_json, first_of, node_url
from quorate.output import print_json, say

app = CommandGroup(
    "Show the cluster, transfer leadership, drain nodes, upgrade, and kill, pause or restart nodes."
)


ANSWER_TIMEOUT_S = 45.0
"""Seconds: a restart may take ten to stop and thirty to start; the launcher has its own limits."""

Node = Annotated[int, typer.Argument(metavar="NODE", min=1, help="The node's id.")]
Data = Annotated[Path, option("--data", "DIR", "The directory that `quorate up` was started with.")]

FOLLOWED_MAX = 4  # how often a change is forwarded: leadership may move meanwhile
PAUSE_S = 0.2  # seconds between two tries without a leader: an election takes about as long


@app.command("status")
def status(
    bootstrap: Bootstrap = None, url: Url = None, timeout_s: Timeout = DEFAULT_TIMEOUT_S, json: Json = False
) -> None:
    """Show every node and every shard: its leader, the lag of its followers, and what is wrong.

    It ends with one sentence. Exit code: 0 all well, 8 degraded, 9 no majority, 3 no node answers.

    Example: quorate cluster status --url http://127.0.0.1:8092
    """
    url = place_of_cluster(bootstrap, url).http(timeout_s)
    address, document, views = ask_views(url, timeout_s)
    verdict = verdict_of(views)
    if json:
        others = {str(node_id): view for node_id, view in views.items() if node_id != document["node_id"]}
        print_json({**document, "views": others, "verdict": verdict.as_dict()})
    else:
        print_cluster(address, document, views, verdict)
    if verdict.code is not ExitCode.OK:
        raise typer.Exit(verdict.code)


@app.command("transfer")
def transfer(
    shard: Annotated[str, argument("SHARD", "A shard's number, or metadata.")],
    to: Annotated[
        int | None,
        option("--to", "NODE", "The new leader's node id. Default: who leads the fewest shards.", min=0),
    ] = None,
    undo: Annotated[bool, flag("--undo", "Let balancing choose the shard's leader again.")] = False,
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Hand the leadership of a shard to another node, without data loss and almost without interruption.

    The node leads the shard until another transfer, or --undo. If it goes, another leads until it is back.

    Example: quorate cluster transfer 2 --to 3
    """
    path = f"/v1/shards/{quote(shard, safe='')}/transfer"
    if undo and to is not None:
        raise CommandError("--to and --undo exclude each other", hint="give one of them", code=ExitCode.USAGE)
    url = place_of_cluster(bootstrap, url).http(timeout_s)
    answer = ask_leader(url, path, None if undo else {} if to is None else {"to": to}, timeout_s)
    if json:
        print_json(answer)
        return
    name = name_of(answer["shard"])
    if undo:
        was_asked = answer["was_asked"]
        of_whom = "no transfer of it was in force" if was_asked is None else f"node {was_asked} was asked for"
        say(f"balancing chooses the leader of {name} again; {of_whom}")
        return
    old, new = answer["was_leader"], answer["leader_id"]
    if new is None:
        say(f"node {old} transferred {name}; its new leader is not known yet")
        return
    before = f"already leads {name}" if new == old else f"leads {name} now; node {old} did"
    before = f"leads {name} now; it had no leader" if old is None else before
    if answer["lasts"]:
        lasts = f"this lasts until `quorate cluster transfer {shard} --undo` or another transfer"
    else:
        lasts = (
            "balancing will take the shard back: the format level is too old, see `quorate cluster upgrade`"
        )
    say(f"node {new} {before}")
    say(lasts)


@app.command("drain")
def drain(
    node_id: Node,
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Annotated[
        float,
        option("--timeout", "SECONDS", "How long the node may take to hand over all that it leads.", min=0.1),
    ] = DRAIN_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Let a node hand over all that it leads, wait, and say when it may be stopped; for maintenance.

    It leads nothing, also after a restart, until `quorate cluster undrain`; only if no other node can lead a
    shard, it does. Exit code 8 if it still leads something when the time is over, or cannot be missed.

    Example: quorate cluster drain 2
    """
    deadline_s = time.monotonic() + timeout_s
    url = place_of_cluster(bootstrap, url).http(timeout_s)
    answer = ask_leader(url, f"/v1/nodes/{node_id}/drain", {}, min(timeout_s, DEFAULT_TIMEOUT_S))
    sentence = wait_until_empty(url, node_id, deadline_s)
    if json:
        print_json({**answer, "may_stop": True, "sentence": sentence})
    else:
        say(sentence)


@app.command("undrain")
def undrain(
    node_id: Node,
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Let a drained node lead again; balancing gives it its shards back after a while.

    Example: quorate cluster undrain 2
    """
    url = place_of_cluster(bootstrap, url).http(timeout_s)
    answer = ask_leader(url, f"/v1/nodes/{node_id}/drain", None, timeout_s)
    if json:
        print_json(answer)
    else:
        say(f"node {node_id} may lead shards: balancing lets it lead its share (leader.balance.delay.ms)")


@app.command("upgrade")
def upgrade(
    bootstrap: Bootstrap = None, url: Url = None, timeout_s: Timeout = DEFAULT_TIMEOUT_S, json: Json = False
) -> None:
    """Let the cluster write the newest format that every node can read. There is no way back.

    Example: quorate cluster upgrade --url http://127.0.0.1:8092
    """
    url = place_of_cluster(bootstrap, url).http(timeout_s)
    answer = ask_leader(url, "/v1/cluster/upgrade", {}, timeout_s)
    if json:
        print_json(answer)
        return
    say(f"the cluster writes format level {answer['format_level']}")


def ask_leader(urls: str, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> Any:
    """Request a change from the leader, waiting until there is one; without a body, with DELETE."""
    method = "DELETE" if body is None else "POST"
    deadline_s = time.monotonic() + timeout_s
    followed = 0
    while True:
        left_s = max(0.1, deadline_s - time.monotonic())
        try:
            return first_of(
                urls, left_s, lambda one, one_s: ask_json(one + path, one_s, body, method=method)
            )[0]
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


def _no_launcher(data: Path, command: str, why: Exception) -> CommandError:
    """The error for a directory without a launcher that takes commands, by what the directory is."""
    from cluster.launching.launcher import LaunchError, cluster_size

    if isinstance(why.__cause__, PermissionError):
        return CommandError(str(why), hint="run this as that user", code=ExitCode.UNREACHABLE)

    try:
        num_nodes = cluster_size(data)
    except LaunchError as error:
        return launch_failure(error)
    if num_nodes == 1:
        return CommandError(
            f"{data} is a cluster of one node, for which `cluster {command}` has no launcher to ask",
            hint=(
                "end its process, which `quorate up` names, with kill; for nodes to kill and restart, run "
                "`quorate up --nodes 3` with another --data"
            ),
            code=ExitCode.UNREACHABLE,
        )
    start = f"`quorate up --nodes 3 --data {data}`" if num_nodes is None else f"`quorate up --data {data}`"
    hint = f"start it with {start}, or give the directory of one that runs with --data"
    return CommandError(str(why), hint=hint, code=ExitCode.UNREACHABLE)


def _ask_supervisor(command: str, node_id: int, data: Path, json: bool) -> None:
    from cluster.supervisor_socket import NoSupervisor, ask

    try:
        answer: dict[str, Any] = ask(data, command, node_id, ANSWER_TIMEOUT_S)
    except NoSupervisor as error:
        raise _no_launcher(data, command, error) from error
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
        say(answer["said"])
