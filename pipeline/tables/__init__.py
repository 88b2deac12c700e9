"""Parquet tables on disk that only ever show whole commits, whatever is killed and whichever disk is full.

names        where everything of an output stands
disk         the file layer under it
manifest     which files count, and how far the log is in them
journal      a commit: decided by one rename, then carried out, by the next run if need be
output       the folder, locked for one writer
transaction  rows staged by Spark, committed together
layout       partitioned by date and shard, sorted, zstd
few          the same for few rows, without Spark
merging      many small files become one
reading      `read_table`: by the manifest, every column, whichever release wrote the files
"""

from .manifest import Manifest, Progress, TableFile
from .output import Output
from .reading import read_manifest, read_table, table_files
from .transaction import Transaction

__all__ = [
    "Manifest",
    "Output",
    "Progress",
    "TableFile",
    "Transaction",
    "read_manifest",
    "read_table",
    "table_files",
]
