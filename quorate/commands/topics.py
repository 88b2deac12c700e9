"""`quorate topics …`: the catalog, through the Kafka protocol like any other client."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quorate.commands.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Json,
    Timeout,
    connect,
    new_app,
    parse_topic,
)
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, print_now, print_table

app = new_app("Create, list, grow, delete and mirror topics.")

Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of topics.", show_default=False)]
Source = Annotated[
    str,
    typer.Option("--from", metavar="HOST:PORT[,…]", help="The Kafka cluster to follow.", show_default=False),
]
Sized = Annotated[
    list[str],
    typer.Argument(metavar="NAME:PARTITIONS", help="Topics with their partitions.", show_default=False),
]


@app.command("create")
def create(
    topics: Sized,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Create topics.

    Example: quorate topics create orders:12 payments:4
    """
    wanted = [parse_topic(text) for text in topics]
    with connect(bootstrap, timeout_s) as client:
        for name, num_partitions in wanted:
            client.create_topic(name, num_partitions)
            _report("created", name, num_partitions, json)


@app.command("list")
def list_topics(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout_s: Timeout = DEFAULT_TIMEOUT_S, json: Json = False
) -> None:
    """List topics with their partitions and ids.

    Example: quorate topics list --json
    """
    from records.ids import topic_id_text

    with connect(bootstrap, timeout_s) as client:
        rows = [(t.name, t.num_partitions, topic_id_text(t.topic_id)) for t in client.topics()]
    if json:
        print_json({"topics": [{"name": n, "partitions": p, "topic_id": i} for n, p, i in rows]})
    else:
        print_table(("TOPIC", "PARTITIONS", "ID"), rows, empty="no topics")


@app.command("grow")
def grow(
    topics: Sized,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Give topics more partitions; the number is the new total.

    Example: quorate topics grow orders:24
    """
    for text in topics:
        if ":" not in text:
            raise CommandError(
                f"how many partitions shall {text!r} have", hint=f"say {text}:24", code=ExitCode.USAGE
            )
    wanted = [parse_topic(text) for text in topics]
    with connect(bootstrap, timeout_s) as client:
        for name, num_partitions in wanted:
            client.grow_topic(name, num_partitions)
            _report("grown", name, num_partitions, json)


@app.command("delete")
def delete(
    topics: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Delete topics.

    Example: quorate topics delete orders
    """
    with connect(bootstrap, timeout_s) as client:
        for name in topics:
            client.delete_topic(name)
            _report("deleted", name, None, json)


@app.command("mirror")
def mirror(
    source: Source,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    topics: Annotated[
        str, typer.Option("--topics", metavar="REGEX", help="Only topics whose whole name matches (RE2).")
    ] = ".*",
    state: Annotated[
        Path, typer.Option("--state", help="File that remembers which topics the mirror made.")
    ] = Path("quorate-mirror.json"),
    interval_s: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between rounds.")] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="End when both sides agree.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep topics that are deleted at the source.")] = False,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Follow the topics of a Kafka cluster: create, grow, delete and make again here what changes there.

    Example: quorate topics mirror --from kafka-1:9092 --topics 'orders-.*'
    """
    import threading

    from quorate.kafka_source import KafkaSource, chosen_by
    from quorate.mirror import Mirror

    takes = chosen_by(topics)
    with connect(bootstrap, timeout_s) as client:
        follower = Mirror(
            KafkaSource(source, timeout_s), client, state, print_now, takes=takes, deletes=not keep
        )
        if once:
            follower.once(interval_s)
        else:
            follower.run(interval_s, threading.Event())


def _report(done: str, name: str, num_partitions: int | None, json: bool) -> None:
    if json:
        print_json({done: name} | ({} if num_partitions is None else {"partitions": num_partitions}))
        return
    size = "" if num_partitions is None else f" ({num_partitions} partition{'s' * (num_partitions != 1)})"
    print(f"{done} topic {name}{size}")
