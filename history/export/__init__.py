"""The log as tables for other programs: Parquet, JSON lines or CSV, with one schema for all three.

schema   every table and column: name, type, unit, meaning, and how it is read from a row of facts
columns  the types of columns, and the usual ways to read them
formats  how values are written in each format, so that any text survives the round trip
sources  the rows of each table, in one walk over each shard
files    temporary files, renamed into place when all are complete
tables   `export`
"""
