"""A member's life: heartbeats and what may be wrong with them, subscriptions by expression, a static member's
place, and the end."""
