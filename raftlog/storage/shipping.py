"""The job that ships sealed segments to an object store; `quorate log archive --to` does the same offline.

Each node ships to a prefix of its own, laid out like its directory, so that the place reads like the folder
of a cluster:

    URL/node-1/node                        the node's identity
    URL/node-1/shipped                     says that this is such a place (`raftlog.storage.shipped_mark`)
    URL/node-1/evidence.0, evidence.1      the notes beside the log
    URL/node-1/shard-0/archive/manifest    what the store has of this shard, with the facts of each segment
    URL/node-1/shard-0/archive/….log, ….index
    URL/node-1/shard-0/archive/snapshot-…  the state where entries are missing before it

The store's manifest decides what has been shipped.  Invariants: a segment is checked against its seal before
it is sent; it is read back, and its size and CRC32C compared, before the manifest names it; its index goes
with it; so a job that is killed at any moment leaves a store that reads whole, and the next one goes on from
there.  Segments that the node has removed stay in the store.

What changes is shipped again now and then: the evidence, and the live segment of some shards up to an entry
that is known to be committed (a node's own job takes the metadata shard, which names the topics).  The place
has it without an index, under the name under which the sealed one will replace it.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import msgpack
from crc32c import crc32c

from raftlog.env.errors import RESTORE_HINT, Corrupt
from raftlog.env.files import Files, OsFiles, join
from raftlog.env.object_stores import StoreError, UnknownStore
from raftlog.env.store_writing import ShippingStore, store_at
from raftlog.storage.archive import (
    ARCHIVE,
    MANIFEST,
    Manifest,
    decode_manifest,
    encode_manifest,
    read_manifest,
    segment_by,
)
from raftlog.storage.directory import (
    NODE_FILE,
    NodeIdentity,
    decode_identity,
    read_identity,
    shard_name,
)
from raftlog.storage.evidence import FILES as EVIDENCE_FILES
from raftlog.storage.evidence import whole_notes
from raftlog.storage.frames import frame_at
from raftlog.storage.loader import read_sealed
from raftlog.storage.retained_snapshots import header_of, kept_indexes, kept_path
from raftlog.storage.sealed_index import Sealed
from raftlog.storage.segments import decode_header, first_indexes, index_name, log_name
from raftlog.storage.shipped_mark import PLACE_FILE, PlaceMark, decode_place, mark_shipped
from raftlog.storage.snapshots import SNAPSHOT_FILE, SnapshotFile

SEGMENTS_MAX: Final = 16
"""Segments that one job ships, one after the other: a job ends soon, and the next shard gets its turn."""

BYTES_PER_SECOND_MAX: Final = 32 << 20
"""A node sends no faster: shipping must leave the network to the replicas and the clients."""


SNAPSHOT_BYTES_MAX: Final = 1 << 30
"""A larger snapshot is not shipped: the job holds it in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """The result of a job, and the work that is left."""

    shipped: int
    """Segments that the store has got."""
    shipped_bytes: int
    left: int
    """Sealed segments that the store has not got yet."""
    left_bytes: int
    lost: int
    """Gaps in what the store has: retention removed segments there before they were shipped."""
    last_indexes: dict[int, int]
    """Shard -> the last entry that the store has."""


def ship(
    files: Files,
    path: str,
    url: str,
    store: ShippingStore,
    *,
    segments_max: int = SEGMENTS_MAX,
    mark: bool = True,
    committed: Mapping[int, int] | None = None,
) -> Shipment:
    """Ship up to `segments_max` sealed segments of the node's directory at `path`.

    With `committed` (shard -> its last entry known to be committed) the evidence and the live segments
    of these shards are shipped too, if they have changed.  With `mark` the directory notes what has been
    shipped, for its retention; without, nothing is written to it.  Raises `StoreError`, and Corrupt for a
    damaged segment, which is not shipped.
    """
    identity = read_identity(files, path)
    place = join(url, f"node-{identity.node_id}")
    known = _claim(files, path, store, place, identity)
    before = known
    room, sent, sent_bytes = segments_max, 0, 0
    left: list[Sealed] = []
    lost = 0
    lasts: dict[int, int] = {}
    for shard in identity.shards:
        home, there = join(path, shard_name(shard)), join(place, shard_name(shard), ARCHIVE)
        manifest = shipped_manifest(store, there)
        waiting = [one for one in sealed_segments(files, home) if one.first_index > manifest.last_index]
        for one in waiting[:room]:
            manifest = _ship_segment(files, home, store, there, manifest, one)
            sent, sent_bytes = sent + 1, sent_bytes + one.log_bytes
        if committed is not None and shard in committed and not waiting[room:]:
            known = _ship_live(files, home, store, there, manifest, known, shard, committed[shard])
        known = _ship_snapshots(files, home, store, there, manifest, known, shard)
        left += waiting[room:]
        room -= min(room, len(waiting))
        lasts[shard] = manifest.last_index
        lost += sum(one.last_index + 1 < other.first_index for one, other in pairwise(manifest.segments))
        if mark:
            mark_shipped(files, home, manifest.last_index)
    if committed is not None:
        known = _ship_evidence(files, path, store, place, known)
    if known != before:
        _put(store, join(place, PLACE_FILE), known.encoded())
    return Shipment(
        shipped=sent,
        shipped_bytes=sent_bytes,
        left=len(left),
        left_bytes=sum(one.log_bytes for one in left),
        lost=lost,
        last_indexes=lasts,
    )


