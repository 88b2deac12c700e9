"""State that only a leader keeps, outside the log: deadlines, pacing, rounds and work in progress.

It is lost with the leadership and rebuilt by the next leader, so the correctness of a decision must not
depend on it.

timers           deadlines of members
pacing           when a group may compute its next target
installing       the installation of a target in several decisions
reports          what each member last reported to own
catalog_changes  topic changes, and the groups to compare with them
resolutions      the schedule of regular-expression rounds
classic_group    a classic group: its members, its state, its protocol and its generation
classic_groups   the classic groups of a shard, and their timers
committer        the client that committed last: what holds for all its commits that arrive together
decisions        ends of transactions that the shard has to follow
clientrounds     which member is asked to compute a target
retries          due work that raised, tried again when nothing else is due
expiry           when offsets or groups may have expired
"""
