"""The manifest: the files that count, and the progress they represent; nothing else defines a table.

It consists of two files. `manifest.json` is small, readable, and grows only with the number of shards; it is
replaced atomically and refers to the list of files by name and checksum. Each commit rewrites the list, a
line of about 200 bytes per file: 100,000 files (thirty years of days of one shard, in nine tables) are 20 MB.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any
from zlib import crc32

from pipeline.errors import OutputError
from pipeline.schema import SCHEMA_VERSION
from raftlog.env.files import Files

from . import names
from .disk import join

FORMAT = 3
"""Format of manifest and folder; a newer one is refused.

In format 1, parts had no buckets; in 2, the bucket used the bits that select the shard, leaving most empty.
"""
LISTS_KEPT = 2
"""Parsed lists of files that are cached: a run reads its list a dozen times, at up to 1 s per 20 MB.

The bytes are read and checked each time.
"""
READS_MAX = 20
"""Attempts to read the list, which a commit may replace meanwhile; more in a row are not plausible."""


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """The part of one shard's log that is in the tables."""

    records_to: int = 0
    """The last index whose records are in `records`, `commits` and `failovers`."""
    facts_to: int = 0
    """The last index included in the facts of every group."""
    last_ms: int = -1
    """Timestamp of that entry."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """One Parquet file of a table."""

    table: str
    part: str
    """Files of one part are replaced together; a part may be a bucket of another (`names.bucket_of`)."""
    path: str
    """Relative to the output's folder."""
    shard: int | None
    date: str | None
    """The day (UTC) of every row; None: not known, or an internal table."""
    rows: int
    size: int

    @property
    def slot(self) -> tuple[str, str, str | None, int | None]:
        """Table, part, date and shard; files with equal slots may be merged."""
        return self.table, self.part, self.date, self.shard

    def is_of(self, part: str) -> bool:
        """Whether the file belongs to this part or one of its buckets."""
        return self.part == part or names.bucket_of(self.part)[0] == part


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputManifest:
    """The contents of an output after a commit."""

    version: int = 0
    """Number of the commit; 0: nothing yet."""
    cluster_id: str
    num_shards: int | None = None
    schema_version: int = SCHEMA_VERSION
    progress: Mapping[int, ShardProgress] = field(default_factory=dict)
    files: tuple[TableFile, ...] = ()

    def of(self, table: str, part: str | None = None) -> tuple[TableFile, ...]:
        """The files of a table, or of one part of it with its buckets."""
        mine = (file for file in self.files if file.table == table)
        return tuple(file for file in mine if part is None or file.is_of(part))

    def encoded(self) -> tuple[bytes, bytes]:
        """`manifest.json`, and the list of files that it names."""
        lines = [json.dumps(asdict(file), separators=(",", ":")) for file in self.files]
        listed = "".join(f"{line}\n" for line in lines).encode()
        head = {
            "format": FORMAT,
            "version": self.version,
            "cluster_id": self.cluster_id,
            "num_shards": self.num_shards,
            "schema_version": self.schema_version,
            "progress": {str(shard): asdict(one) for shard, one in sorted(self.progress.items())},
            "files": names.files_list(self.version).rpartition("/")[2],
            "files_count": len(self.files),
            "files_crc": crc32(listed),
        }
        return json.dumps(head, indent=1).encode() + b"\n", listed


def load(files: Files, root: str) -> OutputManifest:
    """The manifest of the output at ``root``; raises `OutputError`, or `FileNotFoundError` without one."""
    for attempt in range(READS_MAX):
        head = _head(files.read(join(root, names.MANIFEST)), root)
        try:
            listed = files.read(join(root, names.OURS, head["files"]))
        except FileNotFoundError:
            if attempt < READS_MAX - 1:
                continue
            if files.exists(join(root, names.JOURNAL)):
                raise OutputError(f"a commit in {root} was interrupted", "the next run finishes it") from None
            raise _damaged(root, f"{head['files']} is missing") from None
        if crc32(listed) != head["files_crc"]:
            raise _damaged(root, f"{head['files']} differs from what was written")
        return _decoded(head, listed)
    raise AssertionError("the loop returns or raises")


def load_head(files: Files, root: str) -> OutputManifest:
    """The manifest without its files, whose list an interrupted commit may not have put in place yet."""
    return _decoded(_head(files.read(join(root, names.MANIFEST)), root), b"")


def check(manifest: OutputManifest, root: str, cluster_id: str, num_shards: int | None) -> None:
    """Raise `OutputError` unless a run for this cluster may write here."""
    if manifest.cluster_id != cluster_id:
        raise OutputError(
            f"{root} holds the tables of cluster {manifest.cluster_id}, but the input belongs to "
            f"{cluster_id}",
            "give each cluster its own output; their tables can be read together",
        )
    if None not in (manifest.num_shards, num_shards) and manifest.num_shards != num_shards:
        raise OutputError(
            f"{root} was written from {manifest.num_shards} shards, but the input has {num_shards}",
            "a cluster's number of shards never changes: this is another cluster's log",
        )


def _head(data: bytes, root: str) -> dict[str, Any]:
    try:
        head = json.loads(data)
        newer = head["format"] > FORMAT or head["schema_version"] > SCHEMA_VERSION
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(root, f"manifest.json cannot be read ({error})") from error
    if newer:
        raise OutputError(
            f"{root} was written by a newer release: its format is {head['format']} and its schema "
            f"{head['schema_version']}, but this release knows {FORMAT} and {SCHEMA_VERSION}",
            "use that release, or another output",
        )
    assert isinstance(head, dict)
    return head


def _decoded(head: dict[str, Any], listed: bytes) -> OutputManifest:
    return OutputManifest(
        version=head["version"],
        cluster_id=head["cluster_id"],
        num_shards=head["num_shards"],
        schema_version=head["schema_version"],
        progress={int(shard): ShardProgress(**one) for shard, one in head["progress"].items()},
        files=_listed(listed),
    )


@lru_cache(maxsize=LISTS_KEPT)
def _listed(data: bytes) -> tuple[TableFile, ...]:
    return tuple(TableFile(**json.loads(line)) for line in data.splitlines())


def _damaged(root: str, what: str) -> OutputError:
    return OutputError(
        f"the output {root} is damaged: {names.OURS}/{what}", "restore it, or write to a new output"
    )
