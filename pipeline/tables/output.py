"""An output: the folder that holds the tables, open for one writer at a time.

`Output.open` takes the lock, which is released when the process ends in any way; completes a commit that a
killed run had decided and discards what it had not; and removes files that only this package writes and no
manifest names. A folder that is not ours, another cluster's or a newer release's is refused before anything
is written.

This process and every executor must see the folder at the same path: a local disk with ``local[*]``, else NFS
or another mount. Executors write files and this process renames them; an object store cannot rename
atomically, so its URLs are refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator
from types import TracebackType

from pipeline.errors import OutputBusy, OutputError
from pipeline.schema import TABLES
from raftlog.env.files import TEMPORARY_SUFFIX, Lock, replace, write_aside

from . import journal, names
from .disk import OsOutputFiles, TableFiles, join, place_of, told
from .manifest import OutputManifest, check, load, load_head
from .transaction import Transaction

_NOT_CONTENT = ("lost+found",)
"""Contents of a fresh mount; names that start with a dot are ignored as well."""


class Output:
    """The tables of one cluster, as a context manager for the run that writes them; see `Output.open`."""

    def __init__(self, root: str, files: TableFiles, lock: Lock, manifest: OutputManifest) -> None:
        self.root = root
        self.files = files
        self.manifest = manifest
        """The committed state."""
        self.is_cut_short = False
        """A commit failed while it was being decided; the next `Output.open` settles it."""
        self._lock: Lock | None = lock
        self._transaction: Transaction | None = None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        cluster_id: str,
        num_shards: int | None = None,
        files: TableFiles | None = None,
    ) -> Output:
        """Open the output at ``path``, creating it if necessary.

        Raises `OutputBusy` while another run has it open, else `OutputError`.
        """
        files = files or OsOutputFiles()
        root = place_of(path)
        with told(f"open the output {root}"):
            _refuse_strangers(files, root, cluster_id, num_shards)
            lock = _locked(files, root)
            try:
                manifest = _taken_up(files, root, cluster_id, num_shards)
            except BaseException:
                lock.release()
                raise
        return cls(root, files, lock, manifest)

    def begin(self) -> Transaction:
        """Start a transaction; the previous one must be committed or discarded."""
        if self._lock is None:
            raise ValueError(f"{self.root} is closed")
        if self.is_cut_short:
            raise OutputError(f"a commit to {self.root} was interrupted", "open the output again")
        if self._transaction is not None and not self._transaction.is_over:
            raise ValueError("only one transaction at a time is possible")
        self._transaction = Transaction(self, f"{names.STAGING}/{secrets.token_hex(8)}")
        return self._transaction

    def close(self) -> None:
        """Discard uncommitted changes and release the lock."""
        if self._lock is None:
            return
        if self._transaction is not None:
            self._transaction.discard()
        with contextlib.suppress(OSError):
            self.files.unlink(join(self.root, names.WRITER))
        self._lock.release()
        self._lock = None

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _refuse_strangers(files: TableFiles, root: str, cluster_id: str, num_shards: int | None) -> None:
    """Raise `OutputError` for a folder that is not ours to write; writes nothing."""
    if not files.exists(root):
        return
    if not files.is_dir(root):
        raise OutputError(f"{root} is not a folder", "give one that is empty or does not exist yet")
    if files.exists(join(root, names.MANIFEST)):
        check(load_head(files, root), root, cluster_id, num_shards)
        return
    content = [n for n in files.listdir(root) if not n.startswith(".") and n not in _NOT_CONTENT]
    if content and content != [names.OURS]:
        raise OutputError(
            f"{root} is not empty and holds no tables (it has no {names.MANIFEST})",
            "give a folder that is empty or does not exist yet",
        )


def _locked(files: TableFiles, root: str) -> Lock:
    files.make_root(join(root, names.OURS))
    try:
        return files.lock(join(root, names.LOCK))
    except BlockingIOError:
        raise OutputBusy(
            f"{root} is being written by another run{_who(files, root)}", "wait until it ends, or stop it"
        ) from None


def _who(files: TableFiles, root: str) -> str:
    try:
        who = json.loads(files.read(join(root, names.WRITER)))
        return f": process {who['pid']} on {who['host']}, since {who['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # it has only just started, or is ending


def _taken_up(files: TableFiles, root: str, cluster_id: str, num_shards: int | None) -> OutputManifest:
    """Bring the folder to the state of its last commit and return its manifest."""
    who = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
    with contextlib.suppress(OSError):  # on a full disk, completing the commit comes first: it frees space
        write_aside(files, join(root, names.WRITER), json.dumps(who).encode())
    journal.complete(files, root)
    if not files.exists(join(root, names.MANIFEST)):
        _claim(files, root, OutputManifest(cluster_id=cluster_id, num_shards=num_shards))
    manifest = load(files, root)
    check(manifest, root, cluster_id, num_shards)
    for path in list(_strays(files, root, manifest)):
        files.unlink(join(root, path))
    files.remove_tree(join(root, names.STAGING))
    if not files.exists(join(root, names.STAGING)):
        files.mkdir(join(root, names.STAGING))
    return manifest


def _claim(files: TableFiles, root: str, manifest: OutputManifest) -> None:
    """Write the first manifest, which assigns the folder to this cluster."""
    head, listed = manifest.encoded()
    replace(files, join(root, names.files_list(manifest.version)), listed)
    replace(files, join(root, names.MANIFEST), head)
    files.fsync_dir(root)


def _strays(files: TableFiles, root: str, manifest: OutputManifest) -> Iterator[str]:
    """Files that only this package writes and no manifest names."""
    named = {file.path for file in manifest.files}
    tables = [table for table in TABLES if files.is_dir(join(root, table))]
    if files.exists(join(root, names.INTERNAL)):
        tables += [f"{names.INTERNAL}/{one}" for one in files.listdir(join(root, names.INTERNAL))]
    for table in tables:
        for path in _below(files, root, table):
            if path not in named and names.is_table_file(path):
                yield path
    for name in files.listdir(join(root, names.OURS)):
        path = f"{names.OURS}/{name}"
        is_list = names.is_files_list(path) and path != names.files_list(manifest.version)
        if is_list or name.endswith(TEMPORARY_SUFFIX):
            yield path


def _below(files: TableFiles, root: str, folder: str) -> Iterator[str]:
    """The files of a table, in its folder and those of its dates and shards."""
    for name in files.listdir(join(root, folder)):
        path = f"{folder}/{name}"
        if not files.is_dir(join(root, path)):
            yield path
        elif name.startswith(("date=", "shard=")):
            yield from _below(files, root, path)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
