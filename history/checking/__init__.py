"""From entries to a verdict: `verify` files, `compare` nodes, audit every commit.

invariants      rules that hold at every index
secondopinion   the records compared with the coordinator's projection
commits         every offset commit: the proof behind an acknowledgement
"""
