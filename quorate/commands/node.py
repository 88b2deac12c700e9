"""`quorate demo`, `quorate up` and `quorate node`: the commands that run something."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.commands.options import Json, launch_failure, parse_settings, parse_topic, without_log_head
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json

if TYPE_CHECKING:
    from cluster.launcher import NodeProcess
    from quorate.demo.tour import Result

NODES_SUPPORTED = 1


def demo(
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep the node's data and the consumers' files in DIR."),
    ] = None,
    json: Json = False,
) -> None:
    """Show it: one node, seven real consumers, kill -9, and the proof from the files alone (20 s).

    Example: quorate demo --keep /tmp/quorate-demo
    """
    if importlib.util.find_spec("confluent_kafka") is None:
        raise CommandError(
            "the demo runs real Kafka consumers and needs the package confluent-kafka",
            hint="install it with: pip install 'quorate[demo]'",
            code=ExitCode.INSTALLATION,
        )
    directory = _demo_directory(keep)
    from quorate.demo.display import Display
    from quorate.demo.tour import Tour

    display = Display(sys.stderr if json else sys.stdout)
    is_evidence = True  # of a claim that did not hold
    try:
        result = Tour(directory, display).run()
        is_evidence = not result.held
    except KeyboardInterrupt:
        is_evidence = False
        raise
    finally:
        if keep is None and not is_evidence:
            shutil.rmtree(directory, ignore_errors=True)
        elif is_evidence:
            print(f"the files are kept in {directory}", file=sys.stderr)
    if json:
        print_json(result.as_dict())
    else:
        _print_ending(result, keep)
    if not result.held:
        false = [claim.text for claim in result.claims if not claim.held]
        raise CommandError(f"{len(false)} of {len(result.claims)} claims did not hold: {'; '.join(false)}")


def _demo_directory(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="quorate-demo-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise CommandError(
                f"{keep} is not empty", hint="name a new directory after --keep", code=ExitCode.USAGE
            )
    except OSError as error:
        raise CommandError(f"cannot use {keep}: {error.strerror}", code=ExitCode.USAGE) from error
    return keep


def _print_ending(result: Result, keep: Path | None) -> None:
    held = sum(claim.held for claim in result.claims)
    print(f"\n{held} of {len(result.claims)} claims held, in {result.seconds:.1f} s.", end=" ")
    if keep is None:
        print("Keep the files with `quorate demo --keep DIR` to look further.")
        return
    node = keep / "node"
    print("Look further:")
    print(f"  quorate log explain {node} billing")
    print(f"  quorate log dump {node} --group billing")
    print(f"  quorate log replay {node} --group billing")


def up(
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The node's directory; made if it is not there.")
    ] = Path("quorate-data"),
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Number of nodes.")] = NODES_SUPPORTED,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Kafka port; 0 takes any free one.")
    ] = 9092,
    http_port: Annotated[
        int, typer.Option("--http-port", min=0, max=65535, help="HTTP port; 0 takes any free one.")
    ] = 8092,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME:PARTITIONS", help="Create the topic if it is not there."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting, see docs/configuration.md."),
    ] = None,
    json: Json = False,
) -> None:
    """Run a node until Ctrl-C.

    With --json one line is printed when it is ready: {"bootstrap": ..., "nodes": [{"id", "pid", "host",
    "port", "http_port", "data", "command"}]}.

    Example: quorate up --data ./quorate-data --topic orders:12 --set group.consumer.session.timeout.ms=3000
    """
    if nodes != NODES_SUPPORTED:
        raise CommandError(
            f"this release runs one node, not {nodes}", hint="leave out --nodes", code=ExitCode.USAGE
        )
    topics = [parse_topic(text) for text in topic or []]
    wanted = parse_settings(settings or [])
    from cluster.launcher import LaunchError, launch_node

    try:
        process = launch_node(data, kafka_port=port, http_port=http_port, settings=wanted)
    except LaunchError as error:
        raise launch_failure(error) from error
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        _create_topics(process, topics)
        _print_ready(process, json)
        _supervise(process)
    except KeyboardInterrupt:
        process.stop()
    finally:
        signal.signal(signal.SIGTERM, previous)
        if process.poll() is None:
            process.kill()


def node(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A TOML file, see docs/configuration.md.")
    ] = None,
    make_directory: Annotated[
        bool, typer.Option("--format", help="Make the data directory first, if it is not there yet.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON line when every shard serves.")
    ] = False,
) -> None:
    """Run one node in this process, as a service manager does.

    Every setting of docs/configuration.md is also a flag (--kafka-port 9092) and a variable
    (QUORATE_KAFKA_PORT=9092).

    Example: quorate node --config /etc/quorate.toml --format --kafka-port 9092
    """
    words = [*(["--config", str(config)] if config is not None else []), *context.args]
    if make_directory:
        _format(words)
    command = [sys.executable, "-P", "-m", "cluster", *(["--announce"] if json else []), *words]
    os.execv(sys.executable, command)


def _format(words: list[str]) -> None:
    """Make the node's directory as its settings say, unless it is one already."""
    from cluster.host_asyncio import fresh_id
    from cluster.main import parse_arguments
    from cluster.settings import SettingsError, load_settings
    from raftlog.directory import NODE_FILE, NodeIdentity, format_node
    from raftlog.errors import RaftlogError
    from raftlog.files import OsFiles

    try:
        arguments = parse_arguments(words)
        settings = load_settings(arguments.config, os.environ, arguments.flags)
        if (Path(settings.data_dir) / NODE_FILE).exists():
            return
        identity = NodeIdentity(
            cluster_id=fresh_id(),
            node_id=settings.node_id,
            incarnation=fresh_id(),
            num_shards=settings.cluster_shards,
        )
        format_node(OsFiles(), settings.data_dir, identity)
    except SettingsError as error:
        raise CommandError(str(error), code=ExitCode.USAGE) from error
    except (RaftlogError, OSError) as error:
        raise CommandError(str(error), code=ExitCode.UNREADABLE) from error


