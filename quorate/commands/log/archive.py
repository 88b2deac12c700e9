"""`quorate log archive`: what a node has sealed, and shipping it to an object store without the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from quorate.commands.log.common import explain_failure, read_log
from quorate.commands.log.subject import LogData, one_directory
from quorate.commands.options import Json, argument, option
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, say

if TYPE_CHECKING:
    from raftlog.env.files import Files


def archive(
    words: Annotated[
        list[str] | None, argument("[DIR]", "A node's data directory, which may be in use, or a copy.")
    ] = None,
    data: LogData = None,
    to: Annotated[
        str | None,
        option("--to", "URL", "Ship sealed segments there: s3://bucket/path, gs://, abfs://, hdfs://."),
    ] = None,
    json: Json = False,
) -> None:
    """Show the sealed segments of a node, or ship them to an object store.

    With --to each segment that URL/node-N lacks is uploaded and verified; what is there is not sent again, so
    that an interrupted command is simply repeated. Nothing is written to DIR. A node does the same by itself
    when log.archive.url is set. `quorate log` and `quorate pipeline` read URL like the folder of a cluster.

    Example: quorate log archive quorate-data/node-1 --to s3://bucket/cluster
    """
    from history.reading.node import place_of

    directory = one_directory(words, data, "archive")
    path, files = read_log(directory, lambda: place_of(directory))
    if not files.exists(f"{path}/node"):
        hint = f"give the data directory of one node, such as {directory.rstrip('/')}/node-1"
        raise CommandError(f"{directory} has no file named node", hint=hint, code=ExitCode.UNREADABLE)
    if to is not None:
        _ship(files, path, to, as_json=json)
        return
    rows = read_log(directory, lambda: _rows(files, path))
    if json:
        print_json({"directory": directory, "shards": rows})
        return
    for row in rows:
        held = "no sealed segment"
        if row["segments"]:
            held = (
                f"{row['segments']} sealed segments, entries {row['first_index']} to {row['last_index']}, "
                f"{row['bytes']} bytes"
            )
        shipped = f"; shipped up to {row['shipped_index']}" if row["shipped_index"] else ""
        say(f"{row['shard']}: {held}{shipped}")


def _rows(files: Files, path: str) -> list[dict[str, Any]]:
    from raftlog.env.files import join
    from raftlog.offline.reader import read_identity
    from raftlog.storage.directory import shard_name
    from raftlog.storage.shipped_mark import shipped_to
    from raftlog.storage.shipping import sealed_segments

    rows = []
    for shard in read_identity(path, files).shards:
        home = join(path, shard_name(shard))
        sealed = sealed_segments(files, home)
        rows.append(
            {
                "shard": shard_name(shard),
                "segments": len(sealed),
                "bytes": sum(one.log_bytes for one in sealed),
                "first_index": sealed[0].first_index if sealed else None,
                "last_index": sealed[-1].last_index if sealed else None,
                "shipped_index": shipped_to(files, home),
            }
        )
    return rows


def _ship(files: Files, path: str, url: str, *, as_json: bool) -> None:
    from raftlog.env.object_stores import PyarrowMissing, StoreError, UnknownStore, check_place
    from raftlog.env.store_writing import store_at
    from raftlog.offline.reader import ShardReader, read_identity
    from raftlog.storage.shipping import failure_line, ship

    committed = read_log(
        path,
        lambda: {s: ShardReader(path, s, files).highest_commit() for s in read_identity(path, files).shards},
    )
    try:
        check_place(url)
    except UnknownStore as unknown:
        code = ExitCode.INSTALLATION if isinstance(unknown, PyarrowMissing) else ExitCode.USAGE
        raise CommandError(str(unknown), code=code) from None
    shipped = shipped_bytes = 0
    try:
        store = store_at(url)
        while True:
            done = ship(files, path, url, store, mark=False, committed=committed)
            shipped, shipped_bytes = shipped + done.shipped, shipped_bytes + done.shipped_bytes
            if not done.left:
                break
            if not as_json:
                say(f"{shipped} segments shipped, {done.left} left")
    except StoreError as error:
        hint = "what has been shipped stays: repeat the command to go on"
        raise CommandError(failure_line(error), hint=hint, code=ExitCode.UNWRITTEN) from None
    except Exception as error:
        explain_failure(path, error)
    if as_json:
        print_json(
            {"url": url, "segments_shipped": shipped, "bytes_shipped": shipped_bytes, "gaps": done.lost}
        )
        return
    say(f"{shipped} segments ({shipped_bytes} bytes) shipped to {url}; nothing is left")
    if done.lost:
        say(f"note: {done.lost} gaps: retention had removed these segments before they were shipped")
