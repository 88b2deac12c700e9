"""The subject of a query: the log, and the arguments after it.

The log comes first: a node's directory, or the folder that holds a cluster's. `--url` reads a running cluster
instead, and the directory is omitted: `quorate log explain DIR GROUP`, or `quorate log explain --url URL
GROUP`.

A command declares its arguments (`DirGroup`, …) and `Live`, and passes both to `subject`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from quorate.commands.log.common import read_log, style_of, usage
from quorate.commands.options import argument, flag, option
from quorate.errors import CommandError, ExitCode

if TYPE_CHECKING:
    from history.reading.node import NodeLog

OLDEST = "start"
"""The begin of every shard's log, which is an index in all of them."""

SCHEMES = ("http://", "https://")
"""A DIR with such a prefix is a running cluster's URL, as with --url."""

_LOG = "A node's data directory or a folder with those of a cluster (not with --url)"
DirOnly = Annotated[list[str] | None, argument("DIR", f"{_LOG}.")]
DirGroup = Annotated[list[str] | None, argument("DIR GROUP", f"{_LOG}, then the group's id.")]
DirMaybeGroup = Annotated[
    list[str] | None, argument("DIR [GROUP]", f"{_LOG}, then a group's id, or nothing for all groups.")
]
DirPartition = Annotated[
    list[str] | None, argument("DIR TOPIC-PARTITION", f"{_LOG}, then a partition such as orders-3.")
]
Live = Annotated[
    str | None,
    option("--url", "URL", "Read from a running cluster: HTTP address of any node, or several with commas."),
]
Follow = Annotated[
    bool, flag("--follow -f", "Continue with new entries as they are committed, until Ctrl-C.")
]
Since = Annotated[
    str | None, option("--since", "INDEX|TIME|SPAN", "From here on: a log index, a time, 03:12, 2h, end-5m.")
]
Until = Annotated[str | None, option("--until", "INDEX|TIME|SPAN", "Up to here, inclusive.")]


def subject(words: Sequence[str] | None, url: str | None, *names: str) -> tuple[NodeLog, tuple[str, ...]]:
    """The opened log, and the arguments after it, one for each of ``names``.

    Raises `CommandError` (usage) if arguments are missing or too many, or if there is nothing to read.
    """
    given = tuple(words or ())
    if url is None and given and given[0].startswith(SCHEMES):
        url, given = given[0], given[1:]
    expected = names if url is not None else ("DIR", *names)
    if len(given) != len(expected):
        said = " ".join(given) or "nothing"
        beside = " beside --url" if url is not None else ""
        raise CommandError(
            f"expected {' '.join(expected) or 'nothing'}{beside}, got {said}",
            hint="quote a name that contains spaces",
            code=ExitCode.USAGE,
        )
    if url is not None:
        from quorate.livelog import open_live

        return open_live(url), given
    from history.reading.opening import open_node

    return read_log(given[0], lambda: open_node(given[0])), given[1:]


def files_only(words: Sequence[str] | None, url: str | None, name: str) -> list[str]:
    """The given directories; refuses a running cluster, since the question is about the bytes on disk."""
    given = list(words or ())
    if url is not None or any(word.startswith(SCHEMES) for word in given):
        raise CommandError(
            f"{name} reads files, not a running cluster: it checks every byte that is on disk",
            hint="give the nodes' data directories, which may be in use, or copies of them",
            code=ExitCode.USAGE,
        )
    if not given:
        raise CommandError(
            f"{name} needs a directory", hint=f"see `quorate log {name} --help`", code=ExitCode.USAGE
        )
    return given


Place = tuple[int | None, int | None]
"""An index or epoch ms; (None, None) if nothing was given."""


def window(
    log: NodeLog,
    begin: str | None,
    end: str | None,
    *,
    utc: bool,
    group: str | None = None,
    shard: int | None = None,
    any_shard: bool = False,
) -> tuple[Place, Place]:
    """The two ends of a window, parsed by `moment`; a clock time at the end is taken after the begin."""

    def place(text: str | None, after_ms: int | None = None) -> Place:
        is_any = any_shard or text == OLDEST
        return moment(log, text, utc=utc, group=group, shard=shard, after_ms=after_ms, any_shard=is_any)

    first = place(begin)
    last = place(end, first[1])
    for one, other in zip(first, last, strict=True):
        if one is not None and other is not None and one > other:
            raise CommandError(
                f"{end} is before {begin}: the window would end before it begins", code=ExitCode.USAGE
            )
    return first, last


def moment(
    log: NodeLog,
    text: str | None,
    *,
    utc: bool,
    group: str | None = None,
    shard: int | None = None,
    after_ms: int | None = None,
    any_shard: bool = False,
) -> Place:
    """Parse a point in time into (index, epoch ms), at most one of them set; (None, None) for None.

    An index belongs to one shard, so it needs a group or a shard, unless `any_shard`.
    A clock time and ``end-5m`` are relative to the last entry of the group's shard (or of the given shard,
    else of all shards), ``2h`` to now.
    """
    if text is None:
        return None, None
    from history.moments import parse_moment

    style = style_of(utc)
    parsed = usage(lambda typed: parse_moment(typed, style), text)
    if (parsed.index is not None or parsed.is_start) and group is None and shard is None and not any_shard:
        raise CommandError(
            f"{text} is an index, and each shard has its own indexes",
            hint="give a group or a time",
            code=ExitCode.USAGE,
        )
    if parsed.index is not None or parsed.time_ms is not None:
        return parsed.index, parsed.time_ms

    def last_ms() -> int:
        return log.last_ms(log.shard_of_group(group) if shard is None and group is not None else shard)

    end_ms = read_log(log.path, last_ms)
    now_ms = int(time.time() * 1000)
    return parsed.resolved(now_ms=now_ms, end_ms=end_ms, after_ms=after_ms, style=style)
