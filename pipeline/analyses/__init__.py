"""Functions DataFrame -> DataFrame over records and tables; each is held to what `history` answers.

registry     what an analysis is, and its words
compaction   what compaction keeps
"""

from __future__ import annotations

from collections.abc import Iterator

from . import compaction
from .registry import Analysis, by_name, text_of

ANALYSES: dict[str, Analysis] = by_name((*compaction.ANALYSES,))
"""Every analysis by name, in the order in which documents tell of them."""


def analyses_text() -> Iterator[str]:
    """All of them as docs/pipeline.md has them, in Markdown."""
    return text_of(ANALYSES.values())
