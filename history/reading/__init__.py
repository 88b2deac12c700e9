"""From files to entries: opens what a person names and walks it in order, bridging damage.

opening, node, members  a directory, or the folder of a cluster: which shards, of which nodes
source                  `Walk`: a shard's entries in order, and what an answer rests on (`Basis`)
quorum, sidebyside      what several nodes together prove to be decided; where they differ
difference              versions of one entry compared, in words
catalog                 topic changes by index, names of deleted topics
extent                  how far a log reaches, and what a window has outside of it
groups, notes           ids of the groups in a log; what refused heartbeats of removed members prove
"""
