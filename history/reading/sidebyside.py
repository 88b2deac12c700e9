"""Several logs of one shard, walked entry by entry in step.

Each `LogSide` is one directory's log: where it begins, its next entry, its hash chain so far, the damage
found. `walk` advances all of them together up to the last decided entry and stops at the first difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from history.render import LOCAL, TimeStyle
from raftlog.env.errors import RESTORE_HINT
from raftlog.env.files import join
from raftlog.env.settings import CHAIN_STRIDE
from raftlog.env.state_machine import SnapshotHeader
from raftlog.offline.reader import Damaged, Problem, ShardReader
from raftlog.storage.archive import ARCHIVE, all_segments, read_manifest, read_segment
from raftlog.storage.directory import is_joining
from raftlog.storage.frames import Frame, frame_at
from raftlog.storage.hash_chain import GENESIS, Chain
from raftlog.storage.segments import decode_header, log_name
from raftlog.storage.snapshot_install import valid_segments
from raftlog.storage.snapshots import SNAPSHOT_FILE, SnapshotFile

from .difference import Difference, difference, same
from .node import ShardFiles
from .quorum import Decided, Tail, TermRun
from .source import LogGap, SnapshotLike, Walk


class LogSide:
    """One directory's log of a shard.

    ``base_index`` is the entry before the first one kept: 0, or a later index if retention removed older
    entries or a snapshot was received from another node. ``head`` is the next entry, ``end`` the last one
    that agrees with the others.
    """

    def __init__(self, node: str, node_id: int, reader: ShardFiles) -> None:
        self.node = node
        self.node_id = node_id
        self.reader = reader
        self.problems: list[Problem] = []
        self.header = self._snapshot_header()
        self._firsts = self._segments()
        snapshot_index = 0 if self.header is None else self.header.last_index
        self.base_index = self._firsts[0] - 1 if self._firsts else snapshot_index
        if snapshot_index + 1 > (self._firsts[-1] if self._firsts else 0):
            path = join(reader.home, log_name(snapshot_index + 1))
            self._note(Damaged(path, 0, "is missing: the log continues there after its snapshot"))
        self._digests = self._known_digests()
        self.chain = self._chain_before(self.base_index + 1)
        self.head: Frame | None = None
        self.end = self.base_index
        self.is_cut = False
        self._newest: Frame | None = None
        self._taken: Frame | None = None
        self._to_index = 0
        self._items: Iterator[Frame | LogGap | SnapshotLike] = iter(())

    def _note(self, damage: Damaged) -> None:
        problem = Problem(
            file=damage.file,
            offset=damage.offset,
            index=None,
            what=damage.what,
            hint=damage.hint or RESTORE_HINT,
        )
        if problem not in self.problems:
            self.problems.append(problem)

    def _segments(self) -> list[int]:
        try:
            return valid_segments(self.reader.files, self.reader.home)
        except Damaged as damage:
            self._note(damage)
            return all_segments(self.reader.files, self.reader.home)

    def _snapshot_header(self) -> SnapshotHeader | None:
        try:
            file = SnapshotFile(self.reader.files, join(self.reader.home, SNAPSHOT_FILE))
        except FileNotFoundError:
            return None
        except Damaged as damage:
            self._note(damage)
            return None
        file.close()
        return file.header

    def _known_digests(self) -> dict[int, bytes]:
        """Index -> hash chain before that entry, where the files give it."""
        digests = {1: GENESIS}
        if self.header is not None:
            digests[self.header.last_index + 1] = self.header.chain_hash
        try:
            manifest = read_manifest(self.reader.files, join(self.reader.home, ARCHIVE))
        except Damaged as damage:
            self._note(damage)
            return digests
        return {one.first_index: one.chain_before for one in manifest.segments} | digests

    def _chain_before(self, index: int) -> Chain | None:
        digest = self._digests.get(index)
        return None if digest is None or (index - 1) % CHAIN_STRIDE else Chain(index - 1, digest)

    # The end of the log, before the walk

    def commit_index(self) -> int:
        """The highest index that these files alone name as committed."""
        try:
            return ShardReader.highest_commit(self.reader)
        except Damaged as damage:
            self._note(damage)
            return self.reader.highest_commit()

    def tail(self, commit_index: int, above: int) -> Tail:
        """The input for the quorum rule, with the runs of terms after index ``above``."""
        runs: list[TermRun] = []
        last: Frame | None = None
        for frame in self._frames_from(above + 1):
            first = runs.pop().first_index if runs and runs[-1].term == frame.term else frame.index
            runs.append(TermRun(first_index=first, last_index=frame.index, term=frame.term))
            last = frame
        last = last or self._last()
        self._newest = last
        ends = (0, 0) if self.header is None else (self.header.last_index, self.header.last_term)
        if last is not None:
            ends = (last.index, last.term)
        return Tail(
            node_id=self.node_id,
            commit_index=commit_index,
            last_index=ends[0],
            last_term=ends[1],
            runs=tuple(runs),
            counts=not is_joining(self.reader.files, self.reader.home),
        )

    def _last(self) -> Frame | None:
        """The newest whole entry; ``None``: the log is empty."""
        for first in reversed(self._firsts):
            last = None
            for frame in self._frames_from(first):
                last = frame
            if last is not None:
                return last
        return None

    @property
    def torn_bytes(self) -> int:
        """Bytes after the last whole frame of the newest segment, left by a crash; call after `walk`."""
        ended_early = self.head is None and not self.is_cut and self.end < self._to_index
        last = self._taken if ended_early else self._newest
        try:
            path, data = read_segment(self.reader.files, self.reader.home, self._last_segment())
            starts = decode_header(data, path).frames_offset
        except Damaged as damage:
            if self._to_index == self.base_index:
                self._note(damage)  # the walk would have reported it, but had nothing to read
            return 0
        at = last.offset + last.size if last is not None and last.file == path else starts
        is_written = frame_at(memoryview(data), at) is not None  # a running node has appended since the walk
        return 0 if is_written else len(data) - at

    def _last_segment(self) -> int:
        return self._firsts[-1] if self._firsts else self.base_index + 1

    def _frames_from(self, index: int) -> Iterator[Frame]:
        walk = Walk(
            self.reader.shard,
            self.reader,
            from_index=max(index, self.base_index + 1),
            stateless=True,
            with_undecided=True,
            torn_is_end=True,
        )
        return (item for item in walk if isinstance(item, Frame))

    # The walk

    def begin(self, decided_index: int) -> None:
        """Move before the oldest entry kept; entries above ``decided_index`` are ignored."""
        walk = Walk(
            self.reader.shard,
            self.reader,
            from_index=self.base_index + 1,
            to_index=decided_index,
            stateless=True,
            with_undecided=True,
            torn_is_end=True,
        )
        self._to_index = decided_index
        self._items = iter(walk)
        self._next()

    def take(self, data: bytes) -> None:
        """Advance past the head, which agrees; ``data`` are its bytes."""
        assert self.head is not None
        index = self.head.index
        if self.chain is None or self.chain.index != index - 1:
            self.chain = self._chain_before(index)
        if self.chain is not None:
            self.chain.add(data, index)
        self.end, self._taken = index, self.head
        self._next()

    def cut(self) -> None:
        """End the walk of this side: from the head on its entries were never decided."""
        self.is_cut = True
        self.head = None
        self._items = iter(())

    def _next(self) -> None:
        for item in self._items:
            if isinstance(item, Frame):
                self.head = item
                return
            assert isinstance(item, LogGap)
            self.problems.append(
                Problem(
                    file=item.file,
                    offset=item.offset,
                    index=item.after_index + 1,
                    what=item.what,
                    hint=RESTORE_HINT,
                )
            )
        self.head = None

    def digest_at(self, index: int) -> str | None:
        """The hash chain in hexadecimal, if it currently stands at ``index``."""
        return self.chain.digest.hex() if self.chain is not None and self.chain.index == index else None


def tails_of(sides: Sequence[LogSide], num_voters: int) -> list[Tail]:
    """The end of each log, for `quorum.decided`. In a cluster of one, every whole entry is decided."""
    named = [side.commit_index() for side in sides]
    above = max(named, default=0)
    tails = [side.tail(commit, above) for side, commit in zip(sides, named, strict=True)]
    if num_voters > 1:
        return tails
    return [replace(tail, commit_index=tail.last_index) for tail in tails]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """The extent to which the sides agree.

    ``common_index`` is the highest index that every side holds, and ``chains`` are the hash chains there, one
    per side. ``compared`` counts the indexes at which at least two sides were compared.
    """

    common_index: int | None
    chains: tuple[str | None, ...]
    difference: Difference | None
    compared: int


def walk(sides: Sequence[LogSide], decided: Decided, style: TimeStyle = LOCAL) -> Walked:
    """Advance all sides to the last decided entry or to the first difference."""
    for side in sides:
        side.begin(decided.index)
    known = dict(zip((side.node for side in sides), decided.known, strict=True))
    common: int | None = None
    chains: tuple[str | None, ...] = ()
    found: Difference | None = None
    compared = 0
    while found is None:
        heads = [side.head.index for side in sides if side.head is not None]
        at = min(heads, default=None)
        if common is None and len(heads) < len(sides):
            end = min(side.end for side in sides if side.head is None)
            if at is None or at > end:
                common, chains = end, tuple(side.digest_at(end) for side in sides)
        if at is None:
            break
        here = [(side, side.head) for side in sides if side.head is not None and side.head.index == at]
        first = here[0][1]
        if all(same(first, frame) for _, frame in here):
            data = first.encode()
            for side, _ in here:
                side.take(data)
            compared += len(here) > 1
        elif undecided := _undecided(here, known):
            for side in undecided:
                side.cut()
        else:
            found = difference([(side.node, frame) for side, frame in here], style)
    if common is None and found is not None:
        common = found.index - 1
        chains = tuple(side.digest_at(common) for side in sides)
    if any(common is None or side.base_index > common for side in sides):
        common = None
    return Walked(common_index=common, chains=chains, difference=found, compared=compared)


def _undecided(here: Sequence[tuple[LogSide, Frame]], known: Mapping[str, int]) -> list[LogSide]:
    """The sides whose entry is undecided and has another term than the decided one.

    Such an entry remains from a leader that failed before its entries reached a quorum.
    """
    terms = {frame.term for side, frame in here if known[side.node] >= frame.index}
    if not terms:
        return []
    return [side for side, frame in here if known[side.node] < frame.index and frame.term not in terms]
