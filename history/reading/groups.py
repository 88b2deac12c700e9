"""The groups that a log knows, for the error message about a group that it does not know."""

from __future__ import annotations

import contextlib
import difflib

from raftlog.storage.frames import Frame
from records import RecordsError, RecordType, group_id_of, iter_records
from records.ids import METADATA_SHARD

from .node import NodeLog
from .source import Basis, LogGap, Walk

GROUPS_NAMED_MAX = 8
"""Maximum number of names in an error message."""

_FOUNDING = (
    RecordType.CONSUMER_GROUP_METADATA,
    RecordType.GROUP_METADATA,
    RecordType.REWRITE_GROUP,
    RecordType.PUSH_GROUP,
)


def groups_of(log: NodeLog) -> list[str]:
    """The ids of all groups in the entries that are kept, sorted."""
    found: set[str] = set()
    for shard in log.shards:
        if shard == METADATA_SHARD:
            continue
        for item in Walk(shard, log.reader(shard)):
            if isinstance(item, LogGap):
                continue
            with contextlib.suppress(RecordsError):
                raws = iter_records(item.body) if isinstance(item, Frame) else item.records
                found.update(group_id_of(raw) or "" for raw in raws if raw.type in _FOUNDING)
    return sorted(found - {""})


def unknown_group(log: NodeLog, group_id: str, basis: Basis) -> str:
    """Error message for an unknown group: what was read, and which groups exist."""
    groups = groups_of(log)
    said = f"no epoch of group {group_id!r} in {log.path} ({basis.words()}): "
    if not groups:
        return said + "it holds no group at all"
    if group_id in groups:
        return said + "the group is in entries that were not asked for, or in another shard"
    shown = difflib.get_close_matches(group_id, groups, GROUPS_NAMED_MAX) or groups[:GROUPS_NAMED_MAX]
    rest = len(groups) - len(shown)
    names = ", ".join(shown)
    return said + f"it has {names}" + (f" and {rest} more" if rest else "")
