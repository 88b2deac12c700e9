"""From facts to sentences: one group's log as steps, as a table, entry by entry; the terms of the shards.

`explanation_of` in `explain` puts all parts of an explanation together. Causes get their words in
`history.words`, findings theirs from the rules of `history.diagnoses`.

story            the steps in words: an epoch, a term, a note
explain          an explanation put together: why each epoch began, at length
prose            an explanation as lines of text
timeline         the steps as a table
filters          selection of an epoch, a member, a partition, a moment
counterfactuals  what would have happened otherwise, where the records prove it
wait_impact      how much sooner an epoch could have been stable without a wait
known            what counterfactuals start from
member_labels    names of members and partitions
transactions     transactions with offsets of the group
owners           which member owned what at the end of an epoch
evidence         what a node noted outside its log
terms            the leader of each term, since when and why
dump             entries one by one
"""
