"""Options that several commands share, so that they are called and explained the same everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorate.errors import CommandError, ExitCode

if TYPE_CHECKING:
    from cluster.launching.launcher import LaunchError
    from quorate.endoffsets import KafkaOffsets

DEFAULT_BOOTSTRAP = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
DEFAULT_URL = "http://127.0.0.1:8092,http://127.0.0.1:8093,http://127.0.0.1:8094"
"""Where `quorate up --nodes 3` listens unless told otherwise: any node may be the one that is down."""

DEFAULT_TIMEOUT_S = 10.0

_LOG_LINE_HEAD = re.compile(r"[-0-9]+ [:,0-9]+ node \d+ [A-Z]+ [\w.]+: ")
"""What a node's last words begin with: time, node, level and logger, of which only the words are wanted."""

PARTITION_DIGITS_MAX = 10
PARTITIONS_NAMED_MAX = 1_000_000
"""Of one range on a command line: more is a slip of the finger, and a set of that many takes a second."""

NODES_OWN_PORTS = "(kafka.port, http.port, peer.port)"
"""What a node calls the ports that a launcher's options choose."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", help="Kafka address, HOST:PORT[,HOST:PORT]."),
]
Url = Annotated[str, typer.Option("--url", help="HTTP address of any node; several with commas.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds after which to give up.")]
EndOffsetsFrom = Annotated[
    str,
    typer.Option(
        "--end-offsets-from", metavar="HOST:PORT", help="A Kafka cluster that holds the topics' records."
    ),
]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.", show_default=False)]
Directory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="A node's data directory, a copy of one, or the folder that holds a cluster's.",
        show_default=False,
    ),
]


def new_app(help_text: str | None) -> typer.Typer:
    """A group of commands with the house's conventions: one-line errors, no decoration."""
    return typer.Typer(
        help=help_text,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )


def parse_topic(text: str) -> tuple[str, int]:
    """`orders:12` as name and partitions, `orders` as one partition; raises `CommandError` (usage)."""
    name, colon, count = text.partition(":")
    if not name or (colon and not (count.isdecimal() and int(count) > 0)):
        raise CommandError(
            f"{text!r} is not NAME or NAME:PARTITIONS", hint="for example orders:12", code=ExitCode.USAGE
        )
    return name, int(count) if colon else 1


def parse_partitions(text: str) -> tuple[str, list[int] | None]:
    """`orders:0,4-7` as topic and partitions, `orders` as all (None); raises `CommandError` (usage)."""
    name, colon, numbers = text.partition(":")
    wrong = CommandError(
        f"{text!r} is not TOPIC or TOPIC:PARTITIONS",
        hint="for example orders:0,4-7",
        code=ExitCode.USAGE,
    )
    if not name or (colon and not numbers):
        raise wrong
    if not colon:
        return name, None
    found: set[int] = set()
    for part in numbers.split(","):
        first, dash, last = part.partition("-")
        ends = [first, last] if dash else [first]
        if not all(end.isdecimal() and len(end) <= PARTITION_DIGITS_MAX for end in ends):
            raise wrong
        low, high = int(ends[0]), int(ends[-1])
        if high < low or high - low >= PARTITIONS_NAMED_MAX:
            raise wrong
        found.update(range(low, high + 1))
    return name, sorted(found)


def parse_settings(texts: list[str]) -> dict[str, str]:
    """`--set key=value` options as a mapping; raises `CommandError` (usage)."""
    settings: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key.strip() or not equals:
            raise CommandError(
                f"--set {text!r} is not KEY=VALUE",
                hint="for example --set group.consumer.session.timeout.ms=3000",
                code=ExitCode.USAGE,
            )
        settings[key.strip()] = value.strip()
    return settings


def connect(bootstrap: str, timeout_s: float) -> Any:
    """A `quorate.client.Client`; imported here so that help and usage errors do not load the protocol."""
    from quorate.client import Client

    return Client(bootstrap, timeout_s=timeout_s)


def kafka_offsets(end_offsets_from: str, timeout_s: float) -> KafkaOffsets | None:
    """The cluster that `--end-offsets-from` names; `CommandError` where the client package is missing."""
    if not end_offsets_from:
        return None
    from quorate.endoffsets import KafkaOffsets

    return KafkaOffsets(end_offsets_from, timeout_s)


def without_log_head(line: str) -> str:
    """A line of a node's log without time, level and logger."""
    return _LOG_LINE_HEAD.sub("", line)


def launch_failure(error: LaunchError) -> CommandError:
    """A node that did not come up, with the exit code that its own one stands for.

    Without one there was no process: the directory was refused.
    """
    codes = {None: ExitCode.UNREADABLE, 2: ExitCode.USAGE, 5: ExitCode.UNREADABLE}
    words = without_log_head(str(error)).replace(NODES_OWN_PORTS, "with --port and --http-port")
    return CommandError(words, code=codes.get(error.exit_code, ExitCode.NODE_STOPPED))
