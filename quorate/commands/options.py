"""Options shared by several commands, so that they have the same names and help everywhere."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
import typer.core

from quorate.addresses import BOOTSTRAP_VARIABLE, URL_VARIABLE, ClusterPlace
from quorate.errors import CommandError, ExitCode, WrongArguments

if TYPE_CHECKING:
    from cluster.launching.launcher import LaunchError
    from quorate.endoffsets import KafkaOffsets

DEFAULT_DATA = Path("quorate-data")
"""The directory of `quorate up`, and the log that `quorate log` reads."""

DEFAULT_TIMEOUT_S = 10.0

Command = TypeVar("Command", bound=Callable[..., Any])

_LOG_LINE_HEAD = re.compile(r"[-0-9]+ [:,0-9]+ node \d+ [A-Z]+ [\w.]+: |quorate: error: ")
"""The head of a line in a node's log (time, node, level and logger), or of an error, to be stripped."""

PARTITION_DIGITS_MAX = 10
PARTITIONS_NAMED_MAX = 1_000_000
"""Limit on one range on a command line: more is a typing error, and such a set takes a second to build."""

SENTENCE_MAX = 200
"""Limit on the characters of a command's first sentence in the list of commands."""

NODES_OWN_PORTS = "(kafka.port, http.port, peer.port)"
"""The words in a node's messages for the ports that a launcher's options choose."""


TYPED: ContextVar[Sequence[str]] = ContextVar("TYPED", default=())
"""The arguments of the command that runs, for pages that say by what they were written."""

_PASSWORD = re.compile(r"(?<=//)[^/@\s]+(?=@)")


def typed() -> str:
    """The command that runs, as it was typed, but without passwords in URLs and values of `--conf`."""
    words = list(TYPED.get())
    for at, word in enumerate(words):
        words[at] = _PASSWORD.sub("…", word)
        if word.startswith("--conf=") or words[max(at - 1, 0)] == "--conf":
            _, _, rest = word.removeprefix("--conf=").partition("=")
            words[at] = word.removesuffix(rest) + "…" if rest else word
    return f"quorate {shlex.join(words)}"


def option(names: str, metavar: str, help: str, **more: Any) -> Any:
    """An option with a value; several names with blanks."""
    return typer.Option(*names.split(), metavar=metavar, help=help, **more)


def flag(names: str, help: str) -> Any:
    """An option without a value; several names with blanks."""
    return typer.Option(*names.split(), help=help)


def argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help)


Json = Annotated[bool, flag("--json", "Print JSON instead of text.")]
Bootstrap = Annotated[
    str | None,
    option(
        "--bootstrap -b",
        "HOST:PORT",
        "Kafka address of any node, or several with commas; this or --url is enough. Default: "
        f"${BOOTSTRAP_VARIABLE}, or what `quorate up` serves.",
    ),
]
Url = Annotated[
    str | None,
    option(
        "--url",
        "URL",
        "HTTP address of any node, or several with commas; this or --bootstrap is enough. Default: "
        f"${URL_VARIABLE}, or what `quorate up` serves.",
    ),
]
Timeout = Annotated[float, option("--timeout", "SECONDS", "Timeout in seconds.", min=0.1)]
EndOffsetsFrom = Annotated[
    str, option("--end-offsets-from", "HOST:PORT", "A Kafka cluster that holds the topics' records.")
]
GroupNamed = Annotated[str | None, option("--group", "GROUP", "The group, instead of the argument.")]
GroupsNamed = Annotated[
    list[str] | None, option("--group", "GROUP", "A group, instead of an argument; may be repeated.")
]
Group = Annotated[str | None, argument("GROUP", "The group's id.")]


HYPHEN = "\N{NON-BREAKING HYPHEN}"
"""Stands for a hyphen while help is wrapped, so that no option or path of an example is broken at one."""


@functools.cache
def _whole_words(plain: Any) -> Any:
    """A formatter of help that breaks lines only at blanks."""

    class WholeWords(plain):  # type: ignore[misc] # Typer may have its own copy of click
        def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
            super().write_usage(prog, args.replace("-", HYPHEN), prefix)

        def write_text(self, text: str) -> None:
            super().write_text(text.replace("-", HYPHEN))

        def write_dl(self, rows: Any, *more: Any, **options: Any) -> None:
            whole = [tuple(cell.replace("-", HYPHEN) for cell in row) for row in rows]
            super().write_dl(whole, *more, **options)

        def getvalue(self) -> str:
            text: str = super().getvalue()
            return text.replace(HYPHEN, "-")

    return WholeWords


