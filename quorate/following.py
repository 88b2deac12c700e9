"""`--follow`: newly committed entries of a running cluster, or of files that are being written.

A cluster is followed with long polls that survive its nodes (`LiveShard.follow`); files are polled. Either
way each entry is yielded once, in order, as soon as it is known to be committed. The invariant: following can
be stopped at any time (Ctrl-C, a closed pipe), and waits without using a core.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator, Mapping

from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.reading.source import LogGap, NothingToRead, Walk
from quorate.livelog import FOLLOW_WAIT_MS, LiveLog, LiveShard
from raftlog.env.errors import Damaged
from raftlog.env.object_stores import is_store
from raftlog.storage.frames import Frame

POLL_S = 0.25
"""Seconds between polls of files, or of several shards of a cluster: prompt enough for a human reader."""

POLL_COST = 4
"""After a slow poll, wait this many times as long as it took: at most a fifth of a core."""

GONE_S_MAX = 30.0
"""Seconds after which unreadable files count as gone: a node that restarts takes less."""

Item = Frame | LogGap


def followed(log: NodeLog, firsts: Mapping[int, int]) -> Iterator[tuple[int, Item] | None]:
    """Yield (shard, entry or gap) from the given indexes on, without end; ``firsts``: shard -> index.

    Yields ``None`` whenever nothing is new. Raises `NothingToRead` or `Damaged` if the log can no longer be
    read.
    """
    is_live = isinstance(log, LiveLog)
    if not is_live and is_store(log.path):
        raise NothingToRead(
            f"{log.path} cannot be followed: a store holds what was shipped to it; follow the running cluster"
            " (--url) or a node's local directory"
        )
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


def _removed(first: int, goes_on: int) -> LogGap:
    what = f"entries {first} to {goes_on - 1} are not kept here"
    return LogGap(after_index=first - 1, bridged_by=None, goes_on_at=goes_on, file="", offset=0, what=what)


def _of_files(path: str, shard: int, first: int) -> Iterator[Item | None]:
    """Yield committed entries from files, which are reopened whenever they have changed.

    Each time, the decided index and the most advanced node may be new.
    Damage is reported if the second look still finds it: files move while a node works.
    """
    seen: object = None
    doubted: LogGap | None = None
    read_s = time.monotonic()
    while True:
        try:
            looks = _looks(path)
            if looks != seen or doubted is not None:
                walk = Walk(shard, open_node(path).reader(shard), from_index=first, stateless=True)
                before, doubted = doubted, None
                for item in walk:
                    if isinstance(item, LogGap):
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
    """A value that changes with every write: names, sizes and times of all files."""
    return sorted(
        (entry.path, status.st_size, status.st_mtime_ns)
        for folder, _, _ in os.walk(path)
        for entry in os.scandir(folder)
        if entry.is_file() and (status := entry.stat())
    )


def stop_if_nobody_reads() -> None:
    """Raise BrokenPipeError if the reader of our output has gone, even while there is nothing to print."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return  # no descriptor: the output is kept in memory
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        raise BrokenPipeError


class NewLines:
    """The new lines of a text that is produced again and again as it grows.

    The text comes in blocks, each known by its first line, the head, below which the new lines are repeated.
    """

    def __init__(self) -> None:
        self._told: dict[str, set[str]] = {}
        self._newest = ""

    def of(self, block: list[str]) -> list[str]:
        """The new lines of a block, below its head unless the block was the last one."""
        if not block:
            return []
        head = block[0]
        told = self._told.setdefault(head, set())
        fresh = [line for line in block if line not in told]
        if fresh and self._newest != head and head in told:
            fresh.insert(0, head)
        told.update(fresh)
        self._newest = head if fresh else self._newest
        return fresh
