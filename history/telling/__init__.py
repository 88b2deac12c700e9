"""From entries to sentences: one group's log as steps, as a table, entry by entry; the terms of the shards.

story      the steps: an epoch, a term, a note
explain    why each epoch, at length; `timeline` the same as a table
evidence   what a node noted beside its log
terms      who led, since when and why
dump       entries one by one
"""
