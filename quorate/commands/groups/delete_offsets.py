"""`quorate groups delete-offsets`, and the notation for partitions on a command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from quorate.addresses import place_of_cluster
from quorate.commands.options import (
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    GroupNamed,
    Json,
    Timeout,
    Url,
    argument,
    connect,
    first_group,
    parse_partitions,
)
from quorate.errors import CommandError, ExitCode
from quorate.output import assignment_text, print_json, say


def delete_offsets(
    words: Annotated[
        list[str] | None,
        argument(
            "[GROUP] TOPIC[:PARTITIONS]...",
            "The group's id (left out with --group), then partitions; a topic alone means all of its "
            "partitions.",
        ),
    ] = None,
    named: GroupNamed = None,
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Delete committed offsets of topics that no member of the group subscribes to.

    Example: quorate groups delete-offsets billing orders:0,4-7 payments
    """
    group, topics = first_group(words, named, then="TOPIC[:PARTITIONS]")
    with connect(place_of_cluster(bootstrap, url), timeout_s) as client:
        committed = client.offsets(group)
        wanted = {
            topic: sorted(committed.get(topic, ())) if numbers is None else numbers
            for topic, numbers in by_topic(topics).items()
        }
        for topic, numbers in wanted.items():
            if not set(numbers) & set(committed.get(topic, ())):
                raise CommandError(
                    f"group {group!r} has no committed offset of {topic!r}"
                    + (f" for partition {assignment_text({'': numbers})[1:]}" if numbers else ""),
                    hint=f"`quorate groups describe {group}` lists its offsets",
                    code=ExitCode.REFUSED,
                )
        client.delete_offsets(group, wanted)
    if json:
        print_json({"group": group, "deleted": wanted})
    else:
        say(f"deleted the offsets of {assignment_text(wanted)} in group {group}")


def by_topic(texts: Sequence[str]) -> dict[str, list[int] | None]:
    """Merge several TOPIC[:PARTITIONS]; None: all partitions of the topic."""
    found: dict[str, list[int] | None] = {}
    for text in texts:
        name, numbers = parse_partitions(text)
        before = found.get(name, [])
        found[name] = None if before is None or numbers is None else sorted({*before, *numbers})
    return found
