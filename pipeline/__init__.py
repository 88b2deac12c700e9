"""The same questions at any scale: Quorate's logs as Spark tables, and what can be asked of them.

What one machine answers from one log (`history`) is asked here of years of logs and thousands of groups. What
must stay true: a row of a table is the row that `history` makes of the same entries, since the same code
makes it, in Spark's Python workers; no data is collected on the driver; every plan is partitioned by group or
key; tables only ever show whole runs.

    schema     every column: what it is called, what it holds, in which unit; Spark's and Arrow's types of it
    errors     what a run can refuse
    session/   a SparkSession as users expect one: theirs if there is one; Java found or explained
    source/    ``spark.read.format("quorate")``: the log's own files, vectorised to Arrow; batch and stream
    facts/     the facts of `history` by group, inside `mapInArrow`; states between runs
    analyses/  functions DataFrame -> DataFrame
    tables/    Parquet tables on disk: layout, manifest, commits that are whole or not at all
    report/    one HTML page, findings first
    runs/      `quorate pipeline run` and `stream`: from an input to fresh tables

Importing this package needs no Spark; its parts say so where it is missing (`pip install -e '.[spark]'`).
"""
