"""The life of a member, from the first heartbeat to the end.

heartbeat        joins, acknowledgements, lost replies, steady heartbeats
validation       checks of a heartbeat that do not depend on the group
updating         what follows from a member's metadata: the epoch, the target, the next assignment
statics          static membership: leaving temporarily, replacement
regexes          subscriptions by regular expression
leases           fencing tokens for members that ask for them
numbering        the numbers by which people call members: m1, m2 and so on
leaving          leaving, on request or because a deadline passed
extensions       the requests of client-side assignors
classic_members  members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat
"""