class PlainCommand(typer.core.TyperCommand):
    """A command whose usage line names required arguments as they are, without Typer's braces."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = super().collect_usage_pieces(ctx)
        return [piece[1:-1] if piece.startswith("{") else piece for piece in pieces]

    def get_help(self, ctx: Any) -> str:
        ctx.formatter_class = _whole_words(ctx.formatter_class)
        return super().get_help(ctx)

    def get_short_help_str(self, limit: int = 0) -> str:
        """The whole first sentence: the list of commands wraps it, rather than cut it at a width."""
        return super().get_short_help_str(SENTENCE_MAX)


class PlainGroup(typer.core.TyperGroup):
    """The same for a group of commands."""

    def get_help(self, ctx: Any) -> str:
        ctx.formatter_class = _whole_words(ctx.formatter_class)
        return super().get_help(ctx)

    def get_short_help_str(self, limit: int = 0) -> str:
        return super().get_short_help_str(SENTENCE_MAX)


class CommandGroup(typer.Typer):
    """A group of commands with common conventions: one-line errors, no decoration."""

    def __init__(self, help_text: str | None, **more: Any) -> None:
        defaults: dict[str, Any] = {"add_completion": False, "cls": PlainGroup}
        super().__init__(
            help=help_text,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
            **defaults | more,
        )

    def command(self, name: str | None = None, **more: Any) -> Callable[[Command], Command]:
        return super().command(name, **{"cls": PlainCommand} | more)


def one_group(argument: str | None, named: str | None) -> str:
    """The group of a command, given as its argument or with --group; raises `CommandError` (usage)."""
    group, rest = first_group(() if argument is None else (argument,), named)
    if rest:
        raise CommandError(
            f"two groups are given, {rest[0]} and --group {group}", hint="give one", code=ExitCode.USAGE
        )
    return group


def first_group(
    words: Sequence[str] | None, named: Sequence[str] | str | None, *, then: str = ""
) -> tuple[str, list[str]]:
    """The group and the arguments after it: the first argument is the group unless --group names it.

    Raises `CommandError` (usage) if there is none, or nothing of what `then` names.
    """
    given = [*((named,) if isinstance(named, str) else named or ()), *(words or ())]
    if not given:
        raise WrongArguments("GROUP is missing")
    if then and not given[1:]:
        raise WrongArguments(f"{then} is missing", hint=f"give it after group {given[0]}")
    return given[0], given[1:]


def parse_topic(text: str) -> tuple[str, int]:
    """Parse `orders:12` into name and partitions, `orders` into one; raises `CommandError` (usage)."""
    name, colon, count = text.partition(":")
    if not name or (colon and not (count.isdecimal() and int(count) > 0)):
        raise CommandError(
            f"{text!r} is not NAME or NAME:PARTITIONS", hint="for example orders:12", code=ExitCode.USAGE
        )
    return name, int(count) if colon else 1


def parse_partitions(text: str) -> tuple[str, list[int] | None]:
    """Parse `orders:0,4-7` into topic and partitions, `orders` into all (None).

    Raises `CommandError` (usage).
    """
    name, colon, numbers = text.partition(":")
    wrong = CommandError(
        f"{text!r} is not TOPIC or TOPIC:PARTITIONS", hint="for example orders:0,4-7", code=ExitCode.USAGE
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
    """Parse `--set key=value` options into a mapping; raises `CommandError` (usage)."""
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


def connect(place: ClusterPlace, timeout_s: float) -> Any:
    """A `quorate.client.Client`; imported here so that help and usage errors do not load the protocol."""
    from quorate.client import Client

    return Client(place.kafka(timeout_s), timeout_s=timeout_s)


def kafka_offsets(end_offsets_from: str, timeout_s: float) -> KafkaOffsets | None:
    """The cluster named by `--end-offsets-from`; raises `CommandError` if the client package is missing."""
    if not end_offsets_from:
        return None
    from quorate.endoffsets import KafkaOffsets

    return KafkaOffsets(end_offsets_from, timeout_s)


def without_log_head(line: str) -> str:
    """A line of a node's log without time, level and logger."""
    return _LOG_LINE_HEAD.sub("", line)


def launch_failure(error: LaunchError) -> CommandError:
    """The error for a node that failed to start, with an exit code that matches its own.

    Without an exit code there was no process: the directory was refused.
    """
    codes = {None: ExitCode.UNREADABLE, 2: ExitCode.USAGE, 5: ExitCode.UNREADABLE}
    words = without_log_head(str(error)).replace(NODES_OWN_PORTS, "with --port and --http-port")
    return CommandError(words, code=codes.get(error.exit_code, ExitCode.NODE_STOPPED))
