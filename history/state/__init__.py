"""From entries to a state: `replay` by the coordinator's own `apply`, `group_view` by the records alone.

replay      a shard at any index or moment, by the coordinator's own `apply`
group_view  a group by its records alone
"""
