"""What an analysis is: a function from data frames to one, with the words that documents are made of.

An analysis is found by its name in `pipeline.analyses.ANALYSES`. What must stay true of each: it is Spark
SQL from end to end, or code of `history` on one group at a time (`streams`); it exchanges rows by (cluster,
shard, group or key), collects no rows, and gives the columns that it announces. The cluster is in every key,
so the tables of several clusters may be put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.errors import OptionError
from pipeline.schema import RECORD_COLUMNS, Column, Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORDS = "records"
"""Rows of `RECORD_COLUMNS`: what the source reads, or the table."""
ENTRIES = "entries"
"""Rows of `ENTRY_COLUMNS`: what the source reads with ``option("rows", "entries")``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """One question to the log and the function that answers it."""

    name: str
    takes: tuple[str, ...]
    """What the function is given, in order: `RECORDS`, `ENTRIES`, or names of `pipeline.schema.TABLES`."""
    answers: str
    columns: tuple[Column, ...]
    run: Callable[..., DataFrame]
    options: Mapping[str, str] = field(default_factory=dict)
    """The function's other arguments, each with what it does."""
    needs_raw: bool = False
    """It reads the raw columns of `records` too: the source gives them with ``option("raw", "true")``."""


def column(name: str, kind: Kind, means: str, unit: str = "") -> Column:
    """A column of a result."""
    return Column(name=name, kind=kind, means=means, unit=unit)


def by_name(analyses: Iterable[Analysis]) -> dict[str, Analysis]:
    """Raises `ValueError` where two have one name."""
    found: dict[str, Analysis] = {}
    for one in analyses:
        if one.name in found:
            raise ValueError(f"two analyses are called {one.name}")
        found[one.name] = one
    return found


def text_of(analyses: Iterable[Analysis]) -> Iterator[str]:
    """The analyses as docs/pipeline.md has them, in Markdown."""
    for one in analyses:
        call = ", ".join((*one.takes, *(f"{name}=" for name in one.options)))
        yield f"### Analysis {one.name}"
        yield ""
        yield one.answers
        yield ""
        yield f"`{one.name}({call})`" + (", with the raw columns of `records`." if one.needs_raw else ".")
        for name, means in one.options.items():
            yield f"`{name}`: {means}"
        yield ""
        if one.columns == RECORD_COLUMNS:
            yield "It has the columns of table `records`."
        else:
            yield from columns_text(one.columns)
        yield ""


def columns_text(columns: Iterable[Column]) -> Iterator[str]:
    yield "| Column | Type | Unit | Meaning |"
    yield "|---|---|---|---|"
    for one in columns:
        yield f"| `{one.name}` | {one.kind} | {one.unit} | {one.means} |"


def needed(frame: DataFrame, analysis: str, *names: str) -> None:
    """Raises `OptionError` where the input lacks a column, and says how to have it."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise OptionError(
            f"{analysis} needs the column {missing[0]}, which its input does not have",
            'read with option("raw", "true") and without option("columns", …), or give the table of a run',
        )
