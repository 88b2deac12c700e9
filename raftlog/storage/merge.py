"""The job that makes snapshots: seals segments, and merges them with the previous snapshot into a new one.

Runs as `python -P -m raftlog.storage.merge` at low priority: one msgpack request on stdin, one msgpack
result on stdout.  It only ever makes new temporary files whose names hold the request's token, and renames
nothing: the node checks the result and puts the files in place, so a job that outlives its node, or is
killed, changes nothing.

The merge is `records.compact` over the previous snapshot and every record of the segments: the newest record
of each key, and the tombstones younger than `delete_retention_ms` at `now_ms`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

import msgpack

from raftlog.env.errors import RESTORE_HINT, Corrupt
from raftlog.env.files import TEMPORARY_SUFFIX, Files, OsFiles, join, write_aside
from raftlog.env.state_machine import SnapshotHeader
from raftlog.storage.frames import HEADER_BYTES, frame_at
from raftlog.storage.index_build import build_index
from raftlog.storage.retained_snapshots import copy_snapshot, kept_path
from raftlog.storage.segments import decode_header, index_name, log_name
from raftlog.storage.snapshots import SNAPSHOT_FILE, SnapshotFile, write_snapshot
from records import Stamped, compact, iter_records


def aside(path: str, token: str) -> str:
    """The temporary path to which the job with `token` writes the file that becomes `path`."""
    return f"{path}.{token}{TEMPORARY_SUFFIX}"


def request_of(
    home: str,
    token: str,
    segments: list[int],
    chain: bytes,
    snapshot: dict[str, Any] | None,
    keep: int | None = None,
) -> dict[str, Any]:
    """A request to index `segments` of the log in `home`, and with `snapshot` to merge them.

    `segments` are consecutive first indexes; `chain` is the hash chain before them.  The fields of `snapshot`
    are those of `SnapshotHeader` without `chain_hash` and `record_count`, and `now_ms` and
    `delete_retention_ms`.  The previous snapshot, which ends with `keep`, is copied for the archive unless
    that is None.
    """
    return {
        "home": home,
        "token": token,
        "segments": segments,
        "chain": chain,
        "snapshot": snapshot,
        "keep": keep,
    }


def run(request: Any, files: Files) -> dict[str, Any]:
    """Carry out a request of `request_of`.

    Returns {"chain": chain after the last segment, "records": number of records in the snapshot}, or
    {"corrupt": [file, offset, what, hint]}.
    """
    try:
        return _run(request, files)
    except Corrupt as found:
        return {"corrupt": [found.file, found.offset, found.what, found.hint]}


def _run(request: dict[str, Any], files: Files) -> dict[str, Any]:
    home, token, chain = request["home"], request["token"], request["chain"]
    logs: list[bytes] = []
    for first in request["segments"]:
        path = join(home, log_name(first))
        log = files.read(path)
        sealed, index = build_index(log, path, chain)
        write_aside(files, aside(join(home, index_name(first)), token), index)
        chain = sealed.chain_after
        if request["snapshot"] is not None:
            logs.append(log)
    count = 0
    if request["snapshot"] is not None:
        count = _merge(request["snapshot"], logs, chain, home, token, files)
        if request["keep"] is not None:
            copy_snapshot(files, home, aside(kept_path(home, request["keep"]), token))
    return {"chain": chain, "records": count}


def _merge(
    fields: dict[str, Any], logs: list[bytes], chain: bytes, home: str, token: str, files: Files
) -> int:
    retention_ms = fields.pop("delete_retention_ms")
    now_ms: int = fields.pop("now_ms")
    kept = compact(_history(logs, home, files), now_ms=now_ms, delete_retention_ms=retention_ms)
    header = SnapshotHeader(chain_hash=chain, record_count=len(kept), **fields)
    write_snapshot(files, aside(join(home, SNAPSHOT_FILE), token), header, kept)
    return len(kept)


def _history(logs: list[bytes], home: str, files: Files) -> Iterator[Stamped]:
    """Every record up to the end of the segments, the previous snapshot's first."""
    previous = join(home, SNAPSHOT_FILE)
    after = 0
    if files.exists(previous):
        snapshot = SnapshotFile(files, previous)
        after = snapshot.header.last_index
        yield from snapshot.stamped()
        snapshot.close()
    for log in logs:
        yield from _records_of(log, after)


def _records_of(log: bytes, after_index: int) -> Iterator[Stamped]:
    """The records of a segment that `build_index` has checked."""
    view = memoryview(log)
    header = decode_header(log, "")
    if header.first_index <= after_index:
        return
    at = header.frames_offset
    while at < len(log) and (found := frame_at(view, at)) is not None:
        end, index, _, _, timestamp_ms, _ = found
        for raw in iter_records(view[at + HEADER_BYTES : end]):
            yield Stamped(index, timestamp_ms, raw)
        at = end


def check_result(result: object) -> dict[str, Any]:
    """The job's result; raises Corrupt for damage that it found."""
    if not isinstance(result, dict):
        raise TypeError(f"the merge job returned {result!r}")
    if "corrupt" in result:
        file, offset, what, hint = result["corrupt"]
        raise Corrupt(file, offset, what, hint or RESTORE_HINT)
    return result


def main() -> None:
    """Read a request from standard input, write the result to standard output."""
    gc.disable()  # millions of records, no cycles: collections would take two fifths of the time
    request = msgpack.unpackb(sys.stdin.buffer.read())
    sys.stdout.buffer.write(msgpack.packb(run(request, OsFiles())))


if __name__ == "__main__":
    main()
