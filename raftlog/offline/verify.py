"""Checking every byte of a shard's files against every other record of it; never writing.

`verify_node` checks the node's own small files, `verify_shard` one log.  In a place that a node has
shipped to, boots, terms, the newest snapshot and most live segments are not there by design.

Each fact is written at least twice (frame and CRC, segment and sealed index, index and manifest, files and
hash chain, log and marker of a clean stop), so a flipped byte contradicts something.  All of it is checked,
also after damage, so that one run lists everything.  Damage that a crash may also leave is reported as
"torn": the end of a log that was not stopped cleanly, after the mark of what was synced; that mark itself;
the end of the evidence, which no start relies on.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c

from raftlog.env.errors import RESTORE_HINT, Corrupt, Damaged, Problem
from raftlog.env.files import Files, join
from raftlog.storage.archive import ARCHIVE, MANIFEST, Manifest, all_segments, read_manifest, read_segment
from raftlog.storage.directory import (
    BOOT_FILE,
    NODE_FILE,
    TERM_FILE,
    NodeIdentity,
    NotFormatted,
    check_joining,
    read_boot_ids,
    read_identity,
    read_term,
    shard_name,
)
from raftlog.storage.evidence import FILES as EVIDENCE_FILES
from raftlog.storage.evidence import torn_at
from raftlog.storage.frames import HEADER_BYTES, frame_at
from raftlog.storage.hash_chain import GENESIS, Chain
from raftlog.storage.index_build import build_index
from raftlog.storage.loader import CLEAN_FILE, CLEAN_KIND
from raftlog.storage.metafile import read_meta
from raftlog.storage.retained_snapshots import kept_indexes, kept_path
from raftlog.storage.sealed_index import REBUILD_HINT, Sealed, decode_index
from raftlog.storage.segments import (
    LogIdentity,
    decode_header,
    index_name,
    log_name,
    next_frame,
    proof_of_loss,
)
from raftlog.storage.shipped_mark import PLACE_FILE, place_mark
from raftlog.storage.snapshot_install import INSTALLING_FILE, installing
from raftlog.storage.snapshots import SNAPSHOT_FILE, SnapshotFile
from raftlog.storage.sync_mark import SYNCED_FILE, is_whole, read_mark, way_out
from raftlog.transport.boots import BOOTS_FILE, check_boots, read_boots
from records import MalformedEntry, iter_records

EVIDENCE_HINT = (
    "explanations report the missing part as unknown; the node continues after the last complete note"
)
INSTALL_HINT = "the next start completes it"
KEPT_HINT = "remove the file: readers of the history do not need it"
MARK_HINT = "the next start writes it again"
TORN_HINT = "the next start cuts it; it holds no acknowledged entry, unless its last group was damaged later"


@dataclass(frozen=True, slots=True)
class _CleanStop:
    """The contents of the marker of a clean stop."""

    last_index: int
    last_term: int
    chain_index: int
    chain: bytes


@dataclass(slots=True)
class _Walk:
    """The state of the walk over the files."""

    files: Files
    home: str
    manifest: Manifest | None = None
    snapshot_index: int = 0
    snapshot_chain: bytes = GENESIS
    snapshot_term: int = 0
    clean: _CleanStop | None = None
    mark: bytes | None = None
    synced_index: int = 0
    is_place: bool = False
    """Whether the files were shipped here: then the node's own are not here by design."""
    node: NodeIdentity | None = None
    named_term: int | None = None
    identity: LogIdentity | None = None
    is_alone: bool = True
    chain: Chain | None = None
    index: int = 0
    term: int = 0
    timestamp_ms: int = 0
    problems: list[Problem] = field(default_factory=list)

    def found(self, file: str, offset: int, what: str, hint: str = RESTORE_HINT, **more: Any) -> None:
        """Note a problem."""
        index = more.pop("index", None)
        self.problems.append(Problem(file=file, offset=offset, index=index, what=what, hint=hint, **more))

    def note(self, damage: Damaged, index: int | None = None) -> None:
        """Note damage that was raised."""
        self.found(damage.file, damage.offset, damage.what, damage.hint or RESTORE_HINT, index=index)


