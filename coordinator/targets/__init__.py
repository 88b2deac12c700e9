"""Group epochs and target assignments: what triggers a new one, when it is due, and who computes it."""
