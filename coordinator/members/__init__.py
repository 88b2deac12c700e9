"""The life cycle of a member: heartbeats and their validation, regular-expression subscriptions, static
membership, and leaving."""
