"""Writes `golden/older_release`: tables as an older release wrote them. Run once, by hand.

    python -m tests.pipeline.make_golden

`LACKING` lists the columns that they lack. The output is checked in; tests read it and extend a copy.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline import schema
from pipeline.session.sessions import spark_session
from pipeline.tables import Output, ShardProgress
from pipeline.tables.transaction import Staging

OLDER_RELEASE = Path(__file__).parent / "golden" / "older_release"
LACKING = {
    "commits": ("leader_epoch", "metadata", "sequence"),
    "failovers": ("why", "is_takeover", "gap_ms"),
}
MAY_1 = 1_777_593_600_000
"""2026-05-01 00:00 UTC."""


def commit(index: int) -> dict[str, Any]:
    """Return a row of `commits` with all columns of today; those in `LACKING` are null."""
    row = dict.fromkeys(schema.TABLES["commits"].names)
    given = {
        "group_id": f"g{index % 2}",
        "topic": "t",
        "partition": 0,
        "offset": index * 10,
        "member_id": "m",
    }
    place = {"cluster_id": "older", "shard": 0, "raft_index": index, "timestamp_ms": MAY_1 + index}
    return {**row, **place, **given}


def failover(index: int) -> dict[str, Any]:
    row = dict.fromkeys(schema.TABLES["failovers"].names)
    place = {"cluster_id": "older", "shard": 0, "raft_index": index, "timestamp_ms": MAY_1 + index}
    return {**row, **place, "term": 2, "node_id": 1, "previous_leader": 3}


COMMITS = [commit(index) for index in range(1, 7)]
FAILOVERS = [failover(7)]


def main() -> None:
    for name, lacking in LACKING.items():
        table = schema.TABLES[name]
        columns = tuple(column for column in table.columns if column.name not in lacking)
        schema.TABLES[name] = replace(table, columns=columns)
    shutil.rmtree(OLDER_RELEASE, ignore_errors=True)
    spark = spark_session("local[1]")
    with Output.open(OLDER_RELEASE, cluster_id="older", num_shards=1) as output, output.begin() as tx:
        for name, rows in (("commits", COMMITS), ("failovers", FAILOVERS)):
            kinds = schema.spark_type(schema.TABLES[name].columns)
            df = spark.createDataFrame([tuple(row[n] for n in kinds.names) for row in rows], kinds)
            tx.stage(Staging(table=name, rows=df))
        tx.commit({0: ShardProgress(7, 7, MAY_1 + 7)})
    (OLDER_RELEASE / "_quorate" / "lock").unlink()
    spark.stop()


if __name__ == "__main__":
    main()
