"""What the entries of a group say, as rows: epochs, who owned what, sessions, moves, waits, findings.

Facts are the layer between the log and every answer: explanations, timelines, statistics, exports and the
pipeline are made of these rows and of nothing else, so that they cannot disagree.

    rows       the rows: plain dataclasses with units, no behaviour
    group      `facts_of`, `FactsBuilder`: the rows of one group, in one walk over its shard
    change     what one entry changed in a group; the four below are brought on by it
    epochs     epochs, with the moves of their targets and the progress of members
    ownership  who had which partition, as spans
    waits      who waited for which partition, held by whom
    sessions   who came, who went how, who was away
    shard      the same for every group of a shard in one walk, handing over what is concluded
    written    the state of a builder, and rows, as bytes: a walk that goes on another day
    shapes     dataclasses as arrays and back, which it is made of
"""
