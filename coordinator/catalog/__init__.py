"""The metadata shard: topics and group configs, and the requests that change them."""
