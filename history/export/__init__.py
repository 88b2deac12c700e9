"""The log as tables for other programs: Parquet, JSON lines or CSV, with one schema for all three.

schema     every table and column: name, type, unit, meaning, and how it is read from a row of facts
formats    how a value stands in each format; hostile names survive the way there and back
sources    the rows of each table, in one walk over each shard
files      written beside their place and put there when all is whole
tables     `export`
"""
