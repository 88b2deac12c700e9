"""Quorate's logs as Spark tables, and the analyses that run on them.

`history` answers questions about one log on one machine; this package answers the same questions about years
of logs and thousands of groups. Invariants: a row of a table equals the row that `history` derives from
the same entries, because the same code derives it, here or on Spark's workers; no data is collected on the
driver but names of groups and files; readers of the tables only ever see complete runs.

    schema     every column: its name, meaning and unit, with its Spark and Arrow types
    errors     the errors that a run raises
    milliseconds  tables as up to release 0.1, with moments as bigints
    session/   the SparkSession: the caller's if there is one; finds Java, or explains that it is missing
    source/    ``spark.read.format("quorate")``: the log's own files, vectorised to Arrow; batch and stream
    facts/     the facts of `history` by group, inside `mapInArrow`; state carried between runs
    analyses/  functions DataFrame -> DataFrame
    tables/    Delta tables on any store: files, commits, reading as of one run
    report/    one HTML page, findings first
    runs/      `quorate pipeline run` and `stream`: from an input to up-to-date tables

Importing this package does not need Spark. The parts that do raise an error with the command to install it
(`pip install -e '.[spark]'`).

What users call is imported from here; each name is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .analyses.ownership import owner_at
    from .milliseconds import in_milliseconds
    from .runs.run import run
    from .session.sessions import spark_session
    from .source import register
    from .tables.catalog import create_tables
    from .tables.reading import arrow_table, create_views, read_table

__all__ = [
    "arrow_table",
    "create_tables",
    "create_views",
    "in_milliseconds",
    "owner_at",
    "read_table",
    "register",
    "run",
    "spark_session",
]

_HOMES = {
    "arrow_table": "tables.reading",
    "create_tables": "tables.catalog",
    "create_views": "tables.reading",
    "in_milliseconds": "milliseconds",
    "owner_at": "analyses.ownership",
    "read_table": "tables.reading",
    "register": "source",
    "run": "runs.run",
    "spark_session": "session.sessions",
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first asked for (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
