"""The newest entries of a log, held back and given again in batches: what a run finds new the next time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

from history.reading.opening import open_node


def hold_back(path: str, entries: int, batches: int) -> Iterator[int]:
    """Cut the newest entries off a log at once; give back `entries` of them at each step, `batches` times.

    The entries are of all group shards alike and must be in their open segments. Yields how many entries a
    batch has. Raises `ValueError` if there are not enough.
    """
    log = open_node(path)
    shards = [shard for shard in log.shards if shard >= 0]
    each = entries // len(shards)
    parts: list[list[tuple[Path, bytes]]] = [[] for _ in range(batches)]
    for shard in shards:
        frames = list(deque(log.reader(shard).frames(), maxlen=each * batches))
        file = Path(frames[0].file)
        data = file.read_bytes()
        if len(frames) != each * batches or {frame.file for frame in frames} != {frames[0].file}:
            raise ValueError(f"shard {shard} has fewer than {each * batches} entries in its open segment")
        starts = [frame.offset for frame in frames[::each]]
        for part, start, end in zip(parts, starts, [*starts[1:], len(data)], strict=True):
            part.append((file, data[start:end]))
        with file.open("r+b") as opened:
            opened.truncate(starts[0])
    return _given_back(parts, each * len(shards))


def _given_back(parts: list[list[tuple[Path, bytes]]], entries: int) -> Iterator[int]:
    for part in parts:
        for file, data in part:
            with file.open("ab") as opened:
                opened.write(data)
        yield entries
