"""Quorate's logs as Spark tables, and the analyses that run on them.

`history` answers questions about one log on one machine; this package answers the same questions about years
of logs and thousands of groups. Invariants: a row of a table equals the row that `history` derives from
the same entries, because the same code derives it, in Spark's Python workers; no data is collected on the
driver; every plan is partitioned by group or key; readers of the tables only ever see complete runs.

    schema     every column: its name, meaning and unit, with its Spark and Arrow types
    errors     the errors that a run raises
    session/   the SparkSession: the caller's if there is one; finds Java, or explains that it is missing
    source/    ``spark.read.format("quorate")``: the log's own files, vectorised to Arrow; batch and stream
    facts/     the facts of `history` by group, inside `mapInArrow`; state carried between runs
    analyses/  functions DataFrame -> DataFrame
    tables/    Parquet tables on disk: layout, manifest, atomic commits
    report/    one HTML page, findings first
    runs/      `quorate pipeline run` and `stream`: from an input to up-to-date tables

Importing this package does not need Spark. The parts that do raise an error with the command to install it
(`pip install -e '.[spark]'`).
"""
