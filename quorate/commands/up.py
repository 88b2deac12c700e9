"""`quorate demo` and `quorate up`: the commands that run nodes of their own."""

from __future__ import annotations

import importlib.util
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
    from cluster.launching.launcher import ClusterProcess, NodeProcess
    from quorate.demo.scene import Result

DEFAULT_DATA = Path("quorate-data")


def demo(
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep the nodes' data and the consumers' files in DIR."),
    ] = None,
    json: Json = False,
) -> None:
    """Show it: three nodes, seven real consumers, the leader killed, the proof from the files alone (25 s).

    Example: quorate demo --keep /tmp/quorate-demo
    """
    if importlib.util.find_spec("confluent_kafka") is None:
        raise CommandError(
            "the demo runs real Kafka consumers and needs the package confluent-kafka",
            hint="in Quorate's checkout: pip install -e '.[demo]'",
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
    cluster = keep / "cluster"
    print("Look further:")
    print(f"  quorate log compare {cluster}")
    print(f"  quorate log explain {cluster} billing")
    print(f"  quorate log dump {cluster} --group billing")
    print(f"  quorate log replay {cluster} --group billing")


def up(
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The cluster's directory; made if it is not there.")
    ] = DEFAULT_DATA,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes", min=1, help="Number of nodes: 1, 3 or 5. Default: as the directory was made, else 1."
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            "--port", min=0, max=65535, help="Node 1's Kafka port, node 2 has the next; 0: free ones."
        ),
    ] = 9092,
    http_port: Annotated[
        int,
        typer.Option("--http-port", min=0, max=65535, help="Node 1's HTTP port, as --port; 0: free ones."),
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
    """Run a cluster on this machine until Ctrl-C: one node, or several.

    With several, DIR holds a directory for each (node-1, …) and cluster.json; what the nodes log is shown
    on standard error, and `quorate cluster kill|stop|cont|restart NODE` do things to them. A node that ends
    stays down until it is restarted. A cluster of one ends with its node.

    With --json one line is printed when all serve: {"bootstrap": ..., "nodes": [{"id", "pid", "host",
    "port", "http_port", "data", "command"}]}.

    Example: quorate up --nodes 3 --topic orders:12 --set group.consumer.session.timeout.ms=3000
    """
    topics = [parse_topic(text) for text in topic or []]
    wanted = parse_settings(settings or [])
    from cluster.launching.launcher import LaunchError, cluster_size, prepare_cluster

    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        num_nodes = nodes or cluster_size(data) or 1
        cluster = prepare_cluster(data, num_nodes, kafka_port=port, http_port=http_port, settings=wanted)
        try:
            if num_nodes == 1:
                _run_one(cluster, topics, json)
            else:
                _run_several(cluster, topics, json)
        finally:
            cluster.kill()  # what still runs, after a failure
    except LaunchError as error:
        raise launch_failure(error) from error
    finally:
        signal.signal(signal.SIGTERM, previous)


def _run_one(cluster: ClusterProcess, topics: list[tuple[str, int]], json: bool) -> None:
    cluster.start()
    try:
        _create_topics(cluster.bootstrap, topics)
        _print_ready(cluster, json)
        _await_end(cluster.nodes[0])
    except KeyboardInterrupt:
        cluster.stop()


def _run_several(cluster: ClusterProcess, topics: list[tuple[str, int]], json: bool) -> None:
    from cluster.launching.supervisor import Supervisor

    def on_ready() -> None:
        _create_topics(cluster.bootstrap, topics)
        _print_ready(cluster, json)

    Supervisor(cluster, _show).run(on_ready)


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _create_topics(bootstrap: str, topics: list[tuple[str, int]]) -> None:
    """Create what is not there; a topic that is there with another size is left alone and said so."""
    if not topics:
        return
    from quorate.client import Client

    with Client(bootstrap) as client:
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


def _print_ready(cluster: ClusterProcess, json: bool) -> None:
    if json:
        print_json(cluster.as_dict())
        return
    print(f"ready: bootstrap.servers={cluster.bootstrap} group.protocol=consumer", flush=True)
    if len(cluster.nodes) == 1:
        node = cluster.nodes[0]
        print(f"  HTTP     {node.url}")
        print(f"  data     {node.data}")
        print(f"  process  {node.pid}; Ctrl-C stops it", flush=True)
        return
    for node in cluster.nodes:
        print(f"  node {node.node_id}   Kafka {node.bootstrap}   HTTP {node.url}   process {node.pid}")
    print(f"  data     {cluster.data}")
    where = "" if cluster.data == DEFAULT_DATA.resolve() else f" --data {cluster.data}"
    print(f"  `quorate cluster kill 2{where}` kills a node; Ctrl-C stops all of them", flush=True)


def _await_end(process: NodeProcess) -> None:
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
