"""`verify`: is a node's directory what was written, and does its history make sense?

Two questions per shard. *Files*: every byte against its CRC, index, manifest and hash chain, and the node's
own files outside the logs; `raftlog.offline.verify` does this. *Meaning*: the invariants of consumer groups
after every entry; the live state hash in the snapshot against a replay; snapshot + tail against the whole
log; the coordinator's projection and its indexes against the newest record of each key. A finding says where,
what it means and what to do. What passed is reported too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from coordinator.state.group_records import GROUP_TYPES
from coordinator.state.projection import Projection
from history.reading.node import NodeLog, open_one, place_of
from history.reading.source import Basis, LogGap, SnapshotLike, Walk
from history.render import plural
from history.state.replay import ShardReplay
from history.words import shard_name
from raftlog.offline.reader import Damaged, Problem
from raftlog.offline.verify import verify_node
from raftlog.storage.frames import Frame
from records import RawRecord, RecordsError, iter_records
from records.ids import METADATA_SHARD

from .invariants import InvariantChecker, Violation
from .secondopinion import disagreements

DEFECT_HINT = "the files are intact: keep them and report this as a defect of the coordinator"
TORN = "torn"
DECODE_HINT = "the entry is intact, but this release cannot read it: use the release that wrote it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """The result for one shard; ``passed`` lists the checks that hold."""

    shard: int
    problems: tuple[Problem, ...]
    violations: tuple[Violation, ...]
    passed: tuple[str, ...]
    entries: int
    records: int
    state_hash: int
    catalog_version: int
    """The newest metadata index that a group of the shard relies on; 0 for none."""
    basis: Basis

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged.

        A torn tail, which a crash leaves and the next start truncates, is no damage.
        """
        return not self.violations and _only_torn(self.problems)


