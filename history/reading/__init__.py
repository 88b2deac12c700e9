"""From files to entries: what a person names is opened, walked through in order, and damage is bridged.

opening, node, members   a directory, or the folder of a cluster: which shards, of which nodes
source                   `Walk`: a shard's entries in order, with what an answer rests on (`Basis`)
quorum, sidebyside       what several nodes together prove to be decided; where they differ
difference               two states against each other, in words
catalog                  topic changes by index, names of topics that are gone
"""
