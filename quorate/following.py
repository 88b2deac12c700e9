"""`--follow`: what is committed from here on, as it comes, of a running cluster or of files that are written.

A cluster is asked by long polls and outlives its nodes (`LiveShard.follow`); files are looked at again and
again.  Either way an entry is told once it is known to be committed, in order, each once.  What must stay
true: whoever follows can be stopped at any time (Ctrl-C, a closed pipe), and waits without burning a core.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping

from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.reading.source import Gap, NothingToRead, Walk
from quorate.livelog import FOLLOW_WAIT_MS, LiveLog, LiveShard
from raftlog.errors import Damaged
from raftlog.frames import Frame

POLL_S = 0.25
"""How often files are looked at, and several shards of a cluster asked: soon enough for an eye."""

POLL_COST = 4
"""After a look that took long, this many times as long is waited: at most a fifth of a core."""

GONE_S_MAX = 30.0
"""Files that cannot be read for so long do not come back: a node that restarts takes less."""

Item = Frame | Gap


def followed(log: NodeLog, firsts: Mapping[int, int]) -> Iterator[tuple[int, Item] | None]:
    """(shard, entry or gap) for each entry from the given indexes on, for ever; ``firsts``: shard -> index.

    ``None`` whenever there is nothing new for the moment. Raises `NothingToRead` or `Damaged` when the log
    cannot be read any more.
    """
    is_live = isinstance(log, LiveLog)
    wait_ms = FOLLOW_WAIT_MS if len(firsts) == 1 else 0
    sources = {
        shard: _of_cluster(log, shard, first, wait_ms) if is_live else _of_files(log.path, shard, first)
        for shard, first in firsts.items()
    }
    while True:
        began_s = time.monotonic()
        for shard, source in sources.items():
            for item in source:
                if item is None:
                    break
                yield shard, item
        yield None
        stop_if_nobody_reads()
        if not is_live or not wait_ms:
            time.sleep(max(POLL_S, POLL_COST * (time.monotonic() - began_s)))


def _of_cluster(log: NodeLog, shard: int, first: int, wait_ms: int) -> Iterator[Item | None]:
    reader = log.reader(shard)
    assert isinstance(reader, LiveShard)
    for frame in reader.follow(first, wait_ms):
        if frame is not None and frame.index != first:
            yield _removed(first, frame.index)
        yield frame
        first = first if frame is None else frame.index + 1


def _removed(first: int, goes_on: int) -> Gap:
    what = f"entries {first} to {goes_on - 1} are not kept here"
    return Gap(after_index=first - 1, bridged_by=None, goes_on_at=goes_on, file="", offset=0, what=what)


def _of_files(path: str, shard: int, first: int) -> Iterator[Item | None]:
    """Opens the files anew whenever they have changed: what is decided, and who is furthest, may be new.

    Damage is told when it is still there at the second look: files move while a node works.
    """
    seen: object = None
    doubted: Gap | None = None
    read_s = time.monotonic()
    while True:
        try:
            looks = _looks(path)
            if looks != seen or doubted is not None:
                walk = Walk(shard, open_node(path).reader(shard), from_index=first, stateless=True)
                before, doubted = doubted, None
                for item in walk:
                    if isinstance(item, Gap):
                        if item != before:
                            doubted = item
                            break
                        yield item
                        first = item.goes_on_at or first
                    elif isinstance(item, Frame):
                        yield item
                        first = item.index + 1
                seen = looks
            read_s = time.monotonic()
        except (OSError, NothingToRead, Damaged):
            if time.monotonic() - read_s > GONE_S_MAX:
                raise
        yield None


def _looks(path: str) -> object:
    """What changes when something is written: names, sizes and times of all files."""
    return sorted(
        (entry.path, status.st_size, status.st_mtime_ns)
        for folder, _, _ in os.walk(path)
        for entry in os.scandir(folder)
        if entry.is_file() and (status := entry.stat())
    )


def stop_if_nobody_reads() -> None:
    """Raises BrokenPipeError when the reader of our output has gone, though there is nothing to say."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return  # no descriptor: the output is kept in memory
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        raise BrokenPipeError


class NewLines:
    """Of a text that is told again and again as it grows, the lines that were not there before.

    The text comes in blocks, each with a key; a block that has new lines is printed from its first line, its
    head, and then those.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._told: dict[object, set[str]] = {}
        self._newest: object = None

    def tell(self, key: object, lines: list[str]) -> None:
        """Prints what is new of a block."""
        told = self._told.setdefault(key, set())
        fresh = [line for line in lines if line not in told]
        if fresh:
            head = [lines[0]] if self._newest != key and lines[0] in told else []
            for line in (*head, *fresh):
                self._show(line)
            told.update(fresh)
            self._newest = key
