"""One shard on one node: its life as driven by the replica, requests and deadlines, held replies."""