def shipped_manifest(store: ShippingStore, archive: str) -> Manifest:
    """The segments of a shard that a store has; none if its folder is empty."""
    path = join(archive, MANIFEST)
    try:
        return decode_manifest(store.read(path), path)
    except FileNotFoundError:
        return Manifest(segments=())


def sealed_segments(files: Files, home: str) -> list[Sealed]:
    """Archived and live segments that have a seal, in order; all their entries are committed."""
    archived = read_manifest(files, join(home, ARCHIVE)).segments
    last = archived[-1].last_index if archived else 0
    return [*archived, *_live(files, home, last)]


def _live(files: Files, home: str, after: int) -> Iterator[Sealed]:
    for first in first_indexes(files.listdir(home)):
        if first > after:
            try:
                sealed = read_sealed(files, home, first)
            except FileNotFoundError:  # it is being moved to the archive: the next job finds it there
                return
            if sealed is None:
                return
            yield sealed


def _ship_segment(
    files: Files, home: str, store: ShippingStore, there: str, manifest: Manifest, one: Sealed
) -> Manifest:
    log, index = log_name(one.first_index), index_name(one.first_index)
    path, data = segment_by(files.read, home, one.first_index)
    if (len(data), crc32c(data)) != (one.log_bytes, one.log_crc):
        what = "differs from what its seal says, and is not shipped"
        raise Corrupt(path, 0, what, RESTORE_HINT)
    _put(store, join(there, log), data)
    _put(store, join(there, index), files.read(path.removesuffix(log) + index))
    store.pause(len(data) / BYTES_PER_SECOND_MAX)
    dropped = manifest.dropped_index if manifest.segments else one.first_index - 1
    shipped = Manifest(segments=(*manifest.segments, one), dropped_index=dropped)
    _put(store, join(there, MANIFEST), encode_manifest(shipped.segments, dropped))
    return shipped


def _ship_live(
    files: Files,
    home: str,
    store: ShippingStore,
    there: str,
    manifest: Manifest,
    known: PlaceMark,
    shard: int,
    committed: int,
) -> PlaceMark:
    """Ship the segment after the last sealed one, up to the entry `committed`, if it has grown."""
    firsts = [first for first in first_indexes(files.listdir(home)) if first > manifest.last_index]
    if len(firsts) != 1 or committed < firsts[0] or known.decided.get(shard, 0) >= committed:
        return known
    path, data = segment_by(files.read, home, firsts[0])
    end, last = decode_header(data, path).frames_offset, firsts[0] - 1
    view = memoryview(data)
    while last < committed and (found := frame_at(view, end)) is not None and found[1] == last + 1:
        end, last = found[0], found[1]
    if last < firsts[0]:
        return known
    if not manifest.segments and not known.decided.get(shard):
        _put(store, join(there, MANIFEST), encode_manifest((), firsts[0] - 1))
    _put(store, join(there, log_name(firsts[0])), data[:end])
    store.pause(end / BYTES_PER_SECOND_MAX)
    return replace(known, decided={**known.decided, shard: last})


def _ship_snapshots(
    files: Files,
    home: str,
    store: ShippingStore,
    there: str,
    manifest: Manifest,
    known: PlaceMark,
    shard: int,
) -> PlaceMark:
    """Ship the first state after each gap: without it, entries behind the gap say little.

    A place that has the log from its first entry on needs none.
    """
    last = max(manifest.last_index, known.decided.get(shard, 0))
    starts = [one.first_index for one in manifest.segments]
    ends = [one.last_index for one in manifest.segments]
    if known.decided.get(shard, 0) > manifest.last_index:
        starts += [first for first in first_indexes(files.listdir(home)) if first > manifest.last_index][:1]
    gaps = [start - 1 for start, end in zip(starts, [0, *ends], strict=False) if start != end + 1]
    held = known.snapshots.get(shard, ())
    for gap, following in pairwise([*gaps, last + 1]):
        if any(gap <= one < following for one in held):
            continue
        for path, index in _snapshots(files, home):
            if gap <= index < following and (data := _whole_snapshot(files, path)) is not None:
                _put(store, join(there, f"{SNAPSHOT_FILE}-{index:020d}"), data)
                store.pause(len(data) / BYTES_PER_SECOND_MAX)
                held = tuple(sorted((*held, index)))
                break
    return (
        known
        if held == known.snapshots.get(shard, ())
        else replace(known, snapshots={**known.snapshots, shard: held})
    )


