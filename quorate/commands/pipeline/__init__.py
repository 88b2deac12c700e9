"""`quorate pipeline …`: logs of any size as tables, through Spark, which is only loaded when needed."""

from __future__ import annotations

from quorate.commands.options import CommandGroup
from quorate.commands.pipeline.run import run
from quorate.commands.pipeline.stream import stream
from quorate.commands.pipeline.tables import tables

app = CommandGroup("Logs of any size as tables, through Spark.")
app.command("run")(run)
app.command("stream")(stream)
app.command("tables")(tables)
