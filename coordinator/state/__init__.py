"""State derived from the log: groups and offsets, the state-machine tables, reconciliation of one member, and
the records that decisions write.

Only `Projection.apply` changes the projected state. Nothing in this package knows the time or which node
leads.
"""
