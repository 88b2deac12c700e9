"""What the log says: groups and offsets as projected, the state machines as tables, the next step of one
member, the records that decisions write.

Only `Projection.apply` changes what is projected; nothing here knows of time, or who leads.
"""
