"""From entries to a verdict: `verify` files, `compare` nodes, audit every commit.

verify         a node's directory: bytes, replay, rules
compare        the nodes of a cluster: the same entries, hash chain and state
invariants     rules that hold at every index
old_groups     rules for groups of older protocols
secondopinion  the newest record of each key compared with the coordinator's projection
commits        every offset commit: the proof behind an acknowledgement
"""
