"""The metadata shard: topics and the configs of groups, and the requests that change them."""
