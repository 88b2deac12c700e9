"""From entries to a state: `replay` by the coordinator's own `apply`, `track` by the records alone."""