def verify_node(files: Files, path: str) -> list[Problem]:
    """All problems of the node's own files, beside its logs; a copy of some shards alone has none."""
    walk = _Walk(files, path)
    node, notes = join(path, NODE_FILE), (BOOT_FILE, BOOTS_FILE)
    if not files.exists(node):
        if any(files.exists(join(path, name)) for name in notes):
            walk.found(node, 0, "is missing, though this node has started here")
        return walk.problems
    is_place = files.exists(join(path, PLACE_FILE))
    of_node = (read_boot_ids, read_boots, _check_boots)
    for read in (read_identity, *((place_mark,) if is_place else of_node)):
        try:
            read(files, path)
        except Corrupt as damage:
            walk.note(damage)
    for name in EVIDENCE_FILES:
        file = join(path, name)
        try:
            at = torn_at(files, file)
        except Corrupt as damage:
            walk.note(damage)
            continue
        if at is not None:
            walk.found(file, at, "the notes from here on are incomplete", EVIDENCE_HINT, severity="torn")
    return walk.problems


def _check_boots(files: Files, path: str) -> None:
    try:
        identity = read_identity(files, path)
    except Corrupt:  # reported separately
        return
    check_boots(files, path, identity)


def verify_shard(files: Files, node_path: str, shard: int) -> list[Problem]:
    """All problems of one shard's log."""
    walk = _Walk(files, join(node_path, shard_name(shard)))
    walk.is_place = files.exists(join(node_path, PLACE_FILE))
    _read_identity(walk, node_path, shard)
    if not walk.is_place:
        _read_term(walk)
    if _is_installing(walk):
        return walk.problems
    _read_mark(walk)  # first, because a log that is being written only grows beyond it
    _check_manifest(walk)
    _check_snapshot(walk)
    _check_kept(walk)
    _read_clean(walk)
    firsts = all_segments(files, walk.home)
    if walk.snapshot_index + 1 not in firsts and not walk.is_place:
        path = join(walk.home, log_name(walk.snapshot_index + 1))
        walk.found(path, 0, "is missing: the log continues there after its snapshot")
    for place, first in enumerate(firsts):
        following = firsts[place + 1] if place + 1 < len(firsts) else None
        _check_segment(walk, first, following)
    _check_ends(walk)
    _check_mark(walk)
    return walk.problems


def _read_identity(walk: _Walk, node_path: str, shard: int) -> None:
    with contextlib.suppress(Corrupt, NotFormatted):  # `verify_node` reports this; a copy may lack it
        walk.node = read_identity(walk.files, node_path)
        walk.identity, walk.is_alone = walk.node.log(shard), walk.node.is_alone


def _is_installing(walk: _Walk) -> bool:
    """Whether a snapshot is replacing the log, or a crash interrupted that: then only the snapshot counts."""
    path = join(walk.home, INSTALLING_FILE)
    try:
        header = installing(walk.files, walk.home)
    except Corrupt as damage:
        walk.note(damage)
        return False
    if header is None:
        return False
    _check_snapshot(walk)
    what = f"the snapshot up to entry {header.last_index} replaces the log, which was not completed"
    walk.found(path, 0, what, INSTALL_HINT, severity="torn")
    return True


def _check_manifest(walk: _Walk) -> None:
    archive = join(walk.home, ARCHIVE)
    try:
        walk.manifest = read_manifest(walk.files, archive)
    except Corrupt as damage:
        walk.note(damage)
        return
    path = join(archive, MANIFEST)
    index, chain = walk.manifest.dropped_index, None
    for one in walk.manifest.segments:
        if one.first_index != index + 1 or chain not in (None, one.chain_before):
            walk.found(path, 0, f"the segment of entry {one.first_index} does not follow entry {index}")
        index, chain = one.last_index, one.chain_after


def _check_snapshot(walk: _Walk) -> None:
    path = join(walk.home, SNAPSHOT_FILE)
    if not walk.files.exists(path):
        if walk.manifest is not None and walk.manifest.last_index and not walk.is_place:
            walk.found(path, 0, f"is missing, though entries up to {walk.manifest.last_index} are archived")
        return
    try:
        file = SnapshotFile(walk.files, path)
        for _ in file.blocks():
            pass
        file.close()
    except Corrupt as damage:
        walk.note(damage)
        return
    walk.snapshot_index, walk.snapshot_chain = file.header.last_index, file.header.chain_hash
    walk.snapshot_term = file.header.last_term


def _check_kept(walk: _Walk) -> None:
    """Check earlier snapshots: they only save readers time, but damage to one is reported."""
    for last_index in kept_indexes(walk.files, walk.home):
        try:
            file = SnapshotFile(walk.files, kept_path(walk.home, last_index))
        except FileNotFoundError:
            continue  # thinned out in the meantime
        except Corrupt as damage:
            walk.found(damage.file, damage.offset, damage.what, KEPT_HINT)
            continue
        try:
            for _ in file.blocks():
                pass
        except Corrupt as damage:
            walk.found(damage.file, damage.offset, damage.what, KEPT_HINT)
        finally:
            file.close()


