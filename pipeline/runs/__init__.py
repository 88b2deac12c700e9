"""Brings tables up to date with an input: once (`run`) or continuously (`stream`).

run          one run, from an input to up-to-date tables
stream       runs repeated while the log grows
ingest       the first half: new records, commits, failovers; accounts for losses
factstage    the second half: the facts of every group to which something happened
step         the entries of one run, and its transaction
projections  `commits` and `failovers`
losses       every entry is in the tables, or is known to be lost
factinputs   notes, and snapshots that replace lost entries
factspans    the range of entries that facts take in
factterms    the terms that facts need
derived      the derived facts, staged by Spark or held in this process
factfew      the inputs of few facts, without Spark
fewrecords   the questions of `ingest` about few records, without Spark
listing      descriptions of the tables
reporting    the report of an output
"""
