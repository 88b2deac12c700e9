"""Snapshots that replace lost entries: read once, and kept, since a node may replace them at any time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from quorate.spark.errors import InputError
from quorate.spark.facts.inputs import of_groups
from quorate.spark.facts.shared import Bridge
from quorate.spark.schema import conformed, micros
from quorate.spark.source.options import parse_options
from quorate.spark.source.plan import plan
from quorate.spark.source.reading import read_task
from quorate.spark.tables.files import FileWriter, WrittenFile, read_file
from quorate.spark.tables.names import ROWS, schema_of

from .factspans import FactSpan
from .factwork import BRIDGES

if TYPE_CHECKING:
    from quorate.spark.source.inputs import InputLog
    from quorate.spark.tables.output import Output

WHOLE = -1
"""Sequence of the row that stands for a whole snapshot."""


def crossed_before(output: Output) -> Mapping[int, Sequence[Bridge]]:
    """The bridges of earlier runs, by shard."""
    found: dict[int, list[Bridge]] = {}
    for file in output.files(BRIDGES):
        for row in read_file(output.store, BRIDGES, file.path).to_pylist():
            if row["sequence"] == WHOLE:
                bridge = Bridge(
                    after_index=row["after_index"],
                    after_ms=row["after_ms"],
                    index=row["raft_index"],
                    ms=round(row["timestamp"].timestamp() * 1_000),
                )
                found.setdefault(row["shard"], []).append(bridge)
    return {shard: sorted(of, key=lambda one: one.index) for shard, of in found.items()}


def write_bridges(
    output: Output,
    log: InputLog,
    spans: Mapping[int, FactSpan],
    crossed: Mapping[int, Sequence[Bridge]],
) -> list[WrittenFile]:
    """Read the snapshots that the spans need and no run has kept, one file for each."""
    files: list[WrittenFile] = []
    for shard, span in spans.items():
        for bridge in span.bridges:
            if bridge not in crossed.get(shard, ()):
                files += _write(output, log, shard, bridge)
    return files


def _write(output: Output, log: InputLog, shard: int, bridge: Bridge) -> list[WrittenFile]:
    known = {
        "shard": shard,
        "raft_index": bridge.index,
        "timestamp": micros(bridge.ms),
        "after_index": bridge.after_index,
        "after_ms": bridge.after_ms,
    }
    schema = schema_of(BRIDGES)
    with FileWriter(output.store, BRIDGES, ROWS, schema) as writer:
        writer.write(pa.Table.from_pylist([{**known, "sequence": WHOLE, "type": 0, "version": 0}], schema))
        wanted = {"path": log.path, "rows": "snapshot", "raw": "true"}
        asked = parse_options({**wanted, "ranges": json.dumps({str(shard): [None, bridge.index]})})
        for batch in (batch for task in plan(asked, log) for batch in read_task(task)):
            writer.write(conformed(of_groups(pa.Table.from_batches([batch])), schema, known=known))
        if bridge.index not in (header.last_index for header in log.log.reader(shard).snapshots()):
            raise InputError(
                f"the snapshot of index {bridge.index} of shard {shard} was replaced while it was read",
                "run again",
            )
        return writer.close()
