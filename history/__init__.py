"""What happened: the log of a node read offline, explained, and held to its promises.

Everything here takes the path of a node's directory (a running node's, a copy, one shard of it, a damaged
one), never writes to it, and returns dataclasses; functions ending in `_text` and `_json` make lines of them.

    node, source        opening a directory; the walk over a shard's entries that bridges damage and says so
    dump                entries one by one
    replay              the state at an index or a moment, by the coordinator's own `apply`
    track, story        a group as its records alone tell it; its log as steps
    explain, timeline   why each epoch, at length and as a table
    evidence            refusals and heartbeat gaps that a node noted beside its log
    commits             every offset commit: the proof behind an acknowledgement
    verify              files and meaning: `invariants`, `secondopinion`
    catalog, words, render   topic changes by index; causes in sentences; times, durations, ranges, tables

`NothingToRead` (source) and `Damaged` (raftlog.reader) are what a reader raises when there is no answer.
"""