def _only_torn(problems: tuple[Problem, ...]) -> bool:
    return all(problem.severity == TORN for problem in problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The result for a directory."""

    path: str
    problems: tuple[Problem, ...]
    """Problems that belong to no shard."""
    shards: tuple[ShardReport, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return _only_torn(self.problems) and all(shard.ok for shard in self.shards)

    @property
    def findings(self) -> int:
        """Number of problems and violations."""
        return len(self.problems) + sum(len(s.problems) + len(s.violations) for s in self.shards)


def verify(path: str) -> VerifyReport:
    """Check everything in a directory; writes nothing. Raises `NothingToRead` if there is no shard."""
    path, files = place_of(path)
    node = open_one(path, files)
    reports = tuple(_verify_shard(node, shard) for shard in node.shards)
    return VerifyReport(
        path=path,
        problems=(*verify_node(files, path), *_across_shards(node, reports)),
        shards=reports,
        notes=node.notes,
    )


@dataclass(slots=True)
class _ShardCheck:
    """The walk over one shard, and its findings."""

    node: NodeLog
    shard: int
    problems: list[Problem] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    checker: InvariantChecker = field(default_factory=InvariantChecker)
    newest: dict[tuple[int, bytes], RawRecord] = field(default_factory=dict)
    """The newest record of each key of a group, apart from offsets."""
    entries: int = 0
    records: int = 0

    def run(self) -> ShardReport:
        reader = self.node.reader(self.shard)
        self.problems.extend(reader.verify())
        if not self.problems:
            self.passed.append("every byte matches its CRC, index, manifest and hash chain")
        walk = Walk(self.shard, reader)
        replay = ShardReplay(self.shard)
        self._check(replay)
        snapshot = self._snapshot()
        for item in walk:
            if isinstance(item, Frame):
                self._take(item, replay)
                if snapshot is not None and item.index == snapshot.header.last_index:
                    self._compare_snapshot(snapshot, replay)
            elif isinstance(item, LogGap):
                self._gap(item)
            else:
                replay.load(item)
                self._check(replay)
                self.newest.clear()
                self._note(item.records)
        self._compare_end(walk, replay, snapshot)
        return ShardReport(
            shard=self.shard,
            problems=tuple(self.problems),
            violations=tuple(self.checker.violations),
            passed=tuple(self.passed),
            entries=self.entries,
            records=self.records,
            state_hash=replay.state_hash,
            catalog_version=getattr(replay.projection, "newest_catalog_version", 0),
            basis=walk.basis,
        )

    def _snapshot(self) -> SnapshotLike | None:
        try:
            return self.node.reader(self.shard).snapshot()
        except Damaged:
            return None  # reported by the reader's `verify`

    def _take(self, frame: Frame, replay: ShardReplay) -> None:
        self.entries += 1
        try:
            raws = iter_records(frame.body)
            if replay.projection is self.checker.projection:
                self.checker.entry(frame.index, raws)
                self._note(raws)
                replay.take(frame.index, frame.term, ())
            else:
                replay.take(frame.index, frame.term, raws)
        except RecordsError as error:
            self._problem(frame.index, str(error), DECODE_HINT, frame.file, frame.offset)
            return
        self.records += len(raws)
        if len(raws) != frame.record_count:
            what = f"its header announces {frame.record_count} records, it holds {len(raws)}"
            self._problem(frame.index, what, DEFECT_HINT, frame.file, frame.offset)

    def _check(self, replay: ShardReplay) -> None:
        """Let the checker follow the projection of a group shard."""
        if isinstance(replay.projection, Projection):
            self.checker.load(replay.projection)

    def _note(self, raws: Iterable[RawRecord]) -> None:
        for raw in raws:
            if raw.type in GROUP_TYPES:
                if raw.value is None:
                    self.newest.pop((raw.type, raw.key), None)
                else:
                    self.newest[raw.type, raw.key] = raw

    def _gap(self, gap: LogGap) -> None:
        """Report a gap that the check of the files did not see, such as missing archived segments."""
        if not any(p.index is not None and p.index == gap.after_index + 1 for p in self.problems):
            hint = "copy the missing files here; otherwise the result covers only the entries named"
            self._problem(gap.after_index + 1, gap.words(), hint, gap.file, gap.offset)

    def _compare_snapshot(self, snapshot: SnapshotLike, replay: ShardReplay) -> None:
        header = snapshot.header
        if header.state_hash == replay.state_hash:
            self.passed.append(f"the live state at index {header.last_index} equals its replay")
            return
        what = (
            f"the snapshot has the live state hash {header.state_hash:016x}, but the replay has "
            f"{replay.state_hash:016x}"
        )
        self._problem(header.last_index, what, DEFECT_HINT)

    def _compare_end(self, walk: Walk, replay: ShardReplay, snapshot: SnapshotLike | None) -> None:
        """Replay again, from the snapshot if there is one, and compare the two states at the end."""
        again = ShardReplay(self.shard)
        try:
            again.run(Walk(self.shard, self.node.reader(self.shard), from_snapshot=True))
        except RecordsError:
            return  # reported by the walk
        start = "a second replay" if snapshot is None else "snapshot + tail"
        if again.index == replay.index and not walk.basis.gaps:
            if again.state_hash == replay.state_hash:
                self.passed.append(f"{start} equals the replay of the whole log")
            else:
                what = (
                    f"{start} has the state hash {again.state_hash:016x}, but the replay of the whole log "
                    f"has {replay.state_hash:016x}"
                )
                self._problem(replay.index, what, DEFECT_HINT)
        if isinstance(replay.projection, Projection):
            found = disagreements(replay.projection, self.newest.values())
            for what in found:
                self._problem(replay.index, what, DEFECT_HINT)
            if not found:
                self.passed.append(
                    "the projection and its indexes agree with a second reading of the records"
                )
            if not self.checker.violations:
                self.passed.append("the invariants of groups hold after every entry")

    def _problem(self, index: int | None, what: str, hint: str, file: str = "", offset: int = 0) -> None:
        self.problems.append(Problem(file=file, offset=offset, index=index, what=what, hint=hint))


def _verify_shard(node: NodeLog, shard: int) -> ShardReport:
    return _ShardCheck(node, shard).run()


def _across_shards(node: NodeLog, reports: tuple[ShardReport, ...]) -> Iterator[Problem]:
    """No group may rely on a catalog newer than the metadata shard of the same directory.

    An undecided metadata entry suffices: that a group's entry relies on it shows that it was committed.
    """
    metadata = next((report for report in reports if report.shard == METADATA_SHARD), None)
    if node.is_shipped or metadata is None or metadata.basis.last_index is None:
        return  # shards are shipped one after the other
    newest = metadata.basis.last_index + metadata.basis.undecided
    for report in reports:
        if report.catalog_version > newest:
            yield Problem(
                file="",
                offset=0,
                index=report.catalog_version,
                what=(
                    f"{shard_name(report.shard)} uses metadata index {report.catalog_version}, but the "
                    f"metadata shard here ends at {newest}"
                ),
                hint="the metadata shard was copied earlier or lost its last entries: copy both shards again",
            )


def report_text(report: VerifyReport) -> Iterator[str]:
    """Lines of text: per shard what it rests on, what holds, what does not."""
    for note in report.notes:
        yield f"note: {note}"
    for problem in report.problems:
        yield from _problem_text(problem)
    for shard in report.shards:
        found = len(shard.problems) + len(shard.violations)
        verdict = (
            ("intact, except for a write that a crash interrupted" if found else "whole")
            if shard.ok
            else plural(found, "finding")
        )
        yield f"{shard_name(shard.shard)}: {verdict}; {shard.entries:,} entries, {shard.records:,} records"
        yield f"  from {shard.basis.words()}; state hash {shard.state_hash:016x}"
        for said in shard.passed:
            yield f"  ok: {said}"
        for problem in shard.problems:
            yield from (f"  {line}" for line in _problem_text(problem))
        for violation in shard.violations:
            yield f"  BROKEN after index {violation.index}, group {violation.group_id}: {violation.rule}"
            yield f"    found: {violation.found}"
            yield f"    to do: {DEFECT_HINT}"
    yield "verified: everything holds" if report.ok else f"not verified: {plural(report.findings, 'finding')}"


def _problem_text(problem: Problem) -> Iterator[str]:
    place = [f"{problem.file} at byte {problem.offset}" if problem.file else ""]
    place.append("" if problem.index is None else f"index {problem.index}")
    word = "torn" if problem.severity == TORN else "BROKEN"
    yield f"{word} {', '.join(part for part in place if part) or 'directory'}: {problem.what}"
    if problem.hint:
        yield f"  to do: {problem.hint}"
