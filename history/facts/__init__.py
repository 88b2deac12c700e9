"""What the entries of a group say, as rows: epochs, who owned what, sessions, moves, waits, findings.

Facts are the layer between the log and every answer: explanations, timelines, statistics, exports and the
pipeline are made of these rows and of nothing else, so that they cannot disagree.

    rows      the rows: plain dataclasses with units, no behaviour
    group     `GroupFacts`: the rows of one group, built in one walk over its shard
"""
