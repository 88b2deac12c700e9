"""Compares the logs of a cluster's nodes entry by entry, as read with `option("rows", "entries")`.

Blocks of 4,096 indexes are compared by a hash of their entries' CRCs, which cover every byte. Only blocks
that differ are then compared entry by entry. Entries that were never decided may differ: those above the last
decided index, and the tail of a leader that failed before its entries reached a quorum.
`history.reading.quorum` determines the decided index, as it does for `quorate log compare`; both report the
same differences.

Only `compare` sees what is not in entries: a snapshot or a hash chain that does not match its log, a commit
index named only by a snapshot or by the marker of a clean stop, and whether a node is still joining.
`compare` stops at a shard's first difference; this analysis reports all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter, xor
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as f

from history.export.columns import int32, int64, ints, text
from history.reading.quorum import Tail, TermRun, decided
from quorate.spark.schema import ENTRY_COLUMNS, arrow_type, columns_named, spark_type

from .registry import ENTRIES, Analysis, needed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BLOCK = 4096
"""Indexes that are hashed together: one row per node for some hundred kilobytes of its log."""
DIFFERS, MISSING, BEHIND = "differs", "missing", "behind"
_SHARD = ("cluster_id", "shard")
_VARIANT = ("term", "timestamp", "size", "crc")
_COMPARED = ("raft_index", "node_id", *_VARIANT)
_NOWHERE = 1 << 62


def replica_divergence(entries: DataFrame, num_voters: int | None = None) -> DataFrame:
    """Ranges in which the nodes of a cluster do not hold the same decided entries."""
    needed(entries, "replica_divergence", "node_id", "crc", "commit_index")
    entries = entries.where(f.col("crc").isNotNull())  # a damaged range is a row without a CRC
    block = f.floor(f.col("raft_index") / BLOCK).cast("bigint").alias("block")
    hashed = f.xxhash64("raft_index", "term", "size", "crc")
    blocks = entries.groupBy(*_SHARD, "node_id", block, "term").agg(
        f.count(f.lit(1)).alias("count"),
        f.bit_xor(hashed).alias("hash"),
        f.min("raft_index").alias("first"),
        f.max("raft_index").alias("last"),
        f.max("commit_index").alias("commit_index"),
    )

    def judged(table: pa.Table) -> pa.Table:
        return _judged(table, num_voters)

    by_shard = blocks.groupBy(*_SHARD).applyInArrow(judged, spark_type(_JUDGED))
    is_block = f.col("kind") == _SUSPECT
    wanted = by_shard.where(is_block).select(*_SHARD, f.col("first").alias("block"), "node_id", "last")
    suspect = entries.withColumn("block", block).join(f.broadcast(wanted), [*_SHARD, "block", "node_id"])
    suspect = suspect.where(f.col("raft_index") <= f.col("last")).select(*_SHARD, "block", *_COMPARED)
    exact = suspect.groupBy(*_SHARD, "block").applyInArrow(_exact, spark_type(COLUMNS))
    ranges = by_shard.where(~is_block).select(
        *_SHARD,
        "kind",
        f.col("first").alias("from_index"),
        f.col("last").alias("to_index"),
        f.array(f.col("node_id").cast("bigint")).alias("node_ids"),
    )
    return exact.unionByName(ranges, allowMissingColumns=True)


# One block: the entries of all nodes, up to each node's last decided one.


def _exact(table: pa.Table) -> pa.Table:
    """Entries that differ between nodes, and entries that a node lacks between two that it has."""
    rows = table.to_pylist()
    said = {name: rows[0][name] for name in _SHARD}
    by_index: dict[int, dict[tuple[int, ...], list[int]]] = {}
    by_node: dict[int, list[int]] = {}
    for row in sorted(rows, key=itemgetter("raft_index", "node_id")):
        variant = tuple(row[name] for name in _VARIANT)
        by_index.setdefault(row["raft_index"], {}).setdefault(variant, []).append(row["node_id"])
        by_node.setdefault(row["node_id"], []).append(row["raft_index"])
    found = [
        {
            **said,
            "kind": DIFFERS,
            "from_index": index,
            "to_index": index,
            "node_ids": nodes,
            **dict(zip(_VARIANT, variant, strict=True)),
        }
        for index, variants in by_index.items()
        if len(variants) > 1
        for variant, nodes in variants.items()
    ]
    found += [
        {**said, "kind": MISSING, "from_index": one + 1, "to_index": following - 1, "node_ids": [node]}
        for node, indexes in by_node.items()
        for one, following in pairwise(indexes)
        if following > one + 1
    ]
    return pa.Table.from_pylist(found, arrow_type(COLUMNS))


# One shard: a row for each block of each node.


@dataclass(frozen=True, slots=True)
class _Piece:
    """A node's entries of one term in one block."""

    block: int
    term: int
    count: int
    hash: int
    first: int
    last: int
    commit_index: int


_Pieces = dict[int, list[_Piece]]
"""Pieces by node."""
_SUSPECT = "suspect"


def _judged(table: pa.Table, num_voters: int | None) -> pa.Table:
    rows = table.to_pylist()
    pieces: _Pieces = {}
    for row in rows:
        piece = _Piece(*(row[name] for name in _Piece.__slots__))
        pieces.setdefault(row["node_id"], []).append(piece)
    said = {name: rows[0][name] for name in _SHARD}
    found = [
        {**said, "kind": kind, "node_id": node, "first": first, "last": last}
        for kind, node, first, last in _judgements(pieces, num_voters or len(pieces))
    ]
    return pa.Table.from_pylist(found, arrow_type(_JUDGED))


