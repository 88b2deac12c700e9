"""`quorate groups delete-offsets`, and the notation for partitions on a command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from quorate.commands.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Group,
    Json,
    Timeout,
    argument,
    connect,
    parse_partitions,
)
from quorate.errors import CommandError, ExitCode
from quorate.output import assignment_text, print_json, say


def delete_offsets(
    group: Group,
    topics: Annotated[
        list[str],
        argument(
            "TOPIC[:PARTITIONS]",
            "Partitions whose offsets to delete; a topic alone means all of its partitions.",
        ),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Delete committed offsets of topics that no member of the group subscribes to.

    Example: quorate groups delete-offsets billing orders:0,4-7 payments
    """
    with connect(bootstrap, timeout_s) as client:
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