def _create_topics(process: NodeProcess, topics: list[tuple[str, int]]) -> None:
    """Create what is not there; a topic that is there with another size is left alone and said so."""
    if not topics:
        return
    from quorate.client import Client

    with Client(f"{process.host}:{process.port}") as client:
        present = {found.name: found.num_partitions for found in client.topics()}
        for name, num_partitions in topics:
            if name not in present:
                client.create_topic(name, num_partitions)
            elif present[name] != num_partitions:
                print(
                    f"topic {name} has {present[name]} partitions already; grow it with "
                    f"`quorate topics grow {name}:{num_partitions}`",
                    file=sys.stderr,
                )


def _print_ready(process: NodeProcess, json: bool) -> None:
    bootstrap = f"{process.host}:{process.port}"
    if json:
        print_json({"bootstrap": bootstrap, "nodes": [process.as_dict()]})
        return
    print(f"ready: bootstrap.servers={bootstrap} group.protocol=consumer", flush=True)
    print(f"  HTTP     http://{process.host}:{process.http_port}")
    print(f"  data     {process.data}")
    print(f"  process  {process.pid}; Ctrl-C stops it", flush=True)


def _supervise(process: NodeProcess) -> None:
    """Wait for the node's end; a node that was not asked to stop makes the command fail."""
    exit_code = process.wait()
    if exit_code:
        how = f"with exit code {exit_code}: {without_log_head(process.last_words())}"
        if exit_code < 0:
            how = f"by signal {-exit_code} ({signal.strsignal(-exit_code)})"
        raise CommandError(
            f"the node ended {how}",
            hint=f"its log is {process.data / 'node.log'}; the same command starts it again",
            code=ExitCode.NODE_STOPPED,
        )


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
