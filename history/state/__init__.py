"""From entries to a state: `replay` by the coordinator's own `apply`, `group_view` by the records alone."""
