"""Facts by group: epochs, moves, ownership, sessions, waits and findings, one group in memory at a time.

`history.facts` and `history.diagnoses` derive the rows, entry by entry. This package feeds entries to them,
takes rows away, and saves the state from which a later run continues.

    shared      data that every group of a shard needs besides its own records
    group       one group: its stored state and new records in, rows and the next state out
    batches     Arrow batches in, Arrow batches out
    inputs      the rows that groups are made of: records and stored states
"""
