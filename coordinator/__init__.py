"""What is decided: the group coordinator as a pure state machine over records (docs/architecture.md).

api, limits, topics         what goes in and out, and every bound
shard, catalog              the two kinds of shard; the only door to the rest
projection, model           what apply makes of the records
heartbeat, leaving, epochs,
reconcile, target, checks   the steps of decisions about consumer groups
targeting, assigning        who computes a target: the decision itself, or a child process
offsets, fetching, admin    the other requests
core, timers, pacing        what a leader knows beside the log
states                      the state machines, as tables
assignors                   who gets which partition
"""
