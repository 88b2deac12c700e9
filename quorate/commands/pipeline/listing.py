"""`quorate pipeline tables`: what there is to ask."""

from __future__ import annotations

from quorate.commands.options import Json
from quorate.output import print_json, say


def tables(json: Json = False) -> None:
    """List the tables with their columns, units and meaning.

    Example: quorate pipeline tables
    """
    from pipeline.runs.listing import tables_json, tables_text

    if json:
        print_json(tables_json())
        return
    for line in tables_text():
        say(line)
