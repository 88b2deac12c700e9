"""A group's epoch and its target: what calls for a new one, when it is due, and who computes it."""
