"""The entries of a group as rows: epochs, ownership, sessions, moves, waits, findings.

Facts are the layer between the log and every answer. Explanations, timelines, statistics, exports and the
pipeline are made of these rows only, so that they cannot contradict each other.

    rows              the rows: plain dataclasses with units, no behaviour
    group             `facts_of`, `FactsBuilder`: the rows of one group, in one walk over its shard
    change            what one entry changed in a group; it drives the next five
    generations       groups that are one record as consumer groups
    epochs            epochs, with the moves of their targets and the progress of members
    ownership         which member owned each partition, as spans
    waits             which member waited for which partition, and which member held it
    sessions          how members joined, left and were away
    naming            the names of the members: m1, m2 and so on
    commits           offset commits
    transactions      transactions with offsets of one group
    terms             the terms of a shard as rows
    shard             the facts of every group of a shard in one walk, emitting rows as they are concluded
    checkpoint        a builder's state and rows as bytes, so that a walk can be resumed later
    positional_codec  dataclasses as arrays and back, used by `checkpoint`
"""