def _check_segment(walk: _Walk, first: int, following: int | None) -> None:
    try:
        path, data = read_segment(walk.files, walk.home, first)
        header = decode_header(data, path)
    except Damaged as damage:
        walk.note(damage, first)
        walk.chain = None
        return
    if walk.identity is None:
        walk.identity = header.identity
    if header.identity != walk.identity or header.first_index != first:
        walk.found(path, 0, f"is segment {header.first_index} of {header.identity}, not of this log")
    if walk.index and first != walk.index + 1:
        walk.found(
            path,
            0,
            f"begins with entry {first}, but the entry before it is {walk.index}",
            index=walk.index + 1,
        )
        walk.chain = None
    _start_chain(walk, first)
    before = walk.chain.digest if walk.chain is not None and walk.chain.index == first - 1 else None
    walk.index = first - 1
    if walk.index == walk.snapshot_index:
        walk.term = max(walk.term, walk.snapshot_term)
    _walk_frames(walk, path, data, header.frames_offset, following)
    newest_index = join(walk.home, index_name(first))
    if following is None and walk.files.exists(newest_index) and not walk.is_place:
        walk.found(
            newest_index,
            0,
            "it is sealed, so it cannot be the newest segment: the one that follows is missing",
        )
    if following is not None or walk.is_place:
        _check_sealed(walk, path, data, first, before)


def _start_chain(walk: _Walk, first: int) -> None:
    """Begin the chain where it is known before a segment, unless the walk has it already."""
    if walk.chain is not None and walk.chain.index == first - 1:
        return
    walk.chain = None
    if first == 1:
        walk.chain = Chain()
    elif first == walk.snapshot_index + 1:
        walk.chain = Chain(walk.snapshot_index, walk.snapshot_chain)
    elif walk.manifest is not None:
        for one in walk.manifest.segments:
            if one.first_index == first:
                walk.chain = Chain(first - 1, one.chain_before)


def _walk_frames(walk: _Walk, path: str, data: bytes, at: int, following: int | None) -> None:
    view = memoryview(data)
    while at < len(data):
        expected = walk.index + 1
        whole = frame_at(view, at)
        if whole is None or whole[1] != expected:
            walk.chain = None
            again = next_frame(data, at + 1, walk.index)
            if (
                again is None
                and following is None
                and proof_of_loss(data[at:], expected, is_alone=True) is None
            ):
                _torn(walk, path, at, len(data) - at)
                return
            until = "the end of the file" if again is None else f"byte {again[0]} (entry {again[1]})"
            what = f"no complete frame where entry {expected} should be, up to {until}"
            walk.found(path, at, what, index=expected)
            if again is None:
                return
            at, walk.index = again[0], again[1] - 1
            continue
        end, index, term, commit_index, timestamp_ms, count = whole
        if term < walk.term or timestamp_ms < walk.timestamp_ms or commit_index >= index:
            walk.found(
                path,
                at,
                f"the term, time or commit index of entry {index} is lower than that of the entry before",
                index=index,
            )
        _check_body(walk, path, at, index, view[at + HEADER_BYTES : end], count)
        walk.index, walk.term, walk.timestamp_ms = index, term, timestamp_ms
        if walk.chain is not None:
            walk.chain.add(view[at:end], index)
            _compare_snapshot_chain(walk)
            _compare_clean_chain(walk, walk.chain.index, walk.chain)
        at = end


def _torn(walk: _Walk, path: str, at: int, size: int) -> None:
    expected = walk.index + 1
    if walk.synced_index >= expected:
        what = f"no complete frame where entry {expected} should be, though that entry was synced"
        walk.found(path, at, what, way_out(is_alone=walk.is_alone), index=expected)
        return
    what = f"the last {size} bytes are not a complete frame"
    walk.found(path, at, what, TORN_HINT, index=expected, severity="torn")


def _check_body(walk: _Walk, path: str, at: int, index: int, body: memoryview, count: int) -> None:
    try:
        held = len(iter_records(body))
    except MalformedEntry as error:
        walk.found(path, at, f"the body of entry {index} is malformed: {error}", index=index)
        return
    if held != count:
        walk.found(path, at, f"entry {index} announces {count} records and holds {held}", index=index)


def _compare_snapshot_chain(walk: _Walk) -> None:
    chain = walk.chain
    if chain is not None and chain.index == walk.snapshot_index and chain.digest != walk.snapshot_chain:
        path = join(walk.home, SNAPSHOT_FILE)
        what = f"its hash chain is not that of the entries up to {chain.index}"
        walk.found(path, 0, what, index=chain.index)


