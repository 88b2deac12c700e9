"""Members of groups, from the first heartbeat to the end.

Heartbeats and their validation, regular-expression subscriptions, static membership, and leaving."""
