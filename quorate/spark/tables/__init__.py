"""Delta tables on any store that show complete runs only, however runs end.

    names        tables, their folders, columns and files
    failures     errors of stores in one line
    store        a folder by its URL
    files        Parquet files, written and read by any process
    progress     what the tables contain, and the version of each
    delta        one table: its files, and commits that are never rebased
    merging      small files are merged
    settling     tables that are ahead of `progress`
    reading      all tables as of one run
    catalog      all tables by name in a catalog of Spark
    upkeep       files that nobody needs any more
    transaction  changes that enter the tables together
    output       the folder, for one writer

A module imports only those above it.
"""

from .delta import TableFile
from .files import FileWriter, WrittenFile
from .output import Output
from .progress import Progress, ShardProgress
from .reading import arrow_table, create_views, read_progress, read_table, table_files
from .store import Store
from .transaction import Transaction

__all__ = [
    "FileWriter",
    "Output",
    "Progress",
    "ShardProgress",
    "Store",
    "TableFile",
    "Transaction",
    "WrittenFile",
    "arrow_table",
    "create_views",
    "read_progress",
    "read_table",
    "table_files",
]
