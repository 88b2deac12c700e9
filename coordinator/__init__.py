"""The group coordinator: a pure state machine over records (docs/architecture.md).

Packages and modules from the top floor down. A module knows nothing of those above it; an import contract
enforces this:

views           groups as JSON, for the HTTP API and the command line
shard           a group shard: the only entry point to everything below
catalog/        the metadata shard: topics, group configs and transactions
removal, admin  what operators delete, and what they can list and describe
members/        the life cycle of a member: heartbeats, subscriptions, static membership, leaving
offsets/        commits, also in transactions, fetches and expiry of offsets
migration/      a classic group with members becomes a consumer group, and back
classic/        the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup
targets/        group epochs and target assignments: why and when a new one is needed, and who computes it
oldgroups       ids shared with groups of the protocols before Kafka's, and who gives way
group_context   the state that every decision uses: the projection and the leader's state
leader_state/   state that only a leader keeps in memory; a failover discards it
regex/          regular expressions: validation and resolution against topic names
state/          state derived from the log: projection, `apply`, state machines, record builders
steps           how a decision runs
api, limits     inputs and outputs of a shard, and every bound
topics          topics as groups see them
transactions    transactional ids as groups see them
leadership      what operators asked for: leaders of shards, drained nodes
groupconfigs    configs of groups, and the values that take effect
assignors/      which member gets which partition
"""
