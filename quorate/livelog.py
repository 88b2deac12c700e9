"""The log of a running cluster for the readers of `history`: over HTTP, from any node.

Only committed entries are read, which all nodes have. A read that loses its node therefore continues at
another, at the same index. Entries arrive as they are on disk and are checked here: their CRCs, their order,
and that the next node holds the same entries as the previous one. Entries that no node can supply are a gap
in the answer, as with files. Evidence is local to the node that led and noted it, so all nodes are asked, and
those that do not answer are named.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import msgpack

from history.reading.node import NodeLog
from history.reading.source import LogGap, NothingToRead, Reader
from history.render import sentence_list
from history.words import shard_name
from quorate.http_client import ANSWER_BYTES_MAX, IN_MEMORY, OK, Answer, Into
from quorate.nodes import GONE, Nodes, Unheard
from raftlog.env.errors import Corrupt, Damaged, Problem
from raftlog.env.files import OsFiles
from raftlog.env.state_machine import SnapshotHeader
from raftlog.offline.reader import Snapshot
from raftlog.storage.evidence import is_note
from raftlog.storage.frames import Frame, frames_in
from raftlog.storage.snapshot_install import SNAPSHOT_BYTES_MAX
from raftlog.storage.snapshots import SnapshotFile
from records import METADATA_SHARD

TIMEOUT_S = 10.0
"""Seconds without any answer after which a read fails: a failover or a restart takes less."""

PAGE_ENTRIES = 10_000
"""Entries per request; the answer is bounded in bytes as well."""

FOLLOW_WAIT_MS = 2_000
"""Milliseconds to wait for new entries of one node before another is asked: it may be partitioned."""

FOLLOW_TIMEOUT_S = 60.0
"""Seconds without any answer after which following fails: a restart of all nodes takes less."""

ROUNDS_MAX = 2
"""Requests to each node for entries that another one reported as committed."""

EVIDENCE_NOTES = 10_000
"""Limit on notes per node, the newest ones."""

HEADER_BYTES_MAX = 4096
"""Bytes at the start of a snapshot that contain its header."""

BEHIND_ALL = 2**62
"""An index that no log reaches: a request from there on returns no entries, only the commit index."""

COMMIT_INDEX = "Quorate-Commit-Index"
LEFT_OUT = "Quorate-Left-Out"
NOT_FOUND = 404


class LiveShard:
    """`Reader` for one shard of a running cluster."""

    def __init__(self, nodes: Nodes, shard: int) -> None:
        self._nodes = nodes
        self._shard = shard
        self._path = f"/v1/shards/{'metadata' if shard == METADATA_SHARD else shard}"
        self._read_from: list[str] = []
        self._last: tuple[str, Frame] | None = None
        self._is_lost = False
        self._evidence_remarks: tuple[str, ...] = ()

    @property
    def node(self) -> str:
        """The nodes that entries were read from so far."""
        return sentence_list(self._read_from)

    @property
    def remarks(self) -> tuple[str, ...]:
        return (*silent_words(self._nodes), *self._evidence_remarks)

    # Entries

    def frames(self, from_index: int | None = None, to_index: int | None = None) -> Iterator[Frame]:
        """Entries committed by the time of the call, starting at the oldest one that is kept."""
        first = max(1, from_index or 1)
        commit_index, found = self._page(first)
        committed = max(commit_index, self._nodes.commit_index.get(self._shard, 0))
        end = committed if to_index is None else min(committed, to_index)
        while first <= end:
            for frame in found or self._behind(first):
                if frame.index > end:
                    return
                yield frame
                first = frame.index + 1
            if first <= end:
                _, found = self._page(first)

    def _behind(self, first: int) -> list[Frame]:
        """Committed entries from `first` on, from whichever node has them; raises `Damaged`."""
        for _ in range(ROUNDS_MAX * len(self._nodes.urls)):
            self._nodes.rotate()
            if found := self._page(first, FOLLOW_WAIT_MS)[1]:
                return found
        raise Damaged("", 0, f"entry {first} is committed, but no node that responds has it")

    def follow(self, from_index: int, wait_ms: int | None = None) -> Iterator[Frame | None]:
        """Yield committed entries as they come, without end; None whenever there was none for a while.

        Raises `Damaged` if no node answers any more.
        """
        first = from_index
        while True:
            _, found = self._page(first, FOLLOW_WAIT_MS if wait_ms is None else wait_ms, FOLLOW_TIMEOUT_S)
            for frame in found:
                yield frame
                first = frame.index + 1
            if not found:
                self._nodes.rotate()
                yield None

    def last_ms(self) -> int:
        """The timestamp of the newest committed entry; -1: there is none."""
        commit_index, found = self._page(BEHIND_ALL)
        if commit_index:
            _, found = self._page(commit_index)
        return found[-1].timestamp_ms if found else -1

    def _page(self, first: int, wait_ms: int = 0, timeout_s: float | None = None) -> tuple[int, list[Frame]]:
        """(commit index, entries from `first` on), or from the oldest one kept if `first` is not.

        Raises `Damaged` if no node can supply them.
        """
        path = f"{self._path}/log?format=frames&limit={PAGE_ENTRIES}"
        for is_last in (False, True):
            answer = self._ask(f"{path}&from={first}&wait_ms={wait_ms}", wait_ms, timeout_s)
            if answer.status == GONE and answer.first_index > first:
                first = answer.first_index
                answer = self._ask(f"{path}&from={first}", 0, timeout_s)
            if answer.status != OK:
                raise Damaged("", 0, f"{self._nodes.name(answer.node)} answers: {answer.words}")
            try:
                found = frames_in(answer.body)
                self._check(answer.node, found, first)
            except Corrupt as damage:
                if is_last:
                    raise Damaged("", 0, f"{self._nodes.name(answer.node)} sent {damage.what}") from None
                self._nodes.rotate()
                continue
            commit_index = answer.number(COMMIT_INDEX)
            if commit_index is None:
                raise Damaged("", 0, f"{self._nodes.name(answer.node)} does not report its commit index")
            self._note(answer.node, found)
            return commit_index, found
        raise AssertionError("the second round returns or raises")

    def _check(self, node: str, found: Sequence[Frame], first: int) -> None:
        """Check that indexes are dense, terms rise, and a new node agrees with the previous one.

        Raises Corrupt.
        """
        last = self._last if self._last is not None and self._last[1].index == first - 1 else None
        expected, term = first, 0 if last is None else last[1].term
        for frame in found:
            if frame.index != expected or frame.term < term:
                raise Corrupt("", 0, f"entry {frame.index} of term {frame.term} where {expected} should be")
            expected, term = frame.index + 1, frame.term
        if not found or last is None or last[0] == node:
            return
        answer = self._ask(f"{self._path}/log?format=frames&limit=1&from={last[1].index}")
        again = frames_in(answer.body) if answer.status == OK else []
        if again and again[0].encode() != last[1].encode():
            raise Corrupt("", 0, f"entry {last[1].index} differently than {self._nodes.name(last[0])}")

    def _note(self, node: str, found: Sequence[Frame]) -> None:
        name = self._nodes.name(node)
        if found and name not in self._read_from:
            self._read_from.append(name)
        for frame in found:
            frame.file = f"{name}, {shard_name(self._shard)}"
        if found:
            self._last = node, found[-1]

    def _ask(
        self, path: str, wait_ms: int = 0, timeout_s: float | None = None, into: Into = IN_MEMORY
    ) -> Answer:
        try:
            return self._nodes.ask(path, wait_ms=wait_ms, timeout_s=timeout_s, into=into)
        except Unheard as unheard:
            self._is_lost = True
            raise Damaged("", 0, unheard.message) from unheard

    def next_readable(self, missing: int) -> int | None:
        """The first entry kept after a missing one; None if reading cannot continue."""
        if self._is_lost:
            return None
        answer = self._ask(f"{self._path}/log?format=frames&limit=1&from={missing}")
        return answer.first_index if answer.status == GONE and answer.first_index > missing else None

    # Snapshots

    def snapshots(self) -> Sequence[SnapshotHeader]:
        """The header of the newest snapshot, if there is one."""
        try:
            with self._snapshot_file(HEADER_BYTES_MAX) as file:
                return () if file is None else (file.header,)
        except Damaged:
            return ()

    def snapshot(self, last_index: int | None = None) -> Snapshot | None:
        """The newest snapshot, if it is the requested one; raises `Damaged`."""
        with self._snapshot_file(SNAPSHOT_BYTES_MAX) as file:
            if file is None or last_index not in (None, file.header.last_index):
                return None
            return Snapshot(header=file.header, records=[raw for _, block in file.blocks() for raw in block])

    @contextmanager
    def _snapshot_file(self, bytes_max: int) -> Iterator[SnapshotFile | None]:
        """The first bytes of the newest snapshot as a file; None if there is none. Raises `Damaged`."""
        if self._is_lost:
            yield None
            return
        with tempfile.NamedTemporaryFile(prefix="quorate-snapshot-") as copy:
            answer = self._ask(f"{self._path}/snapshot", into=Into(copy.file, bytes_max))
            if answer.status == NOT_FOUND:
                yield None
                return
            if answer.status != OK:
                raise Damaged("", 0, f"{self._nodes.name(answer.node)} answers: {answer.words}")
            file = SnapshotFile(OsFiles(), copy.name)
            try:
                yield file
            finally:
                file.close()

    def verify(self) -> list[Problem]:
        raise NothingToRead("a running cluster cannot be verified over HTTP: give the nodes' directories")

    def evidence(self, group_id: str | None = None) -> list[dict[str, Any]]:
        """The notes of all nodes that answer; the others are named in `remarks`."""
        about = "" if group_id is None else f"&group={quote(group_id, safe='')}"
        notes: list[dict[str, Any]] = []
        remarks: list[str] = []
        answers = self._nodes.ask_each(f"/v1/evidence?format=msgpack&limit={EVIDENCE_NOTES}{about}")
        for url, answer in answers.items():
            name = self._nodes.name(url)
            if isinstance(answer, str):
                if url in self._nodes.ids:  # otherwise it is among the silent nodes
                    remarks.append(f"{name} does not return its evidence ({answer})")
                continue
            found = _notes_in(answer.body)
            if found is None:
                remarks.append(f"the evidence of {name} cannot be read")
            notes.extend(found or ())
            if left_out := answer.number(LEFT_OUT):
                remarks.append(f"{left_out} older notes of {name} are left out")
        self._evidence_remarks = tuple(remarks)
        return sorted(notes, key=lambda note: note.get("at_ms", note.get("minute_ms", 0)))


def _notes_in(body: bytes) -> list[dict[str, Any]] | None:
    """The notes in an answer; None if it contains anything else."""
    unpacker = msgpack.Unpacker(max_buffer_size=ANSWER_BYTES_MAX)
    unpacker.feed(body)
    try:
        notes = list(unpacker)
    except (ValueError, msgpack.UnpackException):
        return None
    return notes if all(map(is_note, notes)) else None


def silent_words(nodes: Nodes) -> tuple[str, ...]:
    """Sentences about the nodes that did not answer."""
    return tuple(
        f"node {node_id} does not respond ({why}): its evidence is missing"
        for node_id, why in sorted(nodes.silent.items())
    )


class LiveLog(NodeLog):
    """A running cluster's log, which requests its newest timestamps over HTTP."""

    __slots__ = ()

    def end_of(self, shard: int) -> tuple[int, LogGap | None]:
        reader = self.reader(shard)
        assert isinstance(reader, LiveShard)
        return reader.last_ms(), None


def open_live(urls: str, timeout_s: float = TIMEOUT_S) -> NodeLog:
    """The log of the cluster with nodes at `urls` (several with commas), which name the other nodes.

    Raises `CommandError` if none answers, or if they belong to different clusters.
    """
    nodes = Nodes(urls, timeout_s)
    nodes.meet()
    readers: Mapping[int, Reader] = {shard: LiveShard(nodes, shard) for shard in nodes.shards}
    return LiveLog(
        path=",".join(nodes.urls),
        readers=readers,
        num_shards=sum(shard != METADATA_SHARD for shard in nodes.shards),
        notes=silent_words(nodes),
    )
