"""The report of an output: its tables, and the limits of their data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from history.pages.frame import Provenance
from history.render import UTC_STYLE
from history.words import shard_name
from quorate.spark.report.figures import figures_of
from quorate.spark.report.page import report_page
from quorate.spark.tables.reading import read_progress, read_table

from .losses import DAMAGED, GAP, REPAIRED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEANINGS = {
    DAMAGED: (
        "No node of the input has these entries intact; facts continue with a snapshot.",
        "Restore the file, or give more nodes' directories: the next run takes the entries in.",
    ),
    GAP: (
        "Entries of the log are missing: it was compacted, and its archive does not hold them.",
        "Nothing, if that was intended; otherwise let the archive keep more, or run more often.",
    ),
    REPAIRED: (
        "A node's copy of some entries is damaged or missing; another node's copy was read instead.",
        "Restore the named file while another copy is there, and look after that node's disk.",
    ),
}
"""Explanation and advice for kinds of findings that are not rules of `history`."""


def report_of(
    spark: SparkSession, output: str, *, command: str, source: str, remarks: Sequence[str] = ()
) -> str:
    """The HTML page for everything in the tables of the log ``source``; ``command`` writes it."""
    progress = read_progress(output)
    reach = [
        f"{shard_name(shard)}: entries up to {one.records_to} ({UTC_STYLE.full(one.last_ms)})"
        for shard, one in sorted(progress.shards.items())
    ]
    return report_page(
        figures_of(lambda name: read_table(spark, output, name, run=progress.run)),
        title=f"Cluster {progress.cluster_id}",
        rests_on=(*reach, *remarks),
        meanings=MEANINGS,
        provenance=Provenance.now(command, f"{source}, by its tables in {output}", UTC_STYLE),
    )