def _snapshots(files: Files, home: str) -> Iterator[tuple[str, int]]:
    """Paths and last indexes of the snapshots of a log, ascending."""
    for index in kept_indexes(files, home):
        yield kept_path(home, index), index
    newest = join(home, SNAPSHOT_FILE)
    if (header := header_of(files, newest)) is not None:
        yield newest, header.last_index


def _whole_snapshot(files: Files, path: str) -> bytes | None:
    """The bytes of a snapshot; None if it is damaged, too large or was just removed."""
    try:
        file = SnapshotFile(files, path)
        try:
            is_small = file.file.size() <= SNAPSHOT_BYTES_MAX
            for _ in file.blocks() if is_small else ():
                pass
            return file.file.pread(file.file.size(), 0) if is_small else None
        finally:
            file.close()
    except (FileNotFoundError, Corrupt):
        return None


def _ship_evidence(files: Files, path: str, store: ShippingStore, place: str, known: PlaceMark) -> PlaceMark:
    """Ship the notes that are whole, if there are others than before."""
    for name in EVIDENCE_FILES:
        data = whole_notes(files, join(path, name))
        state = len(data), crc32c(data)
        if data and known.evidence.get(name) != state:
            _put(store, join(place, name), data)
            store.pause(len(data) / BYTES_PER_SECOND_MAX)
            known = replace(known, evidence={**known.evidence, name: state})
    return known


def _claim(files: Files, path: str, store: ShippingStore, place: str, identity: NodeIdentity) -> PlaceMark:
    """The state of the changing files in this node's place, which is made if it does not exist."""
    is_ours, mark = _is_ours(store, place, identity), join(place, PLACE_FILE)
    try:
        known = decode_place(store.read(mark), mark)
    except FileNotFoundError:
        known = PlaceMark()
        _put(store, mark, known.encoded())
    if not is_ours:
        _put(store, join(place, NODE_FILE), files.read(join(path, NODE_FILE)))
    return known


def _put(store: ShippingStore, path: str, data: bytes) -> None:
    """Upload a file, and verify what the store has."""
    store.put(path, data)
    if store.crc(path) != crc32c(data):
        raise StoreError(
            errno.EIO, "the store returns other bytes than were sent: the upload does not count", path
        )


def _is_ours(store: ShippingStore, place: str, identity: NodeIdentity) -> bool:
    """Whether the place is this node's already; False: nobody's.

    Raises `StoreError` if another disk shipped there: its segments end elsewhere, and the two do not fit.
    """
    path = join(place, NODE_FILE)
    try:
        owner = decode_identity(store.read(path), path)
    except FileNotFoundError:
        return False
    if (owner.cluster_id, owner.incarnation) == (identity.cluster_id, identity.incarnation):
        return True
    whose = "cluster" if owner.cluster_id != identity.cluster_id else "disk of this node"
    what = f"belongs to another {whose}: ship to another place, or move that folder away"
    raise StoreError(errno.EEXIST, what, place)


def run(request: Any, files: Files) -> dict[str, Any]:
    """Carry out a request {"path", "url", "committed": [[shard, last committed entry]] or None}.

    Returns the fields of a `Shipment`, or {"failed": one line}, or {"corrupt": [file, offset, what, hint]}.
    """
    try:
        committed = None if request.get("committed") is None else dict(request["committed"])
        done = ship(files, request["path"], request["url"], store_at(request["url"]), committed=committed)
    except Corrupt as found:
        return {"corrupt": [found.file, found.offset, found.what, found.hint]}
    except (StoreError, UnknownStore) as error:
        return {"failed": failure_line(error)}
    return {
        "shipped": done.shipped,
        "shipped_bytes": done.shipped_bytes,
        "left": done.left,
        "left_bytes": done.left_bytes,
        "lost": done.lost,
        "last_indexes": list(done.last_indexes.items()),
    }


def failure_line(error: OSError | UnknownStore) -> str:
    """The problem with a store, and its place."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    return str(error)


def main() -> None:
    """Read a request from standard input, write the result to standard output."""
    request = msgpack.unpackb(sys.stdin.buffer.read())
    sys.stdout.buffer.write(msgpack.packb(run(request, OsFiles())))


if __name__ == "__main__":
    main()
