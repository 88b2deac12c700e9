"""The subject of a query: the log, and the arguments after it.

The log is a directory (a node's, or the folder that holds a cluster's), `quorate-data` unless it is given;
with `--url` it is a running cluster. A directory is given as the first argument or with `--data`. The first
argument is the log if it is a directory, contains a slash, or is one more than the command takes; otherwise
it is the group: `quorate log explain billing`, `quorate log explain DIR billing`. The group is the argument
after the log, or `--group`, which leaves no doubt where a directory has the group's name.

A command declares its arguments with `words_after_log(SHAPE)`, and passes them to `subject` with the same
shape: names with blanks between them, those that may be left out in brackets, `...` after one that repeats.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from quorate.commands.log.common import read_log, style_of, usage
from quorate.commands.options import DEFAULT_DATA, argument, flag, option
from quorate.errors import CommandError, ExitCode, WrongArguments

if TYPE_CHECKING:
    from history.moments import LogWindow
    from history.reading.extent import Extent
    from history.reading.node import NodeLog

OLDEST = "start"
"""The begin of every shard's log, which is an index in all of them."""

SCHEMES = ("http://", "https://")
"""A directory with such a prefix is a running cluster's URL, as with --url."""

NO_GROUP, MAYBE_GROUP, ONE_GROUP, ANY_GROUPS = "", "[GROUP]", "GROUP", "[GROUP]..."
PARTITION = "TOPIC-PARTITION [GROUP]"
"""The shapes of arguments after the log."""

ARGUMENTS_MAX = 10_000
"""Limit on the groups of one command line, far beyond what anybody types."""

_MEANINGS = {
    NO_GROUP: "",
    ONE_GROUP: "then the group's id",
    MAYBE_GROUP: "then the group's id, if only one is wanted",
    ANY_GROUPS: "then the ids of the groups, if not all are wanted",
    PARTITION: "then a partition such as orders-3, and the group's id, if only one is wanted",
}


def words_after_log(shape: str) -> Any:
    """The argument of a command that reads a log."""
    log = f"A node's directory, or the folder of a cluster. Default: {DEFAULT_DATA}"
    meaning = f"; {_MEANINGS[shape]}" if shape else ""
    return argument(f"[DIR] {shape}".rstrip(), f"{log}{meaning}.")


LogOnly = Annotated[list[str] | None, words_after_log(NO_GROUP)]
LogGroup = Annotated[list[str] | None, words_after_log(ONE_GROUP)]
LogMaybeGroup = Annotated[list[str] | None, words_after_log(MAYBE_GROUP)]
LogGroups = Annotated[list[str] | None, words_after_log(ANY_GROUPS)]
LogPartition = Annotated[list[str] | None, words_after_log(PARTITION)]
LogData = Annotated[str | None, option("--data", "DIR", "The log's directory, instead of the argument.")]
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


def subject(
    words: Sequence[str] | None,
    data: str | None,
    url: str | None,
    shape: str = NO_GROUP,
    group: Sequence[str] | str | None = (),
) -> tuple[NodeLog, tuple[str, ...]]:
    """The opened log, and the arguments after it, with the groups of --group at the end.

    Raises `CommandError`: usage if arguments are missing, too many or contradict each other, unreadable if
    there is nothing to read.
    """
    names = shape.split()
    most = ARGUMENTS_MAX if shape == ANY_GROUPS else len(names)
    named = (group,) if isinstance(group, str) else tuple(group or ())
    place, rest = _log_and_rest(words, data, url, most - len(named))
    given = (*rest, *named)
    needed = [name for name in names if not name.startswith("[")]
    if len(given) < len(needed):
        raise WrongArguments(f"{needed[len(given)]} is missing")
    if len(given) > most:
        raise WrongArguments(
            f"{given[most]!r} is one argument too many: they are {f'[DIR] {shape}'.rstrip()}",
            hint="--group names a group too; quote a name that contains spaces",
        )
    place = default_log() if place is None else place
    if place.startswith(SCHEMES) or place == url:
        from quorate.livelog import open_live

        return open_live(place), given
    from history.reading.opening import open_node

    return read_log(place, lambda: open_node(place)), given


def log_and_group(
    words: Sequence[str] | None, data: str | None, url: str | None, named: str | None
) -> tuple[NodeLog, str | None]:
    """The opened log, and its group if one is named; raises as `subject` does."""
    log, groups = subject(words, data, url, MAYBE_GROUP, named)
    return log, groups[0] if groups else None


def _log_and_rest(
    words: Sequence[str] | None, data: str | None, url: str | None, most: int
) -> tuple[str | None, tuple[str, ...]]:
    """The directory or URL that is given, and the arguments after it; a command takes at most `most`."""
    given = tuple(words or ())
    is_first = bool(given) and (_is_place(given[0]) or len(given) > most)
    said = [one for one in (data, url, given[0] if is_first else None) if one is not None]
    if len(said) > 1:
        raise CommandError(
            f"two logs are given, {said[0]} and {said[1]}",
            hint="give one: a directory as the first argument or with --data, or --url",
            code=ExitCode.USAGE,
        )
    return said[0] if said else None, given[is_first:]


def _is_place(word: str) -> bool:
    return "/" in word or os.path.isdir(word)


def default_log() -> str:
    """`quorate-data` in the working directory; raises `CommandError` if there is none."""
    if not DEFAULT_DATA.is_dir():
        raise CommandError(
            f"there is no directory {DEFAULT_DATA} here",
            hint="give the log's directory as the first argument or with --data",
            code=ExitCode.UNREADABLE,
        )
    return str(DEFAULT_DATA)


