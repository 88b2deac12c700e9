"""Parquet tables on disk that only ever show complete commits, even after kills and full disks.

    names        paths within an output
    disk         the file layer
    manifest     the files that count, and the progress they represent
    buckets      parts that are split by group, so that a run touches few of them
    journal      a commit: decided by one rename, then carried out, if need be by the next run
    reading      `read_table`: by the manifest, with every column, for files of any release
    layout       partitioned by date and shard, sorted, zstd
    local        the same for few rows, without Spark
    merging      merges small files
    transaction  rows staged by Spark, committed together
    output       the folder, locked for one writer

A module imports only those above it.
"""

from .manifest import OutputManifest, ShardProgress, TableFile
from .output import Output
from .reading import read_manifest, read_table, table_files
from .transaction import Transaction

__all__ = [
    "Output",
    "OutputManifest",
    "ShardProgress",
    "TableFile",
    "Transaction",
    "read_manifest",
    "read_table",
    "table_files",
]
