"""Accounts for every entry: it is in the tables, or it is lost and a finding says so.

The ranges that the tasks of an ingest read are compared with those the log is known to have. A compacted
beginning is expected; damage is as the source reports it. Entries explained by neither vanished while the
log was read, and the run is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from history.words import shard_name
from quorate.spark.errors import InputError
from quorate.spark.schema import TABLES, arrow_type, micros
from quorate.spark.tables.files import read_file

from .ingesting import HOLES_MAX, IngestResult, Run

if TYPE_CHECKING:
    from quorate.spark.source.inputs import InputLog
    from quorate.spark.tables.output import Output

PART = "log"
"""The part of table `findings` about the log rather than a group, written anew when it changes."""
DAMAGED, GAP, REPAIRED = "LOG_DAMAGED", "LOG_GAP", "LOG_REPAIRED"
_SEVERITIES = {DAMAGED: "error", GAP: "note", REPAIRED: "warning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Entries of one shard, both ends included."""

    from_index: int
    to_index: int
    to_ms: int = -1
    """Timestamp of the last entry; -1: not read yet."""

    @property
    def count(self) -> int:
        return max(self.to_index - self.from_index + 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Entries of one shard that are missing, or were read from another node's copy; both ends included."""

    kind: str
    """`DAMAGED`, `GAP` (no longer kept, which is expected) or `REPAIRED`."""
    shard: int
    first_index: int
    last_index: int
    what: str
    """The reason, in words."""
    from_ms: int
    """Timestamp of the last entry before them, or of the first one after them if there is none."""
    to_ms: int | None
    """Timestamp of the first entry after them."""

    @property
    def is_damage(self) -> bool:
        return self.kind == DAMAGED

    @property
    def is_repair(self) -> bool:
        """Whether another node's copy had the entries, so that nothing is missing."""
        return self.kind == REPAIRED

    @property
    def is_unreadable(self) -> bool:
        """Whether this is a sound entry that cannot be decoded; facts skip it, as `history` does."""
        return self.first_index == self.last_index and _is_undecodable(self.first_index, self.what)


def _is_undecodable(index: int, what: str) -> bool:
    """Whether the source reports that an entry's frame is sound but its contents cannot be decoded."""
    return f"entry {index} cannot be decoded" in what


def not_kept(log: InputLog, shard: int, asked: Range, before_ms: int | None, first_ms: int) -> Lost:
    """The part of a range that is no longer kept; ``before_ms`` is set if an earlier run read up to it."""
    first, last = asked.from_index, min(log.shards[shard].begins_index - 1, asked.to_index)
    why = "" if before_ms is None else ": they were removed before a run read them"
    return Lost(
        kind=GAP,
        shard=shard,
        first_index=first,
        last_index=last,
        what=f"entries {first} to {last} of {shard_name(shard)} are not kept{why}",
        from_ms=first_ms if before_ms is None else before_ms,
        to_ms=first_ms,
    )


def damage(
    path: str, found: IngestResult, asked: Mapping[int, Range], known: Lost | None = None
) -> Iterator[Lost]:
    """The entries missing from these ranges; raises `InputError` for any that damage does not explain.

    ``known`` is an earlier loss of these entries, of which only what can be read was read again.
    """
    said: dict[int, list[tuple[int, str]]] = {}
    for shard, index, what in sorted(found.damage):
        said.setdefault(shard, []).append((index, what))
    holes = [hole for shard, one in asked.items() for hole in holes_in(shard, one, found.runs.get(shard, ()))]
    if len(holes) > HOLES_MAX:
        raise InputError(f"entries are missing in more than {HOLES_MAX:,} places", "read another node's log")
    for hole, words in (found for one in holes for found in pieces(one, said.get(one.shard, ()))):
        if not words and known is None:
            raise InputError(
                f"entries {hole.first} to {hole.last} of {shard_name(hole.shard)} were removed while "
                f"{path} was read",
                "run again, or read a copy that does not change",
            )
        more = f" (and {len(words) - 1} more)" if len(words) > 1 else ""
        what = f"{shard_name(hole.shard)}: {words[0]}{more}" if words or known is None else known.what
        yield Lost(
            kind=DAMAGED,
            shard=hole.shard,
            first_index=hole.first,
            last_index=hole.last,
            what=what,
            from_ms=known.from_ms if known and hole.first == known.first_index else hole.from_ms,
            to_ms=known.to_ms if known and hole.last == known.last_index else hole.to_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Consecutive entries that were not read, both ends included."""

    shard: int
    first: int
    last: int
    from_ms: int
    to_ms: int | None


def holes_in(shard: int, asked: Range, runs: Sequence[Run]) -> Iterator[Hole]:
    """The gaps between the runs (in order, none adjacent) within a range."""
    at, at_ms = asked.from_index - 1, None
    for run in runs:
        if run.first > at + 1:
            from_ms = run.first_ms if at_ms is None else at_ms
            yield Hole(shard=shard, first=at + 1, last=run.first - 1, from_ms=from_ms, to_ms=run.first_ms)
        at, at_ms = run.last, run.last_ms
    if at < asked.to_index:
        yield Hole(shard=shard, first=at + 1, last=asked.to_index, from_ms=at_ms or 0, to_ms=None)


def pieces(hole: Hole, said: Sequence[tuple[int, str]]) -> Iterator[tuple[Hole, list[str]]]:
    """Split a hole into single undecodable entries and lost ranges between them, each with its description.

    Facts skip the former and stop at the latter, so neighbours of different kinds must not be merged.
    """
    within = [(at, what) for at, what in said if hole.first <= at <= hole.last]
    first = hole.first
    for at, what in [*((at, what) for at, what in within if _is_undecodable(at, what)), (hole.last + 1, "")]:
        if first < at:
            words = [words for place, words in within if first <= place < at]
            yield replace(hole, first=first, last=at - 1), words
        if what:
            yield replace(hole, first=at, last=at), [what]
        first = at + 1


def findings(cluster_id: str, lost: Iterable[Lost]) -> pa.Table:
    """Rows of table `findings` for losses and repairs; they have no group."""
    schema = arrow_type(TABLES["findings"].columns)
    rows: list[dict[str, Any]] = [
        {
            "cluster_id": cluster_id,
            "kind": one.kind,
            "severity": _SEVERITIES[one.kind],
            "shard": one.shard,
            "epochs": [],
            "members": [],
            "partitions": [],
            "from_index": one.first_index,
            "from_time": micros(one.from_ms),
            "to_index": one.last_index,
            "to_time": None if one.to_ms is None else micros(one.to_ms),
            "words": one.what,
            "rests_on": [],
            "is_certain": True,
        }
        for one in lost
    ]
    return pa.Table.from_pylist(rows, schema)


def lost_before(output: Output) -> tuple[Lost, ...]:
    """The notes of earlier runs; at most `HOLES_MAX`."""
    rows: list[dict[str, Any]] = []
    for file in output.files("findings", PART):
        rows += read_file(output.store, "findings", file.path).to_pylist()
    return tuple(
        Lost(
            kind=row["kind"],
            shard=row["shard"],
            first_index=row["from_index"],
            last_index=row["to_index"],
            what=row["words"],
            from_ms=_ms(row["from_time"]) or 0,
            to_ms=_ms(row["to_time"]),
        )
        for row in sorted(rows, key=lambda row: (row["shard"], row["from_index"]))
    )


def _ms(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1_000)
