"""Facts as a Spark plan: records and stored states are brought together by group and fed to `history.facts`.

Groups to which nothing happened do not appear in the result. There is one shuffle, of the membership records
(not of offset commits) and of the stored rows of the groups concerned.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from coordinator.state.group_records import GROUP_TYPES

from .batches import (
    BRIDGE_ORIGIN,
    IN_COLUMNS,
    RAW,
    RECORD_ORIGIN,
    STORED_ORIGINS,
    derive_batches,
    out_type,
)
from .group import RESTLESS, STATE
from .shared import Shared

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GROUP = ["shard", "group_id"]


def derive(
    records: DataFrame,
    stored: DataFrame | None,
    shared: Shared,
    bridges: DataFrame | None = None,
    tasks: int | None = None,
) -> DataFrame:
    """The rows of all groups to which anything happened; ``kind`` says what to do with each.

    ``rows:TABLE`` is to be appended. ``open:TABLE`` and ``findings`` replace the group's earlier ones, as
    does ``state``, of which every group that was processed has one. ``notes`` and ``part`` are appended to
    ``stored`` (`batches.stored_type`). ``records`` are rows of the source with their raw columns, ``bridges``
    those of the snapshots in ``shared``. ``tasks`` is the number of tasks that share the groups; by default
    Spark decides by bytes, although a megabyte of these records takes seconds.
    """
    inputs = [_of_records(records, RECORD_ORIGIN)]
    if bridges is not None:
        inputs.append(_of_records(bridges, BRIDGE_ORIGIN))
    if stored is not None:
        due = reduce(lambda one, other: one.union(other), (one.select(GROUP) for one in inputs))
        inputs.append(_of_stored(_due(stored, due, shared)))
    rows = reduce(lambda one, other: one.unionByName(other), inputs)
    place = F.least(F.col("origin"), F.lit(BRIDGE_ORIGIN))
    order: list[Column | str] = [*GROUP, place, "raft_index", "origin", "sequence"]
    spread = rows.repartition(*GROUP) if tasks is None else rows.repartition(tasks, *GROUP)
    in_order = spread.sortWithinPartitions(*order)
    return in_order.mapInArrow(partial(derive_batches, shared), out_type())


def _of_records(records: DataFrame, origin: int) -> DataFrame:
    mine = records.where(
        F.col("type").isin([int(one) for one in GROUP_TYPES]) & F.col("group_id").isNotNull()
    )
    found = {name: F.col(RAW.get(name, name)) for name, _ in IN_COLUMNS if name != "origin"}
    return mine.select(*_typed({**found, "origin": F.lit(origin)}))


def _of_stored(stored: DataFrame) -> DataFrame:
    origin = F.create_map(*(F.lit(item) for pair in STORED_ORIGINS.items() for item in pair))
    found = {
        "shard": F.col("shard"),
        "group_id": F.col("group_id"),
        "origin": origin[F.col("kind")],
        "sequence": F.col("sequence"),
        "value": F.col("blob"),
    }
    return stored.select(*_typed(found))


def _typed(found: dict[str, Column]) -> list[Column]:
    return [found.get(name, F.lit(None)).cast(type_).alias(name) for name, type_ in IN_COLUMNS]


def _due(stored: DataFrame, with_records: DataFrame, shared: Shared) -> DataFrame:
    """The stored rows of groups to which something may have happened; `GroupRun` decides exactly."""
    spark = stored.sparkSession
    all_of = [shard for shard, span in shared.shards.items() if span.is_news_to_all]
    due = [with_records]
    if shared.notes and shared.are_notes_new:
        due.append(spark.createDataFrame(list(shared.notes), "shard int, group_id string"))
    is_restless = (F.col("kind") == STATE) & (F.col("sequence") == RESTLESS)
    due.append(stored.where(is_restless).select(GROUP))
    named = reduce(lambda one, other: one.union(other), due).distinct()
    mine = stored.where(F.col("shard").isin(list(shared.shards)))
    some = mine.where(~F.col("shard").isin(all_of)).join(named, GROUP, "left_semi")
    return some.unionByName(mine.where(F.col("shard").isin(all_of))) if all_of else some
