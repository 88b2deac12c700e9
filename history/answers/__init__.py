"""Questions beside one group's story: what is odd, who held a partition, what changed, how much of what."""
