"""The manifest: which files count, and how far the log is in them. Nothing else says what a table holds.

It is two files. `manifest.json` is small, for people too, and grows with the shards only; it is replaced
atomically and names the list of files by its name and checksum. The list, a line of about 200 bytes for each
file, is written anew by each commit: 100,000 files (thirty years of days of one shard, in nine tables) are
20 MB.
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
from raftlog.files import Files

from . import names
from .disk import join

FORMAT = 3
"""Of the manifest and the folder themselves; a newer one is refused. 1: parts had no buckets; 2: these were
told by what tells shards, so that most of a shard's were empty."""
LISTS_KEPT = 2
"""Lists of files that stay parsed: a run asks for its output's a dozen times, and 20 MB take a second. Their
bytes are read and checked each time."""
READS_MAX = 20
"""A commit takes away the list of the one before; a reader that is overtaken so often is no match for it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the log of one shard is in the tables."""

    records_to: int = 0
    """The last index whose records are in `records`, `commits` and `failovers`."""
    facts_to: int = 0
    """The last index that the facts of every group know of."""
    last_ms: int = -1
    """When that entry was written."""


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
        """Files of one slot may be merged."""
        return self.table, self.part, self.date, self.shard

    def is_of(self, part: str) -> bool:
        """Whether it is of this part, or of one of its buckets."""
        return self.part == part or names.bucket_of(self.part)[0] == part


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an output holds after a commit."""

    version: int = 0
    """The number of the commit; 0: nothing yet."""
    cluster_id: str
    num_shards: int | None = None
    schema_version: int = SCHEMA_VERSION
    progress: Mapping[int, Progress] = field(default_factory=dict)
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


def load(files: Files, root: str) -> Manifest:
    """The manifest of the output at ``root``; raises `OutputError`, `FileNotFoundError` if there is none."""
    for attempt in range(READS_MAX):
        head = _head(files.read(join(root, names.MANIFEST)), root)
        try:
            listed = files.read(join(root, names.OURS, head["files"]))
        except FileNotFoundError:
            if attempt < READS_MAX - 1:
                continue
            if files.exists(join(root, names.JOURNAL)):
                raise OutputError(f"a commit in {root} was cut short", "the next run finishes it") from None
            raise _damaged(root, f"{head['files']} is missing") from None
        if crc32(listed) != head["files_crc"]:
            raise _damaged(root, f"{head['files']} is not what was written")
        return _decoded(head, listed)
    raise AssertionError("the loop returns or raises")


def load_head(files: Files, root: str) -> Manifest:
    """The manifest without its files, which a commit that was cut short may not have put there yet."""
    return _decoded(_head(files.read(join(root, names.MANIFEST)), root), b"")


def check(manifest: Manifest, root: str, cluster_id: str, num_shards: int | None) -> None:
    """Whether a run over this cluster may write here; raises `OutputError`."""
    if manifest.cluster_id != cluster_id:
        raise OutputError(
            f"{root} holds the tables of cluster {manifest.cluster_id}, and the input is of {cluster_id}",
            "give each cluster an output of its own; their tables may be read together",
        )
    if None not in (manifest.num_shards, num_shards) and manifest.num_shards != num_shards:
        raise OutputError(
            f"{root} was written of {manifest.num_shards} shards, and the input has {num_shards}",
            "a cluster's shards are for life: this is another cluster's log",
        )


def _head(data: bytes, root: str) -> dict[str, Any]:
    try:
        head = json.loads(data)
        newer = head["format"] > FORMAT or head["schema_version"] > SCHEMA_VERSION
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(root, f"manifest.json cannot be read ({error})") from error
    if newer:
        raise OutputError(
            f"{root} was written by a newer release: its format is {head['format']} and its schema"
            f" {head['schema_version']}, this one knows {FORMAT} and {SCHEMA_VERSION}",
            "use that release, or another output",
        )
    assert isinstance(head, dict)
    return head


def _decoded(head: dict[str, Any], listed: bytes) -> Manifest:
    return Manifest(
        version=head["version"],
        cluster_id=head["cluster_id"],
        num_shards=head["num_shards"],
        schema_version=head["schema_version"],
        progress={int(shard): Progress(**one) for shard, one in head["progress"].items()},
        files=_listed(listed),
    )


@lru_cache(maxsize=LISTS_KEPT)
def _listed(data: bytes) -> tuple[TableFile, ...]:
    return tuple(TableFile(**json.loads(line)) for line in data.splitlines())


def _damaged(root: str, what: str) -> OutputError:
    return OutputError(
        f"the output {root} is damaged: {names.OURS}/{what}", "put it back, or write to a new output"
    )
