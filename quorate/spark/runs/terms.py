"""Terms: the rows of table `failovers`, and the terms that groups may still have to take in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from history.facts.rows import TermRow
from history.words import is_takeover, term_why
from quorate.spark.errors import InputError
from quorate.spark.tables.files import read_file
from records import RawRecord, RecordsError, TermStartValue, decode_value

if TYPE_CHECKING:
    from quorate.spark.tables.output import Output

TERMS_MAX = 100_000
"""Limit on the terms of a log: every task has them, some ten megabytes."""
Place = tuple[int, int]
"""Shard and index of an entry."""
_NOBODY = -1


def terms_begun(starts: Iterable[Mapping[str, Any]], ends: Mapping[Place, int]) -> list[TermRow]:
    """The terms that start with these records, in order; ``ends`` has timestamps of entries before them.

    ``gap_ms`` is null where the entry before is not known. A term that this release cannot decode is skipped.
    """
    found = []
    for row in sorted(starts, key=lambda row: (row["shard"], row["raft_index"])):
        with contextlib.suppress(RecordsError):
            term = decode_value(RawRecord(row["type"], row["version"], b"", row["value_bytes"]))
            if isinstance(term, TermStartValue):
                found.append(_term(row, term, ends))
    return found


def _term(row: Mapping[str, Any], term: TermStartValue, ends: Mapping[Place, int]) -> TermRow:
    before_ms = row["before_ms"]
    if before_ms is None:
        before_ms = ends.get((row["shard"], row["raft_index"] - 1))
    return TermRow(
        shard=row["shard"],
        term=term.term,
        index=row["raft_index"],
        timestamp_ms=row["timestamp_ms"],
        node_id=term.node_id,
        previous_leader=term.previous_leader,
        why=term_why(term.why),
        is_takeover=is_takeover(term),
        gap_ms=None if before_ms is None else row["timestamp_ms"] - before_ms,
    )


def terms_before(output: Output) -> Iterator[TermRow]:
    """The terms of earlier runs; raises `InputError` if there are more than `TERMS_MAX`."""
    files = output.files("failovers")
    if sum(file.rows for file in files) > TERMS_MAX:
        raise InputError(f"the log has more than {TERMS_MAX:,} terms", "a healthy cluster has few elections")
    for file in files:
        rows = read_file(output.store, "failovers", file.path)
        at_ms = rows.column("timestamp").cast(pa.int64()).to_pylist()
        for row, at in zip(rows.drop_columns(["timestamp"]).to_pylist(), at_ms, strict=True):
            previous = row["previous_leader"]
            yield TermRow(
                shard=row["shard"],
                term=row["term"],
                index=row["raft_index"],
                timestamp_ms=at // 1_000,
                node_id=row["node_id"],
                previous_leader=_NOBODY if previous is None else previous,
                why=row["why"],
                is_takeover=row["is_takeover"],
                gap_ms=row["gap_ms"],
            )
