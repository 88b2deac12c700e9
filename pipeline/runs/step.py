"""What one run adds to the tables: which entries, which of them are lost, and where it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pipeline.tables.reading import read_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.source.inputs import InputLog
    from pipeline.tables.output import Output
    from pipeline.tables.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Entries of one shard, both ends included."""

    from_index: int
    to_index: int
    to_ms: int = -1
    """When the last one was written; -1: not looked at yet."""

    @property
    def count(self) -> int:
        return max(self.to_index - self.from_index + 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Entries of one shard that cannot be had, both ends included."""

    shard: int
    first_index: int
    last_index: int
    what: str
    """Why, in words."""
    is_damage: bool
    """False: they are not kept any more, which is as it should be."""
    from_ms: int
    """The time of the last entry before them; of the first one behind them where there is none."""
    to_ms: int | None
    """The time of the first entry behind them."""

    @property
    def is_unreadable(self) -> bool:
        """A sound entry that cannot be decoded: facts pass it over, as `history` does."""
        return self.first_index == self.last_index and is_undecodable(self.first_index, self.what)


def is_undecodable(index: int, what: str) -> bool:
    """Whether the source says of an entry that its frame is sound and what it holds cannot be read."""
    return f"entry {index} cannot be decoded" in what


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the stages of a run work on."""

    spark: SparkSession
    output: Output
    tx: Transaction
    log: InputLog
    ranges: Mapping[int, Range]
    """The new entries of each shard that has any: their records are staged."""
    lost: tuple[Lost, ...]
    """All that any run has missed, this one too, by shard and index."""
    few: pa.Table | None = None
    """The new records, where they are few."""
    terms: pa.Table | None = None
    """The new rows of table `failovers`."""

    def records(self) -> DataFrame:
        """The new records."""
        return self.tx.staged("records")

    def records_beyond(self, index_by_shard: Mapping[int, int]) -> DataFrame:
        """The records of these shards behind an entry of each, of earlier runs too."""
        beyond = F.lit(False)
        for shard, index in index_by_shard.items():
            beyond |= (F.col("shard") == shard) & (F.col("raft_index") > index)
        stored = read_table(self.spark, self.output.root, "records").where(beyond)
        return stored.unionByName(self.records().where(beyond)) if self.ranges else stored
