"""Opens what a person names: the directory of one node, or the folder that holds those of a cluster.

Each shard of a cluster is read from the node whose log of it is the furthest ahead, since all hold the same
history (`compare` checks that). What is decided is judged by all directories together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from history.render import sentence_list
from raftlog.env.files import Files
from raftlog.env.object_stores import files_at

from .members import MemberDirectory, node_directories, num_voters, open_members, strangers
from .node import NodeLog, ShardFiles, open_one, place_of
from .quorum import Decided, Tail, decided
from .sidebyside import LogSide, tails_of
from .source import NothingToRead, Reader


class ClusterShard(ShardFiles):
    """The shard's files on the most advanced node; decided is what all nodes together prove."""

    def __init__(
        self,
        member: MemberDirectory,
        shard: int,
        decided_index: int,
        paths: Sequence[str],
        remarks: tuple[str, ...],
        files: Files,
    ) -> None:
        super().__init__(member.path, shard, files)
        self.node = member.name
        self.remarks = remarks
        self._decided_index = decided_index
        self._paths = paths

    def decided_to(self) -> int:
        return self._decided_index

    def evidence(self, group_id: str | None = None) -> list[dict[str, Any]]:
        """The notes of all nodes, since requests are refused by whichever node leads at the time."""
        notes = [
            note
            for path in self._paths
            for note in ShardFiles(path, self.shard, self.files).evidence(group_id)
        ]
        return sorted(notes, key=lambda note: note.get("at_ms", note.get("minute_ms", 0)))


def open_node(path: str | NodeLog) -> NodeLog:
    """Open a node's directory, a copy or part of one, or a folder with a cluster's node-1, node-2, ...

    Never writes to it. A log that is already open, such as a live cluster's, is returned as it is. Raises
    `NothingToRead`, saying what is expected, if there is no shard.
    """
    if isinstance(path, NodeLog):
        return path
    path, files = place_of(path)
    paths = node_directories(path)
    return open_one(path, files) if paths == [path] else _open_cluster(path, paths)


def _open_cluster(path: str, paths: Sequence[str]) -> NodeLog:
    opened = open_members(paths)
    members = [member for member, _ in opened]
    for found in strangers(members):
        raise NothingToRead(f"the nodes in {path} belong to different clusters: {found}; give one of them")
    absent = tuple(_absent(members))
    return NodeLog(
        path=path,
        readers=_Furthest(opened, num_voters(members), paths, absent),
        num_shards=next((m.num_shards for m in members if m.num_shards is not None), None),
        problems=tuple(problem for _, log in opened for problem in log.problems),
        notes=absent,
    )


def _absent(members: Sequence[MemberDirectory]) -> Iterator[str]:
    """The directories that are absent, in words; only they hold their nodes' notes."""
    voters = {voter for member in members for voter in member.voters}
    missing = sorted(voters - {member.node_id for member in members})
    if missing:
        named = sentence_list([f"node {node_id}" for node_id in missing])
        yield f"{named} of {len(voters)} not here, nor the evidence that only {_it(missing)} recorded"


def _it(nodes: Sequence[int]) -> str:
    return "it" if len(nodes) == 1 else "they"


class _Furthest(Mapping[int, Reader]):
    """Readers by shard; the most advanced node is determined on first access, because that reads files."""

    def __init__(
        self,
        opened: Sequence[tuple[MemberDirectory, NodeLog]],
        voters: int,
        paths: Sequence[str],
        remarks: tuple[str, ...],
    ) -> None:
        self._opened = opened
        self._voters = voters
        self._paths = paths
        self._remarks = remarks
        self._shards = sorted({shard for _, log in opened for shard in log.shards})
        self._known: dict[int, Reader] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._shards)

    def __len__(self) -> int:
        return len(self._shards)

    def __getitem__(self, shard: int) -> Reader:
        if shard not in self._shards:
            raise KeyError(shard)
        if shard not in self._known:
            holders = [(at, member) for at, (member, log) in enumerate(self._opened) if shard in log.readers]
            self._known[shard] = self._furthest(shard, holders)
        return self._known[shard]

    def _furthest(self, shard: int, holders: Sequence[tuple[int, MemberDirectory]]) -> ClusterShard:
        readers = [ShardFiles(member.path, shard, files_at(member.path)) for _, member in holders]
        sides = [
            LogSide(member.name, member.counted_as(place), reader)
            for (place, member), reader in zip(holders, readers, strict=True)
        ]
        tails = tails_of(sides, self._voters)
        proven = decided(tails, self._voters)
        best = max(range(len(sides)), key=lambda at: _rank(sides[at], tails[at], proven, at))
        return ClusterShard(
            holders[best][1], shard, proven.index, self._paths, self._remarks, readers[best].files
        )


def _rank(side: LogSide, tail: Tail, proven: Decided, at: int) -> tuple[int, int, int, int]:
    """Sort key: holds what is decided, then least damage, then longest history kept."""
    return (min(proven.known[at], tail.last_index), -len(side.problems), -side.base_index, -at)
