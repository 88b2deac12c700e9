"""Directories of a cluster, written frame by frame; the test decides which node has which entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from raftlog.env.files import OsFiles, join
from raftlog.storage.directory import TERM_FILE, TERM_KIND, NodeIdentity, format_node, shard_name
from raftlog.storage.frames import encode_frame
from raftlog.storage.metafile import write_meta
from raftlog.storage.segments import LogIdentity, create_segment, log_name
from raftlog.transport.boots import BOOTS_FILE
from records import Cause, Record, TermStartKey, TermStartValue, TermWhy, Trigger, encode_entry, encode_record
from tests.support.memory_log import NOON_MS, commit

ALL = (1, 2, 3)


@dataclass
class ThreeLogs:
    """A folder with node-1, node-2, node-3 of one cluster; `entry` appends to the logs of some of them."""

    folder: Path
    voters: tuple[int, ...] = ALL
    num_shards: int = 1
    shard: int = 0
    now_ms: int = NOON_MS
    first: int = 1
    last: dict[int, int] = field(default_factory=dict)
    is_formatted: bool = False
    """The directories exist already, with another shard's entries."""
    terms: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.voters:
            if self.is_formatted:
                self.last[node] = 0
            else:
                self.format(node)

    def format(self, node: int, *, cluster_id: str = "test", path: str | None = None) -> None:
        identity = NodeIdentity(
            cluster_id=cluster_id,
            node_id=node,
            incarnation=f"disk-{node}",
            num_shards=self.num_shards,
            voters=self.voters,
        )
        format_node(OsFiles(), path or self.path(node), identity)
        write_meta(OsFiles(), join(path or self.path(node), BOOTS_FILE), "boots")  # as links to peers do
        self.last[node] = 0

    def path(self, node: int) -> str:
        return str(self.folder / f"node-{node}")

    @property
    def paths(self) -> list[str]:
        return [self.path(node) for node in self.voters]

    def file(self, node: int) -> Path:
        """The newest segment of the shard."""
        return Path(self.path(node), shard_name(self.shard), log_name(self.first))

    def cut(self) -> None:
        """Start a new segment on all nodes, which must have equally many entries."""
        (last,) = set(self.last.values())
        identity = LogIdentity(cluster_id="test", shard=self.shard, num_shards=self.num_shards)
        for node in self.voters:
            create_segment(OsFiles(), str(self.file(node).parent), identity, last + 1)
        self.first = last + 1

    def after(self, span_ms: int) -> ThreeLogs:
        self.now_ms += span_ms
        return self

    def entry(
        self,
        *nodes: int,
        term: int = 1,
        commit_index: int | None = None,
        cause: Cause | None = None,
        records: Sequence[Record] | None = None,
    ) -> int:
        """The next entry of these nodes, which must hold equally many; its index.

        Without a commit index it is the one before, so that the entry is committed by the next.
        """
        nodes = nodes or self.voters
        (before,) = {self.last[node] for node in nodes}
        index = before + 1
        if records is None:
            records = [commit(index % 4, index)]
        body = encode_entry(
            cause or Cause(trigger=Trigger.OFFSETS_COMMITTED), [encode_record(one) for one in records]
        )
        known = before if commit_index is None else commit_index
        frame = encode_frame(index, term, known, self.now_ms, len(records), body)
        for node in nodes:
            with self.file(node).open("ab") as file:
                file.write(frame)
            self.last[node] = index
            if self.terms.get(node) != term:
                home = str(self.file(node).parent)
                write_meta(OsFiles(), join(home, TERM_FILE), TERM_KIND, term, None)
                self.terms[node] = term
        return index

    def opens(
        self,
        leader: int,
        *nodes: int,
        term: int,
        why: TermWhy = TermWhy.EXPIRY,
        previous: int = -1,
        commit_index: int | None = None,
    ) -> int:
        """The first entry of a term."""
        value = TermStartValue(
            term=term,
            node_id=leader,
            why=why,
            previous_leader=previous,
            incarnation=f"disk-{leader}",
            boot_id=f"boot-{leader}",
        )
        return self.entry(
            *nodes,
            term=term,
            commit_index=commit_index,
            cause=Cause(trigger=Trigger.TERM_OPENED),
            records=[Record(TermStartKey(), value)],
        )

    def fill(self, count: int, *nodes: int, term: int = 1, commit_index: int | None = None) -> int:
        """Some entries; the index of the last one."""
        for _ in range(count):
            index = self.after(10).entry(*nodes, term=term, commit_index=commit_index)
        return index
