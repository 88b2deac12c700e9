"""One shard on one node: its life as the replica drives it, requests and deadlines, replies that wait."""
