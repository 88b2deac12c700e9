"""The directories of a cluster, given one by one or by their parent, and whether they belong together.

A launcher keeps the nodes of one machine as `node-1`, `node-2`, … in one folder. Giving that folder means all
of them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from raftlog.env.files import Files, join
from raftlog.env.object_stores import is_store
from raftlog.offline.reader import Damaged, read_identity, shards
from raftlog.storage.directory import NODE_FILE

from .node import NodeLog, open_one, place_of
from .source import NothingToRead

_MEMBER_NAME = re.compile(r"node-(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDirectory:
    """One node's directory and the identity in its node file; ``None`` where that is unknown."""

    path: str
    name: str
    """``node 2``, followed by the path if two directories belong to the same node."""
    node_id: int | None
    cluster_id: str | None
    num_shards: int | None
    voters: tuple[int, ...]
    """Ids of all nodes of the cluster; () for a cluster of one."""

    def counted_as(self, place: int) -> int:
        """The node id for counting votes, or a unique negative number if it is unknown."""
        return -1 - place if self.node_id is None else self.node_id


def node_directories(path: str) -> list[str]:
    """The node directories that ``path`` stands for: itself, or the `node-N` folders in it, by number."""
    path, files = place_of(path)
    return _node_directories(path, files)


def _node_directories(path: str, files: Files) -> list[str]:
    if not files.is_dir(path) or files.exists(join(path, NODE_FILE)) or shards(path, files):
        return [path]
    found = sorted(
        (int(match[1]), join(path, name))
        for name in files.listdir(path)
        if (match := _MEMBER_NAME.fullmatch(name)) and files.is_dir(join(path, name))
    )
    return [child for _, child in found] or [path]


def open_members(paths: Sequence[str], files: Files | None = None) -> list[tuple[MemberDirectory, NodeLog]]:
    """Open the directories of nodes, from ``files`` if they are given.

    Raises `NothingToRead` if one holds no node or is given twice.
    """
    places = [place_of(path) if files is None else (path, files) for path in paths]
    given = [(child, view) for path, view in places for child in _node_directories(path, view)]
    twice = [path for path, count in Counter(_real(child) for child, _ in given).items() if count > 1]
    if twice:
        raise NothingToRead(f"{twice[0]} is given twice: give each node's directory once")
    opened = [(path, open_one(path, view)) for path, view in given]
    said = [_identity(path, view) for path, view in given]
    ids = Counter(one[0] for one in said)
    return [
        (_member(path, *one, is_alone=one[0] is not None and ids[one[0]] == 1), log)
        for (path, log), one in zip(opened, said, strict=True)
    ]


_Said = tuple[int | None, str | None, int | None, tuple[int, ...]]


def _real(path: str) -> str:
    return path.rstrip("/") if is_store(path) else os.path.realpath(path)


def _identity(path: str, files: Files) -> _Said:
    if not files.exists(join(path, NODE_FILE)):
        return None, None, None, ()
    try:
        identity = read_identity(path, files)
    except Damaged:
        return None, None, None, ()  # `open_one` reports it as a problem of the directory
    return identity.node_id, identity.cluster_id, identity.num_shards, identity.voters


def _member(
    path: str,
    node_id: int | None,
    cluster_id: str | None,
    num_shards: int | None,
    voters: tuple[int, ...],
    *,
    is_alone: bool,
) -> MemberDirectory:
    name = f"node {node_id}" if is_alone else path if node_id is None else f"node {node_id} at {path}"
    return MemberDirectory(
        path=path, name=name, node_id=node_id, cluster_id=cluster_id, num_shards=num_shards, voters=voters
    )


def strangers(members: Sequence[MemberDirectory]) -> Iterator[str]:
    """Reasons why the directories cannot belong to one cluster, in words."""
    said = [member for member in members if member.cluster_id is not None]
    for what, values in (
        ("cluster", [member.cluster_id for member in said]),
        ("number of shards", [member.num_shards for member in said]),
        ("set of voters", [member.voters for member in said]),
    ):
        if len(set(values)) > 1:
            told = (f"{m.name} says {_shown(value)}" for m, value in zip(said, values, strict=True))
            yield f"different {what}: " + ", ".join(told)
    for member in members:
        if member.voters and member.node_id not in member.voters:
            yield f"{member.name} is not among the voters {_shown(member.voters)} of its directory"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "itself alone"
    return str(value)


def num_voters(members: Sequence[MemberDirectory]) -> int:
    """The number of nodes in the cluster; if no directory says it, the number of those given."""
    if all(member.cluster_id is None for member in members):
        return len(members)
    return max((len(member.voters) for member in members), default=0) or 1
