"""Brings tables up to date with an input: once (`run`) or continuously (`stream`).

run                a run: from an input to tables that reach its last committed entry
stream             one run after another while the log grows
ingest             the first half of a run: records, commits, failovers, and what is lost
losses             every entry is in the tables, or a finding says that it is lost
projections        commits and failovers, which derive directly from records
local_records      the same questions of few records, in this process
factstage          the second half: facts of the groups to which anything happened
factspans          the entries that facts take in by shard
factterms          the terms that facts need
factinputs         notes beside the log, and snapshots that replace lost entries
local_fact_inputs  the inputs of facts if they are small, read in this process
derived            the facts that a run derived, by kind
step               what the stages of one run share
listing            descriptions of the tables, and the contents of an output
reporting          the report of an output
"""
