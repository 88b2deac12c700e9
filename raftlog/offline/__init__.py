"""Reading a node's directory without a node: never writing, also a copy, a damaged one, or one in use.

reader        entries, snapshots and evidence of a directory
replicas      the entries that one copy of a segment lacks, from other nodes' copies
group_filter  the entries of some groups only, passing by those of others
verify        every byte checked against every other statement about it
"""
