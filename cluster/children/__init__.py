"""Modules that child processes run for the groups of this node; see `cluster.host.jobs`."""
