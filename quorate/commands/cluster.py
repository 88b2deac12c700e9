"""`quorate cluster …`: what the nodes say about themselves, over HTTP."""

from __future__ import annotations

import json as json_module
import urllib.error
import urllib.request
from typing import Annotated, Any

import typer

from quorate.commands.options import DEFAULT_TIMEOUT_S, DEFAULT_URL, Json, Timeout, new_app
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, print_table

app = new_app("Show the state of the cluster.")

Url = Annotated[str, typer.Option("--url", help="HTTP address of a node.")]

ANSWER_BYTES_MAX = 16 * 1024 * 1024  # a status page; a larger answer is not one


class HttpRefused(CommandError):
    """The node answered, with another status than 200."""

    def __init__(self, message: str, hint: str, status: int) -> None:
        super().__init__(message, hint=hint, code=ExitCode.REFUSED)
        self.status = status


@app.callback()
def _cluster() -> None:
    """Show the state of the cluster."""


@app.command("status")
def status(url: Url = DEFAULT_URL, timeout_s: Timeout = DEFAULT_TIMEOUT_S, json: Json = False) -> None:
    """Show every node and every shard: who leads, how far it is.

    Example: quorate cluster status --url http://127.0.0.1:8092
    """
    document = get_json(url.rstrip("/") + "/v1/cluster", timeout_s)
    if json:
        print_json(document)
        return
    _print(document)


def get_json(url: str, timeout_s: float) -> Any:
    """The JSON document at `url`; raises `CommandError` if there is none."""
    if not url.startswith(("http://", "https://")):
        raise CommandError(
            f"{url!r} is not an HTTP address", hint="for example http://127.0.0.1:8092", code=ExitCode.USAGE
        )
    try:
        # No proxy: a node is reached directly, whatever the environment says about the rest of the world.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=timeout_s) as answer:
            return json_module.loads(answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(url, error) from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise CommandError(
            f"cannot reach {url} ({reason})",
            hint="is the node running? start one with `quorate up`, or name its address with --url",
            code=ExitCode.UNREACHABLE,
        ) from error
    except ValueError as error:
        raise CommandError(
            f"{url} does not answer with JSON",
            hint="is that a Quorate node's HTTP port?",
            code=ExitCode.REFUSED,
        ) from error


def _refused(url: str, error: urllib.error.HTTPError) -> HttpRefused:
    """The node's own words, if it is one: every refusal of the HTTP API has a message and a hint."""
    try:
        said = json_module.loads(error.read(ANSWER_BYTES_MAX))
        message, hint = str(said["message"]), str(said["hint"])
    except (ValueError, TypeError, KeyError, OSError):
        message, hint = f"{error.code} {error.reason}", "is that a Quorate node's HTTP port?"
    return HttpRefused(f"{url} answers: {message}", hint, error.code)


def _print(document: Any) -> None:
    print(f"cluster {document['cluster_id']}, as node {document['node_id']} sees it")
    print()
    nodes = [(node["node_id"], _address(node["kafka"]), _address(node["http"])) for node in document["nodes"]]
    print_table(("NODE", "KAFKA", "HTTP"), nodes)
    print()
    shards = [
        (
            shard["name"],
            shard["state"],
            shard["log"]["term"],
            shard["committed_index"],
            shard["applied_index"],
            shard["log"]["snapshot_index"],
            shard["replies_held"],
        )
        for shard in document["shards"]
    ]
    print_table(("SHARD", "STATE", "TERM", "COMMITTED", "APPLIED", "SNAPSHOT", "REPLIES HELD"), shards)


def _address(address: dict[str, Any]) -> str:
    return f"{address['host']}:{address['port']}"
