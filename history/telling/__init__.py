"""From facts to sentences: one group's log as steps, as a table, entry by entry; the terms of the shards.

story            the steps: an epoch, a term, a note
explain          why each epoch, at length; `prose` as lines, `timeline` as a table
choosing         an epoch, a member, a partition, a moment of it
counterfactuals  what would have been otherwise, where the records prove it
voice            what members and partitions are called
owners           who owned what at the end of an epoch
evidence         what a node noted beside its log
terms            who led, since when and why
dump             entries one by one
"""
