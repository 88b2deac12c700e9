"""From entries to a verdict: `verify` files, `compare` nodes, look up every commit.

invariants      what holds at every index
secondopinion   the records' own story against the coordinator's projection
commits         every offset commit: the proof behind an acknowledgement
"""
