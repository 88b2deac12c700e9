"""The life of a member, from the first heartbeat to the end.

heartbeat   joins, acknowledgements, lost replies, steady heartbeats
validation  checks of a heartbeat that do not depend on the group
statics     static membership: leaving temporarily, replacement
regexes     subscriptions by regular expression
leaving     leaving, on request or because a deadline passed
extensions  the requests of client-side assignors
"""
