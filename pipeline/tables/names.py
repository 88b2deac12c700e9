"""Paths within an output, all relative to its folder, with `/` as separator.

    TABLE/date=2026-05-01/shard=3/PART-VERSION-NUMBER-UNIQUE.parquet    a file of a table
    _quorate/tables/TABLE/shard=3/….parquet                             one of an internal table
    _quorate/manifest.json                                              version, progress, the list of files
    _quorate/files-VERSION.jsonl                                        the files, one a line
    _quorate/journal                                                    a commit that is being carried out
    _quorate/staging/UNIQUE/                                            files of the current transaction
    _quorate/lock, _quorate/writer.json                                 the current writer, and since when

Readers of Parquet folders skip names that start with an underscore. Rows whose timestamp is unknown are under
`UNDATED`, a day that no log has, because some readers cannot handle a null there. File names are never
reused: they contain the commit's number and a random part.

A part may be split into buckets (`buckets`), each of which is a part of its own: `open_7of16` is the eighth
of sixteen buckets of part `open`.
"""

from __future__ import annotations

import re

from pipeline.schema import TABLES

OURS = "_quorate"
MANIFEST = f"{OURS}/manifest.json"
JOURNAL = f"{OURS}/journal"
LOCK = f"{OURS}/lock"
WRITER = f"{OURS}/writer.json"
STAGING = f"{OURS}/staging"
INTERNAL = f"{OURS}/tables"
UNDATED = "1900-01-01"
_NULL = "__HIVE_DEFAULT_PARTITION__"
"""Spark's folder name for null; shards are never null."""

_FILE = r"[a-z][a-z0-9_]*-\d{8}-\d{6}-[0-9a-f]{8}\.parquet"
_TABLE_FILE = re.compile(rf"(?:{INTERNAL}/)?[a-z][a-z0-9_]*(?:/date=[^/]+)?(?:/shard=[^/]+)?/{_FILE}")
_FILES_LIST = re.compile(r"files-\d{8}\.jsonl")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_BUCKET = re.compile(r"(.+)_([0-9]+)of([0-9]+)")
_BUCKET_OF_FORMAT_2 = re.compile(r"(.+)_[0-9]+_[0-9]+")
"""Buckets of an earlier hash, which may hold rows of any group."""
_BUCKET_FOLDER = re.compile(r"(.*)/?bucket=([0-9]+)")


def checked_name(name: str) -> str:
    """``name`` if it is valid for a table or part; raises `ValueError`."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a table or of a part of one")
    return name


def table_folder(table: str) -> str:
    """The folder of a table; an undocumented one is internal."""
    return table if table in TABLES else f"{INTERNAL}/{checked_name(table)}"


def partition_of(path: str) -> tuple[str | None, int | None]:
    """Date and shard of a table's file, from its folders."""
    values = dict(folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder)
    date, shard = (values.get(key) for key in ("date", "shard"))
    return None if date == UNDATED else date, None if shard in (None, _NULL) else int(shard)


def bucket_part(part: str, buckets: int, bucket: int) -> str:
    """The name of one bucket of a part; a single one is the part itself."""
    return part if buckets == 1 else f"{part}_{bucket}of{buckets}"


def bucket_of(part: str) -> tuple[str, int, int]:
    """The part that this is a bucket of, the number of buckets, and its place among them."""
    if found := _BUCKET.fullmatch(part):
        return found[1], int(found[3]), int(found[2])
    found = _BUCKET_OF_FORMAT_2.fullmatch(part)
    return found[1] if found else part, 1, 0


def bucket_folder(folder: str) -> tuple[str, int]:
    """A folder of staged files without its bucket component, and that bucket."""
    found = _BUCKET_FOLDER.fullmatch(folder)
    return (found[1].rstrip("/"), int(found[2])) if found else (folder, 0)


def file_name(part: str, version: int, number: int, unique: str) -> str:
    return f"{checked_name(part)}-{version:08d}-{number:06d}-{unique}.parquet"


def files_list(version: int) -> str:
    return f"{OURS}/files-{version:08d}.jsonl"


def is_table_file(path: str) -> bool:
    """Whether the path is one that only this package writes."""
    return _TABLE_FILE.fullmatch(path) is not None


def is_files_list(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder == OURS and _FILES_LIST.fullmatch(name) is not None
