"""Reads a node's log offline, explains what happened, and verifies it.

Every function here takes the path of a node's directory (one in use, a copy, a single shard or a damaged
one), never writes to it, and returns dataclasses. Functions ending in `_text` and `_json` turn those into
lines of text or JSON.

    reading/    opening directories and clusters; the walk over a shard that bridges damage and reports it
    state/      the state of a shard at an index or a moment
    facts/      what the entries of a group say, as rows: epochs, ownership, sessions, moves, waits
    telling/    why each epoch began, as prose and as a table; terms; entries one by one
    diagnoses/  named rules that detect what a healthy group does not show
    answers/    findings, partition owners, state differences, statistics
    whatif/     recorded membership decided again under other settings
    pages/      answers as self-contained HTML files
    export/     the facts as tables for other programs: Parquet, JSON lines, CSV
    checking/   verification of files and state, comparison of nodes, an audit of every commit
    words       causes in sentences
    protocols   the protocols of groups: their names, and the words of the older ones
    render      times, durations, partition ranges
    columns     tables and sentences that fit a width
    moments     moments as people type them

A reader that has no answer raises `NothingToRead` (reading.source) or `Damaged` (raftlog.offline.reader).
"""
