"""The contents of one run: its new entries, the lost ones, and the transaction they are written to."""

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
    """Timestamp of the last entry; -1: not read yet."""

    @property
    def count(self) -> int:
        return max(self.to_index - self.from_index + 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Entries of one shard that are missing, both ends included."""

    shard: int
    first_index: int
    last_index: int
    what: str
    """The reason, in words."""
    is_damage: bool
    """False: they are no longer kept, which is expected."""
    from_ms: int
    """Timestamp of the last entry before them, or of the first one after them if there is none."""
    to_ms: int | None
    """Timestamp of the first entry after them."""

    @property
    def is_unreadable(self) -> bool:
        """Whether this is a sound entry that cannot be decoded; facts skip it, as `history` does."""
        return self.first_index == self.last_index and is_undecodable(self.first_index, self.what)


def is_undecodable(index: int, what: str) -> bool:
    """Whether the source reports that an entry's frame is sound but its contents cannot be decoded."""
    return f"entry {index} cannot be decoded" in what


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep:
    """The data that the stages of a run work on."""

    spark: SparkSession
    output: Output
    tx: Transaction
    log: InputLog
    ranges: Mapping[int, Range]
    """The new entries of each shard with any; their records are staged."""
    lost: tuple[Lost, ...]
    """All losses found by this and earlier runs, by shard and index."""
    few: pa.Table | None = None
    """The new records, if they are few."""
    terms: pa.Table | None = None
    """The new rows of table `failovers`."""

    def records(self) -> DataFrame:
        """The new records."""
        return self.tx.staged("records")

    def records_beyond(self, index_by_shard: Mapping[int, int]) -> DataFrame:
        """The records after the given entry of each shard, including those of earlier runs."""
        beyond = F.lit(False)
        for shard, index in index_by_shard.items():
            beyond |= (F.col("shard") == shard) & (F.col("raft_index") > index)
        stored = read_table(self.spark, self.output.root, "records").where(beyond)
        return stored.unionByName(self.records().where(beyond)) if self.ranges else stored
