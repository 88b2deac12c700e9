"""`quorate cluster kill|stop|cont|restart`: what can happen to a node, on purpose.

They talk to the `quorate up` that runs the cluster, not to a node, and so work on dead and stopped ones.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from quorate.commands.options import Json
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json

DEFAULT_DATA = Path("quorate-data")

ANSWER_TIMEOUT_S = 45.0
"""A restart may take ten seconds to stop and thirty to start; the launcher has its own bounds."""

Node = Annotated[int, typer.Argument(metavar="NODE", min=1, help="The node's id.", show_default=False)]
Data = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="The directory that `quorate up` was started with.")
]


def kill(node: Node, data: Data = DEFAULT_DATA, json: Json = False) -> None:
    """Kill a node of a cluster that `quorate up` runs: kill -9, without a word to anybody.

    It stays down until `quorate cluster restart`.

    Example: quorate cluster kill 2
    """
    _ask("kill", node, data, json)


def stop(node: Node, data: Data = DEFAULT_DATA, json: Json = False) -> None:
    """Make a node stand still (SIGSTOP): its connections stay open, and nothing answers.

    Example: quorate cluster stop 2
    """
    _ask("stop", node, data, json)


def cont(node: Node, data: Data = DEFAULT_DATA, json: Json = False) -> None:
    """Let a node that stands still go on (SIGCONT).

    Example: quorate cluster cont 2
    """
    _ask("cont", node, data, json)


def restart(node: Node, data: Data = DEFAULT_DATA, json: Json = False) -> None:
    """Start a node that is down; one that runs hands over what it leads and is stopped first.

    Returns when the node serves again.

    Example: quorate cluster restart 2
    """
    _ask("restart", node, data, json)


COMMANDS: dict[str, Callable[..., None]] = {"kill": kill, "stop": stop, "cont": cont, "restart": restart}


def _ask(command: str, node_id: int, data: Path, json: bool) -> None:
    from cluster.launching.supervisor_socket import NoSupervisor, ask

    try:
        answer: dict[str, Any] = ask(data, command, node_id, ANSWER_TIMEOUT_S)
    except NoSupervisor as error:
        raise CommandError(
            str(error),
            hint=f"start one with `quorate up --nodes 3 --data {data}`, or name its directory with --data",
            code=ExitCode.UNREACHABLE,
        ) from error
    except TimeoutError as error:
        raise CommandError(
            f"the launcher of {data} did not answer within {ANSWER_TIMEOUT_S:.0f} s",
            hint="it stands still, or is very busy; it may still do what it was asked",
            code=ExitCode.UNREACHABLE,
        ) from error
    if "error" in answer:
        raise CommandError(answer["error"], hint=answer["hint"], code=ExitCode.REFUSED)
    if json:
        print_json(answer["node"])
    else:
        print(answer["said"])
