"""State derived from the log, and the records that change it.

Groups and offsets, the state-machine tables, and reconciliation of one member. Only applied records change
the state. Nothing in this package knows the time or which node leads.

changes         what records change in a group, for readers of history
projection      the projection of a group shard, and `apply`
group_records   what each type of record does to its group
model           groups, members and targets, as functions of their newest records
membernumbers   the members' numbers, by group
offsetstore     committed offsets by group
pendingoffsets  offsets of transactions that have not ended
machines        the state machines of members, groups and transactions, as tables
reconcile       one member's next step towards its target
writes          the records that decisions write
statehash       a number that is equal for equal projections
freeing         large tables freed in steps
"""
