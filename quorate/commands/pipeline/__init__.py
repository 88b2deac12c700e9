"""`quorate pipeline …`: logs of any size as tables, through Spark, which is loaded only when it is needed."""

from __future__ import annotations

from quorate.commands.options import new_app
from quorate.commands.pipeline.listing import tables

app = new_app("Tables of any number of logs, through Spark.")
app.command("tables")(tables)
