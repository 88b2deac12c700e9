"""`quorate topics …`: the topic catalog, through the Kafka protocol like any other client."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from history.render import plural, ranges
from quorate.addresses import ClusterPlace, place_of_cluster
from quorate.commands.options import (
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    CommandGroup,
    Json,
    Timeout,
    Url,
    argument,
    connect,
    flag,
    option,
    parse_topic,
)
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, print_table, put, say

if TYPE_CHECKING:
    from quorate.client import TopicInfo

app = CommandGroup("Create, list, describe, grow, recreate, delete and mirror topics.")

Names = Annotated[list[str], argument("NAME...", "Topic names.")]
Sized = Annotated[list[str], argument("NAME:PARTITIONS...", "Topics with their partition counts.")]


@app.command("create")
def create(
    topics: Sized,
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Create topics.

    Example: quorate topics create orders:12 payments:4
    """
    wanted = [parse_topic(text) for text in topics]
    with connect(place_of_cluster(bootstrap, url), timeout_s) as client:
        for name, num_partitions in wanted:
            client.create_topic(name, num_partitions)
            _report("created", name, num_partitions, json)


@app.command("list")
def list_topics(
    bootstrap: Bootstrap = None, url: Url = None, timeout_s: Timeout = DEFAULT_TIMEOUT_S, json: Json = False
) -> None:
    """List topics with their partitions and ids.

    Example: quorate topics list --json
    """
    from records.ids import topic_id_text

    with connect(place_of_cluster(bootstrap, url), timeout_s) as client:
        rows = [(t.name, t.num_partitions, topic_id_text(t.topic_id)) for t in client.topics()]
    if json:
        print_json({"topics": [{"name": n, "partitions": p, "topic_id": i} for n, p, i in rows]})
    else:
        print_table(("TOPIC", "PARTITIONS", "ID"), rows, empty="no topics")


@app.command("grow")
def grow(
    topics: Sized,
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Give topics more partitions; the number is the new total.

    Example: quorate topics grow orders:24
    """
    for text in topics:
        if ":" not in text:
            raise CommandError(f"{text!r} has no partition count", hint=f"say {text}:24", code=ExitCode.USAGE)
    wanted = [parse_topic(text) for text in topics]
    with connect(place_of_cluster(bootstrap, url), timeout_s) as client:
        for name, num_partitions in wanted:
            client.grow_topic(name, num_partitions)
            _report("grown", name, num_partitions, json)


@app.command("describe")
def describe(
    names: Names,
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Show topics: id, partitions, and the node that leads each of these.

    Example: quorate topics describe orders
    """
    from records.ids import topic_id_text

    with connect(place_of_cluster(bootstrap, url), timeout_s) as client:
        topics = {topic.name: topic for topic in client.topics()}
    for name in names:
        _check_known(name, topics)
    if json:
        print_json(
            {
                "topics": [
                    {
                        "name": topic.name,
                        "topic_id": topic_id_text(topic.topic_id),
                        "partitions": topic.num_partitions,
                        "leaders": list(topic.leaders),
                    }
                    for topic in map(topics.__getitem__, names)
                ]
            }
        )
        return
    for place, name in enumerate(names):
        topic, size = topics[name], plural(topics[name].num_partitions, "partition")
        if place:
            say()
        say(f"topic {name}: id {topic_id_text(topic.topic_id)}, {size}")
        led: dict[int, list[int]] = {}
        for number, leader in enumerate(topic.leaders):
            led.setdefault(leader, []).append(number)
        rows = [("none" if node < 0 else str(node), ranges(numbers)) for node, numbers in sorted(led.items())]
        print_table(("NODE", "PARTITIONS"), rows)


@app.command("recreate")
def recreate(
    topics: Annotated[
        list[str], argument("NAME[:PARTITIONS]...", "Topics, optionally with a new partition count.")
    ],
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Delete topics and create them again: with new ids, and without the offsets committed on them.

    Groups that subscribe to them rebalance, and lose the old partitions.

    Example: quorate topics recreate orders:24
    """
    wanted = [parse_topic(text) if ":" in text else (text, 0) for text in topics]
    with connect(place_of_cluster(bootstrap, url), timeout_s) as client:
        there = {topic.name: topic for topic in client.topics()}
        for name, _ in wanted:
            _check_known(name, there)
        for name, count in wanted:
            num_partitions = count or there[name].num_partitions
            client.delete_topic(name)
            try:
                client.create_topic(name, num_partitions)
            except CommandError as error:
                hint = f"run `quorate topics create {name}:{num_partitions}`; {error.hint}"
                said = f"topic {name} was deleted but not created again: {error.message}"
                raise CommandError(said, hint=hint, code=error.code) from error
            _report("recreated", name, num_partitions, json)


@app.command("delete")
def delete(
    topics: Names,
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Delete topics.

    Example: quorate topics delete orders
    """
    with connect(place_of_cluster(bootstrap, url), timeout_s) as client:
        for name in topics:
            client.delete_topic(name)
            _report("deleted", name, None, json)


@app.command("mirror")
def mirror(
    source: Annotated[str, option("--from", "HOST:PORT[,…]", "The Kafka cluster to follow.")],
    bootstrap: Bootstrap = None,
    url: Url = None,
    topics: Annotated[str, option("--topics", "REGEX", "Only topics whose whole name matches (RE2).")] = ".*",
    state: Annotated[
        Path, option("--state", "FILE", "File that records which topics the mirror created.")
    ] = Path("quorate-mirror.json"),
    interval_s: Annotated[float, option("--interval", "SECONDS", "Seconds between rounds.", min=0.1)] = 5.0,
    once: Annotated[bool, flag("--once", "End when both clusters have the same topics.")] = False,
    keep: Annotated[bool, flag("--keep", "Do not delete topics that were deleted at the source.")] = False,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Mirror the topics of a Kafka cluster: create, grow, delete and recreate them here as they change there.

    Example: quorate topics mirror --from kafka-1:9092 --topics 'orders-.*'
    """
    import threading

    from quorate.mirror import Mirror, MirrorSource

    with (
        connect(ClusterPlace(source, None), timeout_s) as there,
        connect(place_of_cluster(bootstrap, url), timeout_s) as client,
    ):
        follower = Mirror(
            MirrorSource(there, topics), client, state, partial(put, now=True), deletes=not keep
        )
        if once:
            follower.once(interval_s)
        else:
            follower.run(interval_s, threading.Event())


def _check_known(name: str, topics: Mapping[str, TopicInfo]) -> None:
    if name not in topics:
        raise CommandError(
            f"there is no topic {name!r}",
            hint="`quorate topics list` shows all topics",
            code=ExitCode.REFUSED,
        )


def _report(done: str, name: str, num_partitions: int | None, json: bool) -> None:
    if json:
        print_json({done: name} | ({} if num_partitions is None else {"partitions": num_partitions}))
        return
    size = "" if num_partitions is None else f" ({num_partitions} partition{'s' * (num_partitions != 1)})"
    say(f"{done} topic {name}{size}")