def _judgements(pieces: _Pieces, num_voters: int) -> Iterator[tuple[str, int, int, int]]:
    """Yield (kind, node, first, last): a block to compare up to ``last``, or indexes that a node lacks."""
    runs = {node: list(_runs(mine)) for node, mine in pieces.items()}
    index, known = _decided(pieces, runs, num_voters)
    of_block: dict[int, list[tuple[int, _Piece, int]]] = {}
    for node, mine in pieces.items():
        until = min(index, _cut(node, runs, known, index) - 1)
        blocks = [
            _as_one(list(held))
            for _, held in groupby(sorted(mine, key=attrgetter("block", "first")), attrgetter("block"))
        ]
        held = [one for one in blocks if one.first <= until]
        for one, following in pairwise(held):
            if following.first > one.last + 1:
                yield MISSING, node, one.last + 1, following.first - 1
        end = min(held[-1].last, until) if held else blocks[0].first - 1
        if end < index:
            yield BEHIND, node, end + 1, index
        for one in held:
            of_block.setdefault(one.block, []).append((node, one, until))
    for block, several in of_block.items():
        sums = {(one.count, one.hash) for _, one, _ in several}
        if len(sums) > 1 or any(one.count <= one.last - one.first for _, one, _ in several):
            for node, _, until in several:
                yield _SUSPECT, node, block, until


def _as_one(held: Sequence[_Piece]) -> _Piece:
    """All terms of a node's block merged into one piece, whose term is no longer meaningful."""
    return _Piece(
        block=held[0].block,
        term=held[0].term,
        count=sum(one.count for one in held),
        hash=reduce(xor, (one.hash for one in held)),
        first=min(one.first for one in held),
        last=max(one.last for one in held),
        commit_index=max(one.commit_index for one in held),
    )


_Run = tuple[int, int, int]
"""First index, last index, term."""


def _runs(mine: Sequence[_Piece]) -> Iterator[_Run]:
    """One run per term of a node; terms rise along a log, so each term is contiguous."""
    for term, of_term in groupby(sorted(mine, key=attrgetter("term")), attrgetter("term")):
        run = list(of_term)
        yield min(one.first for one in run), max(one.last for one in run), term


def _decided(pieces: _Pieces, runs: dict[int, list[_Run]], num_voters: int) -> tuple[int, dict[int, int]]:
    """The shard's last decided index, and by node the last index known to be decided."""
    named = {node: max(one.commit_index for one in mine) for node, mine in pieces.items()}
    above = max(named.values())
    tails = []
    for node, mine in pieces.items():
        newest = max(mine, key=lambda one: one.last)
        mine_above = tuple(
            TermRun(first_index=max(first, above + 1), last_index=last, term=term)
            for first, last, term in runs[node]
            if last > above
        )
        tails.append(
            Tail(
                node_id=node,
                commit_index=named[node] if num_voters > 1 else newest.last,
                last_index=newest.last,
                last_term=newest.term,
                runs=mine_above,
            )
        )
    proven = decided(tails, num_voters)
    return proven.index, dict(zip(pieces, proven.known, strict=True))


def _cut(node: int, runs: dict[int, list[_Run]], known: dict[int, int], index: int) -> int:
    """The first index from which a node's entries were never decided.

    It is the first entry beyond those known to be decided whose term differs from that of a decided entry at
    the same index on another node.
    """
    cut = _NOWHERE
    for first, last, term in runs[node]:
        at, end = max(first, known[node] + 1), min(last, index)
        if at > end:
            continue
        surely = [
            (run[0], min(run[1], known[other]), run[2])
            for other, others in runs.items()
            for run in others
            if run[0] <= min(end, known[other])
        ]
        for begin, until, other_term in surely:
            begin = max(begin, at)
            for same in sorted(one for one in surely if one[2] == term):
                if same[0] <= begin <= same[1]:
                    begin = same[1] + 1
            if other_term != term and begin <= min(until, end):
                cut = min(cut, begin)
    return cut


_JUDGED = (
    *columns_named(ENTRY_COLUMNS, ["cluster_id", "shard"]),
    text("kind", "What was found."),
    int32("node_id", "The node."),
    int64("first", "The first index, or the block."),
    int64("last", "The last index."),
)
COLUMNS = (
    *columns_named(ENTRY_COLUMNS, ["cluster_id", "shard"]),
    text(
        "kind",
        "`differs`: one variant of an entry that is not the same everywhere; `missing`: entries that a node"
        " lacks in the middle of its log; `behind`: entries that it lacks at the end.",
    ),
    int64("from_index", "The first entry."),
    int64("to_index", "The last entry."),
    ints("node_ids", "The nodes that hold this variant, or that lack the entries."),
    *columns_named(ENTRY_COLUMNS, ["term", "timestamp", "size", "crc"]),
)

ANALYSES = (
    Analysis(
        takes=(ENTRIES,),
        answers=(
            "Which decided entries differ between nodes, or are missing on some? A node that lags is also "
            "listed; compacted and undecided entries are not a divergence."
        ),
        columns=COLUMNS,
        run=replica_divergence,
        options={
            "num_voters": "Number of voters, if not all of their directories are read.",
        },
    ),
)
