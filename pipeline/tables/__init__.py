"""Parquet tables on disk that only ever show complete commits, even after kills and full disks.

names        paths within an output
disk         the file layer
manifest     the files that count, and the progress they represent
journal      a commit: decided by one rename, then carried out, if need be by the next run
output       the folder, locked for one writer
buckets      parts split by a hash of the group
transaction  rows staged by Spark, committed together
layout       partitioned by date and shard, sorted, zstd
local        the same for few rows, without Spark
merging      merges small files
reading      `read_table`: by the manifest, with every column, for files of any release
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
