"""Questions other than one group's story: findings, partition owners, state differences, statistics.

findings      what is wrong, in one group or all
findingstext  this as text: a summary, then the gravest
owner         the owners of a partition
statediff     what differs between two moments
stats         figures by group
figures       these figures, in a window of time
statstext     these figures as text
stalls        partitions whose commits stopped
"""
