"""Every offset commit that the log holds: the proof behind an acknowledgement.

A commit that was acknowledged to a client must be found here, whatever was killed in between. All entries are
read in order, including archived ones. The snapshot is not read, since it only holds the last commit of each
key. Where entries are missing the rest is still read, because each commit stands on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.reading.source import Walk
from raftlog.storage.frames import Frame
from records import OffsetCommitKey, OffsetCommitValue, RecordType, decode_key, decode_value, iter_records
from records.ids import METADATA_SHARD

Key = tuple[str, str, int]
"""Group id, topic, partition."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of one partition, and where and when it was written; ``offset`` -1: it was deleted."""

    offset: int
    index: int
    timestamp_ms: int


def iter_commits(node: NodeLog, groups: Iterable[str] | None = None) -> Iterator[tuple[Key, Commit]]:
    """All commits of all shards (or of some groups), each shard in the order of its log."""
    wanted = None if groups is None else set(groups)
    for shard in node.shards:
        if shard != METADATA_SHARD:
            known: dict[bytes, Key | None] = {}
            for item in Walk(shard, node.reader(shard), stateless=True):
                if isinstance(item, Frame):
                    yield from _commits_in(item, wanted, known)


def _commits_in(
    frame: Frame, wanted: set[str] | None, known: dict[bytes, Key | None]
) -> Iterator[tuple[Key, Commit]]:
    """The commits of one entry; ``known`` caches decoded keys (``None``: not wanted)."""
    for raw in iter_records(frame.body):
        if raw.type != RecordType.OFFSET_COMMIT:
            continue
        if raw.key not in known:
            decoded = decode_key(raw)
            assert isinstance(decoded, OffsetCommitKey)
            is_wanted = wanted is None or decoded.group_id in wanted
            known[raw.key] = (decoded.group_id, decoded.topic, decoded.partition) if is_wanted else None
        key = known[raw.key]
        if key is not None:
            value = decode_value(raw)
            offset = value.offset if isinstance(value, OffsetCommitValue) else -1
            yield key, Commit(offset, frame.index, frame.timestamp_ms)


def commits(path: str | NodeLog, groups: Iterable[str] | None = None) -> dict[Key, list[Commit]]:
    """All commits by group, topic and partition, in the order of the log."""
    found: dict[Key, list[Commit]] = {}
    for key, commit in iter_commits(open_node(path), groups):
        found.setdefault(key, []).append(commit)
    return found


def missing_commits(path: str, acknowledged: Iterable[tuple[Key, int]]) -> list[tuple[Key, int]]:
    """The acknowledged (key, offset) pairs that are not in the log, in their order; [] is the proof."""
    asked: Sequence[tuple[Key, int]] = list(acknowledged)
    written = {
        (key, commit.offset) for key, commit in iter_commits(open_node(path), {key[0] for key, _ in asked})
    }
    return [one for one in asked if one not in written]
