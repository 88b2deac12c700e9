"""Analyses: functions DataFrame -> DataFrame over records and tables, each tested against `history`.

registry      what an analysis is, and its description
compaction    the records that compaction keeps
state         groups as they were at a given time
ownership     which member had which partition at a moment; whether two ever had the same one
unowned       how long partitions had no owner
commits       commits that stopped, lag, or go backwards
transactions  offsets in transactions
members       members that repeatedly leave and rejoin
storms        many groups that rebalance at the same time
capacity      members, groups and writes by the hour
replicas      whether the nodes hold the same log
whatif        each group under other settings
keys          helpers shared by the others
streams       iteration group by group, for analyses in Python
"""

from __future__ import annotations

from collections.abc import Iterator

from . import (
    capacity,
    commits,
    compaction,
    members,
    ownership,
    replicas,
    state,
    storms,
    transactions,
    unowned,
    whatif,
)
from .registry import Analysis, by_name, text_of

ANALYSES: dict[str, Analysis] = by_name(
    (
        *compaction.ANALYSES,
        *state.ANALYSES,
        *ownership.ANALYSES,
        *unowned.ANALYSES,
        *commits.ANALYSES,
        *transactions.ANALYSES,
        *members.ANALYSES,
        *storms.ANALYSES,
        *capacity.ANALYSES,
        *replicas.ANALYSES,
        *whatif.ANALYSES,
    )
)
"""Every analysis by name, in the order in which the documentation lists them."""


def analyses_text() -> Iterator[str]:
    """All analyses in Markdown, with their arguments and columns."""
    return text_of(ANALYSES.values())
