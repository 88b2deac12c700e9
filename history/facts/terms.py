"""The terms of a shard as rows, from a walk over its entries."""

from __future__ import annotations

from history.reading.source import LogGap, SnapshotLike
from history.words import is_takeover, term_why
from raftlog.offline.group_filter import Passed
from raftlog.storage.frames import Frame
from records import RecordsError, RecordType, TermStartValue, decode_value, iter_records

from .rows import TermRow


class ShardTerms:
    """Finds the terms of one shard in the items of a walk."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._last_ms: int | None = None

    def take(self, item: Frame | LogGap | SnapshotLike | Passed) -> TermRow | None:
        """Take the next item; the term that it starts, if it does. An unreadable entry starts none."""
        if isinstance(item, LogGap):
            return None
        last_ms = self._last_ms
        if not isinstance(item, (Frame, Passed)):
            self._last_ms = item.header.last_timestamp_ms
            return None
        self._last_ms = item.timestamp_ms
        if isinstance(item, Passed) or item.record_count != 1:
            return None
        term = _start_in(item)
        if term is None:
            return None
        return term_row(self._shard, item.index, item.timestamp_ms, term, last_ms)


def term_row(shard: int, index: int, ms: int, term: TermStartValue, last_ms: int | None) -> TermRow:
    """The row of a term that an entry starts; ``last_ms``: the time of the entry before it, if known."""
    return TermRow(
        shard=shard,
        term=term.term,
        index=index,
        timestamp_ms=ms,
        node_id=term.node_id,
        previous_leader=term.previous_leader,
        why=term_why(term.why),
        is_takeover=is_takeover(term),
        gap_ms=None if last_ms is None else ms - last_ms,
    )


def _start_in(frame: Frame) -> TermStartValue | None:
    try:
        for raw in iter_records(frame.body):
            if raw.type == RecordType.TERM_START:
                value = decode_value(raw)
                return value if isinstance(value, TermStartValue) else None
    except RecordsError:
        pass
    return None
