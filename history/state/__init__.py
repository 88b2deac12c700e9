"""From entries to a state.

replay      a shard at any index or moment, by the coordinator's own `apply`
embedded    the bytes that consumers of a classic group exchange
old_groups  a group of an older protocol as a consumer group
"""
