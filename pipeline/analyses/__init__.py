"""Functions DataFrame -> DataFrame over records and tables; each is held to what `history` answers.

registry     what an analysis is, and its words
compaction   what compaction keeps
state        groups as they were at some time
rebalances   every epoch with its cause and its moments
ownership    who had which partition; whether two ever had one
unowned      how long nobody had one
commits      commits that stopped, lag, or go backwards
members      members that come and go
storms       many groups that rebalance at one time
capacity     what there is and what is written, by the hour
replicas     do the nodes hold the same?
whatif       each group under other settings
keys         what they share
streams      groups one at a time, for what is Python
"""

from __future__ import annotations

from collections.abc import Iterator

from . import (
    capacity,
    commits,
    compaction,
    members,
    ownership,
    rebalances,
    replicas,
    state,
    storms,
    unowned,
    whatif,
)
from .registry import Analysis, by_name, text_of

ANALYSES: dict[str, Analysis] = by_name(
    (
        *compaction.ANALYSES,
        *state.ANALYSES,
        *rebalances.ANALYSES,
        *ownership.ANALYSES,
        *unowned.ANALYSES,
        *commits.ANALYSES,
        *members.ANALYSES,
        *storms.ANALYSES,
        *capacity.ANALYSES,
        *replicas.ANALYSES,
        *whatif.ANALYSES,
    )
)
"""Every analysis by name, in the order in which documents tell of them."""


def analyses_text() -> Iterator[str]:
    """All of them as docs/pipeline.md has them, in Markdown."""
    return text_of(ANALYSES.values())
