"""Three nodes' directories that change as a cluster changes them: appended, cut, sealed, archived, replaced.

A small model of Raft decides the possible changes, so that entries which a reader takes for decided stay
decided. The files are made by the log's own code.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from raftlog.env.files import OsFiles, join
from raftlog.env.settings import CHAIN_STRIDE
from raftlog.storage.archive import ARCHIVE, apply_retention, archive_segments
from raftlog.storage.directory import NodeIdentity, format_node, shard_name
from raftlog.storage.frames import encode_frame
from raftlog.storage.hash_chain import GENESIS
from raftlog.storage.index_build import build_index
from raftlog.storage.sealed_index import Sealed
from raftlog.storage.segments import LogIdentity, create_segment, first_indexes, index_name, log_name
from records import Cause, Trigger, encode_entry, encode_record
from tests.support.memory_log import NOON_MS, commit

SHARD = 0
FILES = OsFiles()


@dataclass
class Disk:
    """One node's directory and the entries in it: (term, frame), entry 1 first."""

    path: str
    node_id: int
    voters: tuple[int, ...]
    entries: list[tuple[int, bytes]] = field(default_factory=list)
    commit_index: int = 0
    sealed: list[Sealed] = field(default_factory=list)

    def format(self) -> None:
        identity = NodeIdentity(
            cluster_id="test",
            node_id=self.node_id,
            incarnation=f"disk-{self.node_id}",
            num_shards=1,
            voters=self.voters,
        )
        format_node(FILES, self.path, identity)

    @property
    def home(self) -> str:
        return join(self.path, shard_name(SHARD))

    @property
    def live(self) -> list[int]:
        return first_indexes(FILES.listdir(self.home))

    def append(self, entries: list[tuple[int, bytes]]) -> None:
        for term, frame in entries:
            with Path(self.home, log_name(self.live[-1])).open("ab") as file:
                file.write(frame)
            self.entries.append((term, frame))

    def truncate_after(self, index: int) -> None:
        """Truncate as `raftlog.storage.journal` does: remove newer segments and cut the last one in place."""
        while self.live[-1] > index + 1:
            Path(self.home, log_name(self.live[-1])).unlink()
        lost = sum(len(frame) for _, frame in self.entries[index:] if index >= self.live[-1] - 1)
        path = Path(self.home, log_name(self.live[-1]))
        behind = sum(len(frame) for _, frame in self.entries[self.live[-1] - 1 :])
        begin = path.stat().st_size - behind
        keep = sum(len(frame) for _, frame in self.entries[self.live[-1] - 1 : index])
        assert lost == behind - keep
        with path.open("r+b") as file:
            file.truncate(begin + keep)
        del self.entries[index:]

    def cut(self) -> None:
        """Begin a new segment if possible: only at the end of a stride of the hash chain."""
        end = len(self.entries)
        if end % CHAIN_STRIDE == 0 and end >= self.live[-1]:
            create_segment(
                FILES, self.home, LogIdentity(cluster_id="test", shard=SHARD, num_shards=1), end + 1
            )

    def seal(self) -> None:
        """Index the segments whose every entry is committed."""
        for first, following in zip(self.live, self.live[1:], strict=False):
            path = Path(self.home, log_name(first))
            if following - 1 <= self.commit_index and not Path(self.home, index_name(first)).exists():
                before = self.sealed[-1].chain_after if self.sealed else GENESIS
                sealed, data = build_index(path.read_bytes(), str(path), before)
                Path(self.home, index_name(first)).write_bytes(data)
                self.sealed.append(sealed)

    def archive(self) -> None:
        archive_segments(FILES, self.home, self.sealed)

    def forget(self, keep: int) -> None:
        """Apply retention: at most `keep` bytes of the archive remain."""
        apply_retention(FILES, self.home, keep, -1, NOON_MS)


