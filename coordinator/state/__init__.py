"""State derived from the log, and the records that change it.

Groups and offsets, the state-machine tables, and reconciliation of one member. Only `Projection.apply`
changes the projected state. Nothing in this package knows the time or which node leads.
"""
