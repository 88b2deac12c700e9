"""Questions other than one group's story: findings, partition owners, state differences, statistics."""
