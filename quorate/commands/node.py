"""`quorate node`: runs one node in this process for a service manager, and formats its directory.

`quorate node --config FILE` is short for `quorate node run --config FILE`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from quorate.commands.options import CommandGroup, Json, PlainGroup, flag, option
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, say

if TYPE_CHECKING:
    from raftlog.storage.directory import NodeIdentity

DEFAULT_COMMAND = "run"
DEFAULT_SHARDS = 4


class _RunUnlessNamed(PlainGroup):
    """A command group with a default command, which also receives options given without a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = bool(args) and (args[0] in self.commands or args[0] in ("--help", "-h"))
        if not is_named and not ctx.resilient_parsing:  # a shell that completes asks for the commands
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)


app = CommandGroup(
    "Run one node in this process, or format its directory.\n\nWithout a command it runs.",
    cls=_RunUnlessNamed,
)


@app.command(
    "run",
    short_help="Run one node, as a service manager does.",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},  # the settings, as flags
)
def run_node(
    context: typer.Context,
    config: Annotated[Path | None, option("--config", "FILE", "A TOML file of settings.")] = None,
    data: Annotated[
        Path | None, option("--data", "DIR", "The node's directory: the setting data.dir.")
    ] = None,
    make_directory: Annotated[
        bool,
        flag("--format", "First format the directory of a cluster of one node, if it does not exist yet."),
    ] = False,
    json: Annotated[bool, flag("--json", "Print one line of JSON when every shard serves.")] = False,
) -> None:
    """Run one node in this process, as a service manager does.

    Its directory is made by `quorate node format`, or, for a cluster of one, by --format.
    Every setting (`quorate settings` lists them) is also a flag (--kafka-port 9092) and a variable
    (QUORATE_KAFKA_PORT=9092).

    Example: quorate node run --config /etc/quorate.toml --kafka-port 9092
    """
    words = [*(["--config", str(config)] if config is not None else []), *context.args]
    words += ["--data-dir", str(data)] if data is not None else []
    if make_directory:
        _format_alone(words)
    command = [sys.executable, "-P", "-m", "cluster", *(["--announce"] if json else []), *words]
    os.execv(sys.executable, command)


@app.command("format", short_help="Format a node's directory with its identity and its cluster.")
def format_directory(
    data: Annotated[Path, option("--data", "DIR", "The directory: a new or an empty one.")],
    node_id: Annotated[int, option("--node-id", "N", "This node's id.", min=0)],
    cluster_id: Annotated[
        str,
        option(
            "--cluster-id",
            "ID",
            "The cluster's id, the same for all nodes. Default for a cluster of one node: random.",
        ),
    ] = "",
    nodes: Annotated[str, option("--nodes", "1,2,3", "Ids of all nodes. Default: only this node.")] = "",
    shards: Annotated[
        int, option("--shards", "N", "Number of group shards, the same for all nodes.", min=1, max=1024)
    ] = DEFAULT_SHARDS,
    replace: Annotated[
        bool, flag("--replace", "The node was in the cluster before and lost its disk.")
    ] = False,
    json: Json = False,
) -> None:
    """Make a node's directory: its id, its cluster, and the other nodes.

    This fixes the members of the cluster; the nodes' addresses are a setting (cluster.nodes) and may change.
    After --replace the node does not vote until it has caught up with the others.

    Example: quorate node format --data /var/lib/quorate --node-id 2 --cluster-id prod-eu --nodes 1,2,3
    """
    voters = _voters(nodes, node_id)
    if len(voters) > 1 and not cluster_id:
        raise CommandError(
            "a cluster of several nodes needs a cluster id",
            hint="choose one and use it for all nodes: --cluster-id ID",
            code=ExitCode.USAGE,
        )
    if replace and len(voters) == 1:
        raise CommandError(
            "--replace brings a node back into a running cluster, but this cluster has one node",
            hint="give all nodes with --nodes, or leave out --replace",
            code=ExitCode.USAGE,
        )
    from cluster.host.fresh_ids import fresh_id
    from coordinator.topics import FIRST_FORMAT_LEVEL
    from raftlog.storage.directory import NodeIdentity
    from records import LATEST_FORMAT_LEVEL

    identity = NodeIdentity(
        cluster_id=cluster_id or fresh_id(),
        node_id=node_id,
        incarnation=fresh_id(),
        num_shards=shards,
        voters=voters if len(voters) > 1 else (),
        is_replacement=replace,
        starting_level=FIRST_FORMAT_LEVEL if replace else LATEST_FORMAT_LEVEL,
    )
    _make(str(data.resolve()), identity)
    if json:
        fields = {"cluster_id": identity.cluster_id, "node_id": node_id, "voters": list(voters)}
        print_json({**fields, "shards": shards, "data": str(data), "incarnation": identity.incarnation})
        return
    say(f"{data} is node {node_id} of cluster {identity.cluster_id}, {shards} shards")
    print("\n".join(_next_steps(data, identity)))  # commands to copy: not wrapped


