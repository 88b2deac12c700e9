"""`quorate pipeline tables`: the tables and their columns, and the contents of a folder of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from quorate.commands.options import Json, option
from quorate.commands.pipeline.common import refusals
from quorate.output import print_json, print_table, say

if TYPE_CHECKING:
    from quorate.spark.runs.listing import OutputContents


def tables(
    output: Annotated[
        str | None, option("--output -o", "PLACE", "Describe the tables in a folder or a store.")
    ] = None,
    json: Json = False,
) -> None:
    """List the tables with their columns, units and meaning, or the contents of a folder of tables.

    Example: quorate pipeline tables --output tables
    """
    from quorate.spark.runs.listing import held_in, tables_json, tables_text

    with refusals(only_reads=True):
        held = None if output is None else held_in(output)
    if json:
        print_json(tables_json(held))
    elif held is not None:
        _show(held)
    else:
        for line in tables_text():
            say(line)


def _show(held: OutputContents) -> None:
    from history.render import UTC_STYLE, plural
    from history.words import shard_name

    say(f"cluster {held.cluster_id}, schema {held.schema_version}, after {plural(held.runs, 'run')}")
    say()

    def when(at_ms: int | None) -> str | None:
        return None if at_ms is None else UTC_STYLE.full(at_ms)

    rows = [
        (one.table, one.rows, one.size, one.files, one.version, when(one.from_ms), when(one.to_ms))
        for one in held.tables
    ]
    print_table(["TABLE", "ROWS", "BYTES", "FILES", "VERSION", "FROM", "TO"], rows)
    say()
    reach = [
        (shard_name(one["shard"]), one["records_to"], one["facts_to"], UTC_STYLE.full(one["last_ms"]))
        for one in held.shards
    ]
    print_table(["SHARD", "RECORDS TO", "FACTS TO", "LAST ENTRY"], reach)
