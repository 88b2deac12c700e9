"""The definition of an analysis: a function from data frames to one, with the text for its documentation.

Analyses are looked up by name in `quorate.spark.analyses.ANALYSES`. Invariants of each: it is Spark SQL from
end to end, or code of `history` on one group at a time (`streams`); it exchanges rows by cluster and shard,
group or key; it collects no rows; it returns the columns it declares. The cluster is part of every key, so
that tables of several clusters can be combined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quorate.spark.errors import OptionError
from quorate.spark.schema import RECORD_COLUMNS, TableColumn, columns_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORDS = "records"
"""Input with the columns `RECORD_COLUMNS`: the source's rows, or the table."""
ENTRIES = "entries"
"""Input with the columns `ENTRY_COLUMNS`: the source's rows under ``option("rows", "entries")``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """A question about the log, and the function that answers it."""

    takes: tuple[str, ...]
    """The function's inputs, in order: `RECORDS`, `ENTRIES`, or names in `quorate.spark.schema.TABLES`."""
    answers: str
    columns: tuple[TableColumn, ...]
    run: Callable[..., DataFrame]
    options: Mapping[str, str] = field(default_factory=dict)
    """The function's other arguments and their descriptions."""
    needs_raw: bool = False
    """Whether it needs the raw columns of `records` (``option("raw", "true")`` of the source)."""

    @property
    def name(self) -> str:
        return self.run.__name__


def by_name(analyses: Iterable[Analysis]) -> dict[str, Analysis]:
    """Analyses by name; raises `ValueError` if two share a name."""
    found: dict[str, Analysis] = {}
    for one in analyses:
        if one.name in found:
            raise ValueError(f"two analyses are called {one.name}")
        found[one.name] = one
    return found


def call_of(analysis: Analysis) -> str:
    """The call, with the names of inputs and options: ``stalled_commits(records, ownership, at=)``."""
    return f"{analysis.name}({', '.join((*analysis.takes, *(f'{name}=' for name in analysis.options)))})"


def text_of(analyses: Iterable[Analysis]) -> Iterator[str]:
    """The analyses in Markdown, with their arguments and columns."""
    for one in analyses:
        yield f"### Analysis {one.name}"
        yield ""
        yield one.answers
        yield ""
        yield f"`{call_of(one)}`" + (", with the raw columns of `records`." if one.needs_raw else ".")
        for name, means in one.options.items():
            yield f"`{name}`: {means}"
        yield ""
        if one.columns == RECORD_COLUMNS:
            yield "It has the columns of table `records`."
        else:
            yield from columns_text(one.columns)
        yield ""


def needed(frame: DataFrame, analysis: str, *names: str) -> None:
    """Raise `OptionError` if the input lacks a column; the hint says how to get it."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise OptionError(
            f"{analysis} needs the column {missing[0]}, which its input does not have",
            'read with option("raw", "true") and without option("columns", …), or give the table of a run',
        )
