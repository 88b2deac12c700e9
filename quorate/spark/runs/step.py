"""The data that the stages of a run work on, and the choice of where they work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .losses import Lost, Range
from .workers import InProcess, OnSpark, Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from history.facts.rows import TermRow
    from quorate.spark.source.inputs import InputLog
    from quorate.spark.tables.output import Output
    from quorate.spark.tables.transaction import Transaction

Start = Callable[[int], "SparkSession"]
"""Starts a session, given the number of bytes to read."""
Say = Callable[[str], None]
"""Receives a line about the progress."""


class WorkPlaces:
    """Chooses this process for little work, and Spark, which is started at its first use, for more."""

    def __init__(self, spark: SparkSession | Start) -> None:
        self._spark = spark
        self._session: OnSpark | None = None

    def choose(self, size: int, *, is_little: bool) -> Workers:
        """The place for work on ``size`` bytes."""
        if is_little:
            return InProcess()
        if self._session is None:
            self._session = OnSpark(self._spark(size) if callable(self._spark) else self._spark)
        return self._session


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep:
    """One run, between reading and committing."""

    places: WorkPlaces
    output: Output
    tx: Transaction
    log: InputLog
    say: Say
    ranges: Mapping[int, Range]
    """The new entries of each shard with any."""
    lost: tuple[Lost, ...]
    """Entries that are missing or were repaired, found by this and earlier runs, by shard and index."""
    terms: tuple[TermRow, ...]
    """All terms, of earlier runs and of this one, by shard and index."""
    staged: tuple[str, ...] = ()
    """Paths of the records of groups, in the staging folder."""
    staged_rows: int = 0
    groups: frozenset[tuple[int, str]] = frozenset()
    """Shard and id of every group with new records."""
    are_old_repaired: bool = False
    """Whether entries that an earlier run had given up were read now; facts then begin anew."""
