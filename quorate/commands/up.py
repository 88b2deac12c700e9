"""`quorate up`: a cluster on this machine."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

from quorate.addresses import BOOTSTRAP_VARIABLE
from quorate.commands.options import (
    DEFAULT_DATA,
    Json,
    launch_failure,
    option,
    parse_settings,
    parse_topic,
    without_log_head,
)
from quorate.errors import CommandError, ExitCode
from quorate.output import notify, print_json, say

if TYPE_CHECKING:
    from cluster.launching.launcher import ClusterProcess, NodeProcess

DEFAULT_PORT = 9092
DEFAULT_HTTP_PORT = 8092
SCRATCH_LOG = {"scratch.log.enable": "true"}


Data = Annotated[Path, option("--data", "DIR", "The cluster's directory, created if it does not exist.")]
Nodes = Annotated[
    int | None,
    option(
        "--nodes",
        "N",
        "Number of nodes: 1, 3 or 5. Default: that of an existing directory, otherwise 1.",
        min=1,
    ),
]
Port = Annotated[
    int,
    option(
        "--port",
        "PORT",
        "Kafka port of node 1; the others use the ports that follow. 0: any free ports.",
        min=0,
        max=65535,
    ),
]
HttpPort = Annotated[
    int,
    option(
        "--http-port", "PORT", "HTTP port of node 1, as with --port. 0: any free ports.", min=0, max=65535
    ),
]
Topics = Annotated[
    list[str] | None, option("--topic", "NAME:PARTITIONS", "Create the topic if it does not exist.")
]
Set = Annotated[list[str] | None, option("--set", "KEY=VALUE", "A setting, see `quorate settings`.")]


def up(
    data: Data = DEFAULT_DATA,
    nodes: Nodes = None,
    port: Port = DEFAULT_PORT,
    http_port: HttpPort = DEFAULT_HTTP_PORT,
    topic: Topics = None,
    settings: Set = None,
    json: Json = False,
) -> None:
    """Run a cluster on this machine until Ctrl-C: one node, or several.

    With several, DIR holds a directory for each (node-1, …) and cluster.json; the nodes' logs are shown on
    standard error, and `quorate cluster kill|stop|cont|restart NODE` cause failures. A node that ends stays
    down until it is restarted. A cluster of one ends with its node. `quorate faults` can make the nodes
    delay, drop and refuse requests; --set faults.enable=false forbids it.

    Topics take messages. They are kept in the memory of one node and are NOT DURABLE: after a failover or a
    restart there are none. --set scratch.log.enable=false refuses them.

    With --json one line is printed when all nodes serve: {"bootstrap": ..., "nodes": [{"id", "pid", "host",
    "port", "http_port", "data", "command"}]}, and "push_port", "rewrite_port" if they are served.

    Example: quorate up --nodes 3 --topic orders:12 --set group.consumer.session.timeout.ms=3000
    """
    topics = [parse_topic(text) for text in topic or []]
    wanted = SCRATCH_LOG | {"faults.enable": "true"} | parse_settings(settings or [])
    from cluster.launching.cluster_directory import kept_if_ready
    from cluster.launching.launcher import LaunchError, cluster_size, prepare_cluster

    with _sigterm_interrupts(), kept_if_ready(data) as keep:
        try:
            size = cluster_size(data)
            num_nodes = nodes or size or 1
            if num_nodes > 1:
                wanted = {"launcher.dir": str(data.resolve())} | wanted
            cluster = prepare_cluster(data, num_nodes, kafka_port=port, http_port=http_port, settings=wanted)

            def on_ready() -> None:
                _create_topics(cluster.bootstrap, topics)
                keep()
                _print_ready(cluster, json, wanted)

            try:
                run = _run_one if num_nodes == 1 else _run_several
                run(cluster, on_ready)
            finally:
                cluster.kill()  # processes that still run after a failure
        except LaunchError as error:
            raise launch_failure(error) from error


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _run_one(cluster: ClusterProcess, on_ready: Callable[[], None]) -> None:
    cluster.start()
    try:
        on_ready()
        _await_end(cluster.nodes[0])
    except KeyboardInterrupt:
        cluster.stop()


def _run_several(cluster: ClusterProcess, on_ready: Callable[[], None]) -> None:
    from cluster.launching.supervisor import Supervisor

    Supervisor(cluster, notify).run(on_ready)


def _create_topics(bootstrap: str, topics: list[tuple[str, int]]) -> None:
    """Create missing topics; one that exists with another number of partitions is left alone and reported."""
    if not topics:
        return
    from quorate.client import Client

    with Client(bootstrap) as client:
        present = {found.name: found.num_partitions for found in client.topics()}
        for name, num_partitions in topics:
            if name not in present:
                client.create_topic(name, num_partitions)
            elif present[name] != num_partitions:
                notify(
                    f"topic {name} already has {present[name]} partitions; grow it with `quorate topics "
                    f"grow {name}:{num_partitions}`"
                )


def _print_ready(cluster: ClusterProcess, json: bool, settings: dict[str, str]) -> None:
    from cluster.settings import load_settings

    if json:
        print_json(cluster.as_dict())
        return
    say(f"ready: bootstrap.servers={cluster.bootstrap}", now=True)
    if load_settings(None, {}, settings).scratch_log_enable:
        say("  messages are kept in memory, and are NOT DURABLE (scratch.log.enable)")
    for name in cluster.nodes[0].lineage_ports:
        places = ",".join(f"{node.host}:{node.lineage_ports[name]}" for node in cluster.nodes)
        say(f"  the {name} protocol (`quorate docs generations`) is served at {places}")
    if len(cluster.nodes) == 1:
        node = cluster.nodes[0]
        say(f"  HTTP     {node.url}")
        say(f"  data     {node.data}")
        _print_variable(cluster)
        say(f"  process  {node.pid}; Ctrl-C stops it", now=True)
        return
    for node in cluster.nodes:
        say(f"  node {node.node_id}   Kafka {node.bootstrap}   HTTP {node.url}   process {node.pid}")
    say(f"  data     {cluster.data}")
    _print_variable(cluster)
    where = "" if cluster.data == DEFAULT_DATA.resolve() else f" --data {cluster.data}"
    say(f"  `quorate cluster kill 2{where}` kills a node; Ctrl-C stops all of them", now=True)


def _print_variable(cluster: ClusterProcess) -> None:
    """Say how other commands find a cluster that is not at the usual addresses."""
    if cluster.nodes[0].port != DEFAULT_PORT:
        say(f"  export {BOOTSTRAP_VARIABLE}={cluster.bootstrap} tells other terminals")


def _await_end(process: NodeProcess) -> None:
    """Wait for the node to end; the command fails if the node was not asked to stop."""
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
