"""A log that does not begin with its first entry, read by the recipe of docs/pipeline.md as it stands."""

from __future__ import annotations

import os
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from benchmarks.mixedlog import Written, write_life
from history.reading.opening import open_node
from quorate.spark.analyses.state import state_as_of
from quorate.spark.source import register
from quorate.spark.source.inputs import open_input
from raftlog.storage.segments import first_indexes, index_name, log_name
from tests.pipeline.replayed_state import in_order, replayed

from .logs import columns_of, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARD = 0
DOCUMENT = Path(__file__).parents[2] / "docs" / "pipeline.md"


def recipe() -> str:
    (block,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
        if '"rows", "snapshot"' in block
    ]
    return str(block)


def headless(folder: Path) -> tuple[Path, Written]:
    """Return a log without its first segments, as far as its first snapshot allows, beside the whole log."""
    path = folder / "node"
    life = write_life(
        str(path), 6_000, shards=1, days=1, seed=4, segment_bytes=1 << 16, snapshot_records=2_500
    )
    shutil.copytree(path, folder / "whole")
    written = life.written[SHARD]
    for first, following in pairwise(first_indexes(os.listdir(path / "shard-0"))):
        if following <= written.snapshots[0] + 1:
            for name in (log_name(first), index_name(first)):
                (path / "shard-0" / name).unlink()
    begins = open_input(str(path)).shards[SHARD].begins_index
    assert 1 < begins <= written.snapshots[0] + 1 < written.snapshots[1]
    return path, written


@pytest.mark.spark
def test_the_state_is_that_of_the_whole_log(spark: SparkSession, tmp_path: Path) -> None:
    """The newest snapshot is used, as the recipe does for such a short log, and the one before it."""
    path, written = headless(tmp_path)
    register(spark)
    expected = list(replayed(open_node(str(tmp_path / "whole")), SHARD, written.entries))
    assert len(expected) > 100
    for to_index in ("120000", str(written.snapshots[0])):
        names: dict[str, Any] = {"spark": spark, "path": str(path)}
        exec(recipe().replace("120000", to_index), names)
        assert names["begins"] == written.snapshots[-1 if to_index == "120000" else 0]
        found = [in_order(row) for row in told(state_as_of(names["records"]))]
        assert columns_of(found, list(expected[0])) == columns_of(expected, list(expected[0]))