def files_only(words: Sequence[str] | None, data: str | None, name: str) -> list[str]:
    """The given directories, or the default one; refuses a running cluster: the bytes on disk matter."""
    given = [*(words or ()), *([data] if data is not None else [])]
    if any(word.startswith(SCHEMES) for word in given):
        raise CommandError(
            f"{name} reads files, not a running cluster: it reads every byte that is on disk",
            hint="give the nodes' data directories, which may be in use, or copies of them",
            code=ExitCode.USAGE,
        )
    return given or [default_log()]


def one_directory(words: Sequence[str] | None, data: str | None, name: str) -> str:
    """The given directory, or the default one; otherwise as `files_only`."""
    directory, *more = files_only(words, data, name)
    if more:
        raise CommandError(
            f"{name} takes one directory, got {' '.join((directory, *more))}",
            hint="`quorate log compare` takes several",
            code=ExitCode.USAGE,
        )
    return directory


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
    follow: bool = False,
) -> LogWindow:
    """The window between two moments as typed; a clock time at the end is taken after the begin.

    Raises `CommandError` (unreadable) if the whole window is outside of the log, unless ``follow`` waits for
    what comes.

    Its notes say which day a clock was taken to be of, and what of the window lies outside of the log. With
    ``any_shard`` an index stands for itself in every shard, and the answer goes on behind damage.
    """
    from history.moments import LogWindow

    if begin is None and end is None:
        return LogWindow()
    clocks = _Clocks(log, utc=utc, shard=_shard_of(log, group, shard))
    is_free = any_shard or group is not None or shard is not None
    first = clocks.place(begin, is_free=is_free or begin == OLDEST)
    last = clocks.place(end, after_ms=first[1], is_free=is_free or end == OLDEST)
    for one, other in zip(first, last, strict=True):
        if one is not None and other is not None and one > other:
            raise CommandError(
                f"{end} is before {begin}: the window would end before it begins", code=ExitCode.USAGE
            )
    notes = clocks.notes(first[1], last[1], is_cut=not any_shard)
    if not follow and clocks.are_outside(first[1], last[1], is_cut=not any_shard):
        raise CommandError("; ".join(notes), hint="give other --since and --until", code=ExitCode.UNREADABLE)
    return LogWindow.between(first, last, notes)


def moment(
    log: NodeLog, text: str | None, *, utc: bool, group: str | None = None, shard: int | None = None
) -> tuple[Place, tuple[str, ...]]:
    """A point in time as typed, and notes as those of `window`; (None, None) for None."""
    if text is None:
        return (None, None), ()
    clocks = _Clocks(log, utc=utc, shard=_shard_of(log, group, shard))
    place = clocks.place(text, is_free=group is not None or shard is not None)
    return place, clocks.notes_at(place[1])


def _shard_of(log: NodeLog, group: str | None, shard: int | None) -> int | None:
    if shard is None and group is not None:
        return read_log(log.path, lambda: log.shard_of_group(group))
    return shard


class _Clocks:
    """Parses the moments of one command against a log, or against one shard of it.

    A clock time and ``end-5m`` are relative to the last entry, ``2h`` to now.
    """

    def __init__(self, log: NodeLog, *, utc: bool, shard: int | None) -> None:
        self._log = log
        self._shard = shard
        self._style = style_of(utc)
        self._found: Extent | None = None
        self._taken: list[str] = []

    @property
    def _extent(self) -> Extent:
        from history.reading.extent import extent_of

        if self._found is None:
            self._found = read_log(self._log.path, lambda: extent_of(self._log, self._shard))
        return self._found

    def place(self, text: str | None, *, is_free: bool, after_ms: int | None = None) -> Place:
        """Parse a moment into (index, epoch ms), at most one of them set.

        An index belongs to one shard: unless ``is_free``, it is refused.
        """
        if text is None:
            return None, None
        from history.moments import parse_moment

        parsed = usage(lambda typed: parse_moment(typed, self._style), text)
        if (parsed.index is not None or parsed.is_start) and not is_free:
            raise CommandError(
                f"{text} is an index, and each shard has its own indexes",
                hint="give a group or a time",
                code=ExitCode.USAGE,
            )
        if parsed.index is not None or parsed.time_ms is not None:
            return parsed.index, parsed.time_ms
        found = parsed.resolved(
            now_ms=int(time.time() * 1000),
            begin_ms=self._extent.first_ms,
            end_ms=self._extent.last_ms,
            after_ms=after_ms,
            style=self._style,
        )
        if parsed.clock_ms is not None and found[1] is not None:
            shown, end = self._style.full(found[1]), self._style.full(self._extent.last_ms)
            if shown[:10] != end[:10]:
                self._taken.append(f"{text} was taken as {shown}; the log ends at {end}")
        return found

    def notes(self, begin_ms: int | None, end_ms: int | None, *, is_cut: bool) -> tuple[str, ...]:
        """Notes on how clocks were understood, and on the part of a window that lies outside of the log.

        ``is_cut``: the answer ends where damage cuts the log.
        """
        if begin_ms is None and end_ms is None:
            return ()
        if self._extent.cuts and not is_cut:
            return tuple(self._taken)
        return (*self._taken, *self._extent.outside(begin_ms, end_ms, self._style))

    def are_outside(self, begin_ms: int | None, end_ms: int | None, *, is_cut: bool) -> bool:
        """Whether the log holds nothing of a window; ``is_cut`` as in `notes`."""
        if (begin_ms is None and end_ms is None) or self._extent.last_ms < 0:
            return False
        return (is_cut or not self._extent.cuts) and self._extent.is_outside(begin_ms, end_ms)

    def notes_at(self, at_ms: int | None) -> tuple[str, ...]:
        """The same for a moment: what its clock was taken as, and damage that hides it."""
        return () if at_ms is None else (*self._taken, *self._extent.damage(at_ms, self._style))