@dataclass
class Growing:
    """The folder of a cluster. No step loses a committed entry."""

    folder: Path
    num_nodes: int = 3
    seed: int = 0
    term: int = 1
    now_ms: int = NOON_MS

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        voters = tuple(range(1, self.num_nodes + 1)) if self.num_nodes > 1 else ()
        nodes = range(1, self.num_nodes + 1)
        self.disks = [Disk(str(self.folder / f"node-{node}"), node, voters) for node in nodes]
        for disk in self.disks:
            disk.format()
        self.leader = self.disks[0]

    def write(self, count: int) -> None:
        """Append entries on the leader."""
        for _ in range(count):
            index = len(self.leader.entries) + 1
            self.now_ms += 10
            body = encode_entry(
                Cause(trigger=Trigger.OFFSETS_COMMITTED), [encode_record(commit(index % 4, index))]
            )
            frame = encode_frame(index, self.term, self.leader.commit_index, self.now_ms, 1, body)
            self.leader.append([(self.term, frame)])

    def replicate(self, disk: Disk, count: int = 1 << 30) -> None:
        """Copy entries from the leader to a follower, which first truncates conflicting ones."""
        if disk is self.leader:
            return
        common = 0
        for ours, theirs in zip(disk.entries, self.leader.entries, strict=False):
            if ours[0] != theirs[0]:
                break
            common += 1
        if common < len(disk.entries) and common < len(self.leader.entries):
            disk.truncate_after(common)
        if common == len(disk.entries):
            disk.append(self.leader.entries[common : common + count])
        disk.commit_index = max(disk.commit_index, min(self.leader.commit_index, len(disk.entries)))

    def commit(self) -> None:
        """Advance the leader's commit index to what a quorum holds; only entries of its own term count."""
        for index in range(len(self.leader.entries), self.leader.commit_index, -1):
            term = self.leader.entries[index - 1][0]
            if term != self.term:
                return
            holders = [one for one in self.disks if one.entries[index - 1 : index] and self._same(one, index)]
            if len(holders) * 2 > len(self.disks):
                self.leader.commit_index = index
                return

    def elect(self) -> None:
        """Elect a node whose log is at least as new as those of a majority; it opens the next term."""
        able = []
        for one in self.disks:
            voters = [other for other in self.disks if _end(other) <= _end(one)]
            if len(voters) * 2 > len(self.disks):
                able.append(one)
        self.leader = self.rng.choice(able)
        self.term += 1
        self.write(1)

    def step(self) -> str:
        """Do one random thing and return its name."""
        disk = self.rng.choice(self.disks)
        steps: dict[str, Callable[[], None]] = {
            "write": lambda: self.write(self.rng.randint(1, 20)),
            "replicate": lambda: self.replicate(disk, self.rng.randint(1, 40)),
            "commit": self.commit,
            "elect": self.elect,
            "cut": disk.cut,
            "seal": disk.seal,
            "archive": disk.archive,
            "align": self.align,
        }
        name = self.rng.choices(list(steps), weights=[8, 12, 6, 2, 6, 3, 2, 3])[0]
        steps[name]()
        return name

    def align(self) -> None:
        """Extend all nodes to the next possible end of a segment, and begin a new one there."""
        self.write(CHAIN_STRIDE - len(self.leader.entries) % CHAIN_STRIDE)
        for disk in self.disks:
            self.replicate(disk)
            disk.cut()

    def settle(self) -> None:
        """Commit everything, and bring every follower's commit index up to date."""
        self.write(1)
        for disk in self.disks:
            self.replicate(disk)
        self.commit()
        for disk in self.disks:
            self.replicate(disk)

    def replace(self, disk: Disk, at: str) -> None:
        """Restore a node's directory from a copy."""
        shutil.rmtree(disk.path)
        shutil.copytree(at, disk.path)

    def _same(self, disk: Disk, index: int) -> bool:
        return disk.entries[index - 1][0] == self.leader.entries[index - 1][0]


def _end(disk: Disk) -> tuple[int, int]:
    return (disk.entries[-1][0], len(disk.entries)) if disk.entries else (0, 0)


def archived(disk: Disk) -> list[int]:
    """Return the first indexes of the segments in a node's archive."""
    return first_indexes(FILES.listdir(join(disk.home, ARCHIVE)))
