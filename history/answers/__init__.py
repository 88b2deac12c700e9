"""Questions beside one group's story: who held a partition, what changed between two moments."""