def _compare_clean_chain(walk: _Walk, index: int, chain: Chain) -> None:
    clean = walk.clean
    if clean is not None and clean.chain_index == index and clean.chain != chain.digest:
        what = f"the hash chain at entry {index} is not that of the clean stop"
        walk.found(join(walk.home, CLEAN_FILE), 0, what, index=index)


def _check_sealed(walk: _Walk, path: str, data: bytes, first: int, before: bytes | None) -> None:
    """Check that the index and the manifest's line of a segment that is not the last match its contents."""
    archived = walk.manifest is not None and any(one.first_index == first for one in walk.manifest.segments)
    index_path = path.removesuffix(".log") + ".index"
    if not walk.files.exists(index_path):
        if archived or first <= walk.snapshot_index:
            walk.found(index_path, 0, f"the index of the segment of entry {first} is missing", REBUILD_HINT)
        return
    try:
        index = walk.files.read(index_path)
        sealed = decode_index(index, index_path)
    except Corrupt as damage:
        walk.note(damage)
        return
    _compare_sealed(walk, index_path, sealed, data, before)
    if archived and walk.manifest is not None and sealed not in walk.manifest.segments:
        manifest = join(walk.home, ARCHIVE, MANIFEST)
        walk.found(manifest, 0, f"its row for {index_name(first)} differs from that file")
    if sealed.log_crc == crc32c(data):
        try:
            rebuilt = build_index(data, path, sealed.chain_before)[1]
        except Corrupt:
            return  # noted by the walk
        if rebuilt != index:
            walk.found(index_path, 0, "is not the index of its segment", REBUILD_HINT)


def _compare_sealed(walk: _Walk, path: str, sealed: Sealed, data: bytes, before: bytes | None) -> None:
    if sealed.log_bytes != len(data) or sealed.log_crc != crc32c(data):
        walk.found(path, 0, "its segment is not the file that was sealed", index=sealed.first_index)
    if before is not None and sealed.chain_before != before:
        walk.found(path, 0, f"its hash chain does not continue from entry {sealed.first_index - 1}")


def _read_clean(walk: _Walk) -> None:
    path = join(walk.home, CLEAN_FILE)
    if not walk.files.exists(path):
        return
    try:
        walk.clean = _CleanStop(*read_meta(walk.files, path, CLEAN_KIND)[:4])
    except Corrupt as damage:
        walk.note(damage)
        return
    _compare_clean_chain(walk, walk.snapshot_index, Chain(walk.snapshot_index, walk.snapshot_chain))


def _read_term(walk: _Walk) -> None:
    """Read the term and its owner, and check whether this shard may vote yet."""
    try:
        walk.named_term = read_term(walk.files, walk.home, walk.node)[0]
    except Corrupt as damage:
        walk.note(damage)
    try:
        check_joining(walk.files, walk.home)
    except Corrupt as damage:
        walk.note(damage)


def _check_ends(walk: _Walk) -> None:
    named, clean = walk.named_term, walk.clean
    if named is not None and named < walk.term:
        path = join(walk.home, TERM_FILE)
        walk.found(path, 0, f"the term is {named}, but entry {walk.index} is of term {walk.term}")
    if clean is not None and walk.index and (walk.index, walk.term) != (clean.last_index, clean.last_term):
        what = f"the log ends with entry {walk.index}, but its clean stop was at entry {clean.last_index}"
        walk.found(join(walk.home, CLEAN_FILE), 0, what, index=walk.index + 1)


def _read_mark(walk: _Walk) -> None:
    try:
        walk.synced_index, walk.mark = read_mark(walk.files, walk.home), _mark(walk)
    except Corrupt as damage:
        walk.note(damage)


def _mark(walk: _Walk) -> bytes | None:
    path = join(walk.home, SYNCED_FILE)
    return walk.files.read(path) if walk.files.exists(path) else None


def _check_mark(walk: _Walk) -> None:
    """Check that all entries once synced are there; only a power loss may leave a torn mark."""
    path, mark = join(walk.home, SYNCED_FILE), walk.mark
    if mark is None or mark != _mark(walk):
        return  # written by an older release; or by a node that is running
    if not is_whole(mark):
        severity = "torn" if walk.clean is None else "damage"
        walk.found(path, 0, "is incomplete", MARK_HINT, severity=severity)
    is_told = any(one.index == walk.index + 1 for one in walk.problems)
    if walk.synced_index > walk.index and not is_told:
        what = f"the log ends with entry {walk.index}, though entries up to {walk.synced_index} were synced"
        walk.found(path, 0, what, way_out(is_alone=walk.is_alone), index=walk.index + 1)
