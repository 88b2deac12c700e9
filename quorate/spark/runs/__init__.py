"""Brings tables up to date with an input: once (`run`) or continuously (`stream`).

run            a run: from an input to tables that reach its last committed entry
stream         one run after another while the log grows
remembering    sealed segments that the next run need not look at
ingest         the first half of a run: records, commits, failovers, and what is lost
facts          the second half: facts of the groups to which anything happened
bridges        snapshots that replace lost entries
step           what the stages of one run share, and where they work
terms          the rows of `failovers`
rows           rows that the driver itself adds
losses         every entry is in the tables, or a finding says that it is lost
factspans      the entries that facts take in by shard
factwork       a task of the facts
ingesting      a task of the ingest
workers        tasks in this process or by Spark
listing        descriptions of the tables, and the contents of an output
reporting      the report of an output
"""
