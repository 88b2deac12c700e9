"""Functions DataFrame -> DataFrame over records and tables; each is held to what `history` answers.

registry     what an analysis is, and its words
compaction   what compaction keeps
state        groups as they were at some time
rebalances   every epoch with its cause and its moments
ownership    who had which partition; whether two ever had one
unowned      how long nobody had one
keys         what they share
"""

from __future__ import annotations

from collections.abc import Iterator

from . import compaction, ownership, rebalances, state, unowned
from .registry import Analysis, by_name, text_of

ANALYSES: dict[str, Analysis] = by_name(
    (
        *compaction.ANALYSES,
        *state.ANALYSES,
        *rebalances.ANALYSES,
        *ownership.ANALYSES,
        *unowned.ANALYSES,
    )
)
"""Every analysis by name, in the order in which documents tell of them."""


def analyses_text() -> Iterator[str]:
    """All of them as docs/pipeline.md has them, in Markdown."""
    return text_of(ANALYSES.values())
