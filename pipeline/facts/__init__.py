"""Facts by group: epochs, moves, ownership, sessions, waits and findings, in memory of one group at a time.

`history.facts` and `history.diagnoses` make the rows, entry by entry; here is what carries entries to them
and rows away, and lets a later run go on where an earlier one ended.

    shared     what every group of a shard needs beside its own records
    group      one group: its stored state and new records in, rows and the next state out
    batches    Arrow batches in, Arrow batches out
    derive     the same as a plan of Spark
    here       the same for few records, in this process
"""
