"""`derive` for few records: the same groups go through the same code, in this process.

A Spark plan takes a second or two however small its input, and most batches of a stream are small.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from coordinator.state.group_records import GROUP_TYPES
from pipeline.schema import conformed

from .batches import BRIDGE_ORIGIN, IN_COLUMNS, RAW, RECORD_ORIGIN, STORED_ORIGINS, derive_batches
from .shared import Shared

_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
_IN = pa.schema([(name, _TYPES[type_]) for name, type_ in IN_COLUMNS])
_ORDER = ("shard", "group_id", "place", "raft_index", "origin", "sequence")


def of_groups(records: pa.Table) -> pa.Table:
    """The records from which facts are derived."""
    types = pa.array([int(one) for one in GROUP_TYPES], records.schema.field("type").type)
    is_mine = pc.and_(pc.is_in(records.column("type"), types), pc.is_valid(records.column("group_id")))
    return records.filter(is_mine)


def derive_in_process(records: pa.Table, stored: pa.Table | None, shared: Shared) -> Iterator[pa.RecordBatch]:
    """The batches of `derive`; ``records`` come from `of_groups`, ``stored`` covers all due groups."""
    inputs = [conformed(records, _IN, known={"origin": RECORD_ORIGIN}, names=RAW)]
    if stored is not None:
        for kind, origin in STORED_ORIGINS.items():
            of_kind = stored.filter(pc.equal(stored.column("kind"), kind))
            inputs.append(conformed(of_kind, _IN, known={"origin": origin}, names={"value": "blob"}))
    rows = pa.concat_tables(inputs)
    place = pc.min_element_wise(rows.column("origin"), pa.scalar(BRIDGE_ORIGIN, pa.int32()))
    in_order = rows.append_column("place", place).sort_by([(name, "ascending") for name in _ORDER])
    return derive_batches(shared, in_order.to_batches())