def _next_steps(data: Path, identity: NodeIdentity) -> list[str]:
    start = f"quorate node --data {data} --node-id {identity.node_id} --cluster-shards {identity.num_shards}"
    if not identity.voters:
        return [f"start it: {start}"]
    rest = [str(node_id) for node_id in identity.voters if node_id != identity.node_id]
    others = f"{'node' if len(rest) == 1 else 'nodes'} {', '.join(rest)}"
    nodes = ",".join(f"{node_id}@HOST{node_id}:9192" for node_id in identity.voters)
    steps = [f"start it: {start} \\", f"    --cluster-nodes {nodes} --cluster-secret-file FILE"]
    if identity.is_replacement:
        return [
            (f"{others} must run: the node copies the log from them and votes when it has caught up"),
            *steps,
        ]
    return [f"format {others} with the same --cluster-id, --nodes and --shards", *steps]


def _voters(text: str, node_id: int) -> tuple[int, ...]:
    """Parse `1,2,3` into sorted ids; raises `CommandError` (usage)."""
    words = [word.strip() for word in text.split(",")] if text else [str(node_id)]
    if not all(word.isdecimal() for word in words):
        raise CommandError(
            f"--nodes {text!r} is not a list of ids", hint="for example --nodes 1,2,3", code=ExitCode.USAGE
        )
    ids = tuple(sorted(int(word) for word in words))
    if len(set(ids)) != len(ids) or node_id not in ids:
        raise CommandError(
            f"--nodes {text} must contain each node once, including this one (--node-id {node_id})",
            code=ExitCode.USAGE,
        )
    return ids


def _format_alone(words: list[str]) -> None:
    """Format the node's directory as its settings say, unless it is formatted already."""
    from cluster.host.fresh_ids import fresh_id
    from cluster.main import parse_arguments
    from cluster.settings import SettingsError, load_settings
    from raftlog.env.files import OsFiles, join
    from raftlog.storage.directory import NODE_FILE, NodeIdentity
    from records import LATEST_FORMAT_LEVEL

    try:
        arguments = parse_arguments(words)
        settings = load_settings(arguments.config, os.environ, arguments.flags)
    except SettingsError as error:
        raise CommandError(str(error), code=ExitCode.USAGE) from error
    if OsFiles().exists(join(settings.data_dir, NODE_FILE)):
        return
    if settings.peer_settings() is not None:
        raise CommandError(
            "--format makes the directory of a cluster of one node, but cluster.nodes has several",
            hint="see `quorate node format --help`",
            code=ExitCode.USAGE,
        )
    identity = NodeIdentity(
        cluster_id=fresh_id(),
        node_id=settings.node_id,
        incarnation=fresh_id(),
        num_shards=settings.cluster_shards,
        starting_level=LATEST_FORMAT_LEVEL,
    )
    _make(settings.data_dir, identity)


def _make(directory: str, identity: NodeIdentity) -> None:
    from raftlog.env.errors import RaftlogError
    from raftlog.env.files import OsFiles
    from raftlog.storage.directory import format_node

    try:
        format_node(OsFiles(), directory, identity)
    except RaftlogError as error:
        raise CommandError(str(error), code=ExitCode.UNREADABLE) from error
    except OSError as error:
        raise CommandError(
            f"cannot write {error.filename or f'the files of {directory}'}: {error.strerror or error}",
            hint="free space or make it writable, then repeat the command: it completes what it began",
            code=ExitCode.UNWRITTEN,
        ) from error
