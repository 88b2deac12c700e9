"""The classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

A classic group goes through generations. In the join phase every member sends JoinGroup, in the sync phase
the leader sends the assignments that it computed, and each member receives its own. Only the result is in the
log (record 2); everything else is known to the shard's leader alone, and a new leader goes on from the last
generation whose assignments were written, as in Kafka.

phases     the join phase and the sync phase: how they begin and end
joining    JoinGroup
members    SyncGroup and Heartbeat
departing  LeaveGroup and expired sessions
"""
