"""What is decided: the group coordinator as a pure state machine over records (docs/architecture.md).

From the top floor down; what is below knows nothing of what is above, and a contract holds it:

views            groups as JSON, for whoever looks
shard            a group shard: the only door to what follows
catalog/         the metadata shard: topics, configs of groups
removal, admin   what operators end, and what they see
members/         a member's life: heartbeats, subscriptions, a static member's place, the end
offsets/         commits, fetches, and when offsets are over
targets/         a group's epoch and its target: why, when, computed by whom
core             what every decision works on: the projection, and what is volatile beside it
volatile/        what a leader knows beside the log, and a failover forgets
regex/           what expressions match, and a round of it
state/           what the log says: the projection and `apply`, the state machines, the records
steps            how a decision runs
api, limits      what goes in and out, with topics and groupconfigs, and every bound
assignors/       who gets which partition
"""
