"""What happened: the log of a node read offline, explained, and held to its promises.

Everything here takes the path of a node's directory (a running node's, a copy, one shard of it, a damaged
one), never writes to it, and returns dataclasses; functions ending in `_text` and `_json` make lines of
them.

    reading/    a directory or a cluster's folder opened; the walk that bridges damage and says so
    state/      a shard's or a group's state at an index or a moment
    facts/      what the entries of a group say, as rows: epochs, who owned what, sessions, moves, waits
    telling/    why each epoch, at length and as a table; terms; entries one by one
    diagnoses/  what a healthy group does not show, by named rules
    answers/    what is odd, who held a partition, what changed, how much of what
    whatif/     recorded membership decided again under other settings
    pages/      answers as HTML files that need nothing else
    export/     the facts as tables for other programs: Parquet, JSON lines, CSV
    checking/   files and meaning, nodes against each other, every commit
    words, render, moments   causes in sentences; times, durations, tables; moments as people type them

`NothingToRead` (reading.source) and `Damaged` (raftlog.reader) are what a reader raises when there is no
answer.
"""
