"""A table that is ahead of `progress`: left so by a killed run, compacted by another tool, or changed by one.

What is in the table decides. If it has the files of the version that `progress` names, whatever happened in
between is accepted: a vacuum, properties, a change that was taken back. Commits of our own runs that no
`progress` names are undone. Another tool's compaction is accepted where it only merged files of the part
`rows`, and undone where it mixed parts, since files of other parts are replaced by later runs. Any other
change by another tool is refused.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from quorate.spark.errors import OutputError

from . import names
from .delta import Signature, TableLog, delta_schema, words_of, written_by
from .failures import told
from .store import Store

READER_VERSION, WRITER_VERSION, WRITER_VERSION_OF_FEATURES = 1, 2, 7
WRITER_FEATURES = frozenset({"appendOnly", "invariants"})
"""The protocol of our tables; with these features alone a newer protocol is the same."""
COMMITS_MAX = 10_000
"""Commits ahead of `progress` that are looked at."""
_COMMIT = re.compile(r"\d{20}\.json")


def settled(log: TableLog, named: int, signature: Signature) -> TableLog:
    """The table at a version that a run may build on; ``log`` is its last, ``named`` that of `progress`.

    ``signature`` is for a commit that takes others back. Raises `OutputError` for a change that was not made
    by a run.
    """
    check_protocol(log)
    if log.version == named:
        return log
    before = TableLog.load(log.store, log.table, named)
    if log.version < named or before is None:
        raise _refused(log, f"has version {log.version}, but progress names {named}", named)
    if _is_same(before, log):
        return log
    _check_columns(before, log, named)
    if _is_accepted(before, log, named):
        return log
    log.restore(named, signature)
    if not _is_same(before, log):
        raise _refused(log, f"could not be restored to version {named}", named)
    return log


def last_version(store: Store, table: str) -> TableLog | None:
    """The table at its last version, without a commit that a power failure cut short; None: no table."""
    try:
        return TableLog.load(store, table)
    except OutputError:
        if not _remove_torn(store, table):
            raise
        return TableLog.load(store, table)


def _remove_torn(store: Store, table: str) -> bool:
    """Remove the last commit of a local log if it is not whole; returns whether it was removed.

    A whole commit is renamed into place, so that no writer is at work on this one. It was never counted:
    a run makes each commit durable before the next.
    """
    if not store.is_local:
        return False
    folder = store.below(names.folder_of(table)).path("_delta_log")
    with told(f"read the log of {table} in {store.place}"):
        commits = sorted(name for name in os.listdir(folder) if _COMMIT.fullmatch(name))
        for name in commits[-1:]:
            path = os.path.join(folder, name)
            try:
                with open(path, encoding="utf-8") as file:
                    for line in file:
                        json.loads(line)
            except ValueError:
                os.unlink(path)
                return True
    return False


def check_progress(log: TableLog) -> None:
    """Raise `OutputError` if another tool has changed rows of `progress` since our last commit to it."""
    for version in range(log.version, max(log.version - COMMITS_MAX, -1), -1):
        actions = log.commit_json(version)
        if actions is None or written_by(actions) is not None:
            return
        if _changes_data(actions):
            what = words_of(actions).get("operation", "a change")
            raise _refused(log, f"was changed by another tool: version {version}, {what}", version - 1)


def check_protocol(log: TableLog) -> None:
    """Raise `OutputError` if another tool gave the table a protocol or feature that we do not write."""
    protocol = log.delta.protocol()
    features = set(protocol.writer_features or ())
    unknown = sorted(features - WRITER_FEATURES)
    newer = protocol.min_writer_version > WRITER_VERSION and (
        protocol.min_writer_version != WRITER_VERSION_OF_FEATURES or unknown
    )
    if protocol.min_reader_version > READER_VERSION or newer:
        asks = f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}"
        raise OutputError(
            f"the table {log.table} in {log.store.place} needs Delta's {asks}"
            f"{', features ' + ', '.join(unknown) if unknown else ''}: another tool has raised its protocol, "
            f"and this release writes {READER_VERSION} and {WRITER_VERSION}",
            "run into a new output: quorate pipeline run -i … -o NEW",
        )


def _is_same(before: TableLog, after: TableLog) -> bool:
    """Whether the table has the same files, and no columns but ours were added."""
    if {file.path for file in before.files()} != {file.path for file in after.files()}:
        return False
    _check_columns(before, after, before.version)
    return True


def _check_columns(before: TableLog, after: TableLog, named: int) -> None:
    old, new = (({one.name: one.type for one in log.delta.schema().fields}) for log in (before, after))
    ours = {one.name: one.type for one in delta_schema(after.table).fields}
    kept = all(new.get(name) == kind for name, kind in old.items())
    if not kept or any(ours.get(name) != kind for name, kind in new.items() if name not in old):
        raise _refused(after, "has other columns than our runs gave it", named)


def _is_accepted(before: TableLog, log: TableLog, named: int) -> bool:
    """Whether the last version may be built on; False: the changes are to be undone."""
    if log.version - named > COMMITS_MAX:
        raise _refused(log, f"has {log.version - named} commits that are not of our runs", named)
    parts = {file.path: file.part for file in before.files()}
    is_ours = is_mixed = False
    for version in range(named + 1, log.version + 1):
        actions = log.commit_json(version)
        if actions is None:
            raise _refused(log, f"was changed, and its log no longer has version {version}", named)
        if written_by(actions) is not None:
            is_ours = True  # its data is undone with all that is built on it
            continue
        if _changes_data(actions):
            what = words_of(actions).get("operation", "a change")
            raise _refused(log, f"was changed by another tool: version {version}, {what}", named)
        removed = {parts.get(one["remove"]["path"], names.ROWS) for one in actions if "remove" in one}
        is_mixed = is_mixed or bool(removed - {names.ROWS})
    return not (is_ours or is_mixed)


def _changes_data(actions: list[dict[str, Any]]) -> bool:
    changes = [one.get("add") or one.get("remove") for one in actions]
    return any(one.get("dataChange", True) for one in changes if one) or any("cdc" in one for one in actions)


def _refused(log: TableLog, what: str, named: int) -> OutputError:
    return OutputError(
        f"the table {log.table} in {log.store.place} {what}",
        f"restore it to version {named} (RESTORE TABLE … TO VERSION AS OF {named}), "
        "or run into a new output: quorate pipeline run -i … -o NEW",
    )
