"""Upkeep of an output: files that nobody needs any more are removed, at most once a day.

A table keeps replaced files for `delta.RETENTION_DAYS`, so that readers finish and earlier runs can be read.
"""

from __future__ import annotations

import contextlib
import os
import socket
from datetime import UTC, datetime, timedelta

from quorate.spark.errors import OutputError

from . import names
from .delta import RETENTION_DAYS, Signature, TableLog
from .failures import told
from .progress import Progress
from .reading import named_at
from .store import Store

VACUUM_EVERY_MS = 24 * 3600 * 1000
LEFT_AFTER = timedelta(days=1)
"""Age at which intermediate results are removed if their process cannot be asked for."""


def is_due(progress: Progress, now_ms: int) -> bool:
    """Whether the tables are to be vacuumed after this commit."""
    return progress.vacuumed_ms < 0 or now_ms - progress.vacuumed_ms >= VACUUM_EVERY_MS


def vacuum(log: TableLog, signature: Signature) -> None:
    """Remove what a table no longer needs; a failure leaves it to another day."""
    with contextlib.suppress(OutputError):
        log.vacuum(Signature(signature.writer, signature.run, "vacuum"))


def clean_logs(store: Store, now_ms: int) -> None:
    """Delete old commits of all tables; every run of the retention can still be read.

    delta-rs would do it at a checkpoint, by age alone: the version that `progress` names of a table without
    news is older than that.
    """
    since = datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(days=RETENTION_DAYS)
    with contextlib.suppress(OutputError):
        for table, version in named_at(store, since).items():
            log = TableLog.load(store, table, version)
            if log is not None:
                log.clean()


def remove_leftovers(store: Store) -> None:
    """Remove intermediate results of runs that were killed, as far as the store allows."""
    from pyarrow.fs import FileSelector

    files = store.filesystem()
    with contextlib.suppress(OutputError), told(f"look for leftovers in {store.place}"):
        for info in files.get_file_info(FileSelector(store.path(names.STAGING), allow_not_found=True)):
            if _is_left(store, info.base_name):
                files.delete_dir(info.path)


def _is_left(store: Store, name: str) -> bool:
    """Whether the process of a folder HOST-PID-UNIQUE has ended, or all in the folder is old."""
    from pyarrow.fs import FileSelector

    host, pid, _ = name.rsplit("-", 2) if name.count("-") >= 2 else ("", "", "")
    if host == socket.gethostname() and pid.isdecimal():
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        return False
    folder = store.path(f"{names.STAGING}/{name}")
    inside = store.filesystem().get_file_info(FileSelector(folder, recursive=True))
    young = datetime.now(UTC) - LEFT_AFTER
    return all(one.mtime is not None and one.mtime < young for one in inside if one.is_file)
