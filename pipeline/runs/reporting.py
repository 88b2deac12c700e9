"""The report of an output: its tables, and the limits of their data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from history.render import UTC_STYLE
from history.words import shard_name
from pipeline.facts.group import TOO_MANY_ROWS
from pipeline.report.figures import figures_of
from pipeline.report.page import report_page
from pipeline.tables.reading import read_manifest, read_table

from .losses import DAMAGED, GAP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEANINGS = {
    DAMAGED: (
        "Entries of the log cannot be read: their bytes differ from what was written.",
        "Restore the files from another node and run with a new output; facts continue with a snapshot.",
    ),
    GAP: (
        "Entries of the log are missing: it was compacted, and its archive does not hold them.",
        "Nothing, if that was intended; otherwise let the archive keep more, or run more often.",
    ),
    TOO_MANY_ROWS: (
        "A group has too many rows to be checked for diagnoses.",
        "Run `quorate log findings` for the group and a time.",
    ),
}
"""Explanation and advice for kinds of findings that are not rules of `history`."""


def report_of(spark: SparkSession, output: str, *, remarks: Sequence[str] = ()) -> str:
    """The HTML page for everything in the tables."""
    manifest = read_manifest(output)
    reach = [
        f"{shard_name(shard)}: entries up to {one.records_to} ({UTC_STYLE.full(one.last_ms)})"
        for shard, one in sorted(manifest.progress.items())
    ]
    return report_page(
        figures_of(lambda name: read_table(spark, output, name)),
        title=f"Cluster {manifest.cluster_id}",
        rests_on=(*reach, *remarks),
        meanings=MEANINGS,
    )
