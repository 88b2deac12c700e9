"""Online migration (KIP-848): a group changes its protocol while it has members.

A classic group becomes a consumer group with the first ConsumerGroupHeartbeat that joins it, and a consumer
group becomes a classic one when its last member of the consumer protocol is gone and classic members are
left. Both are one entry of the log: the records of one kind of group are deleted, those of the other kind
written. In between the group has members of both kinds (`coordinator.members.classic`). A group without
members takes the protocol of whoever joins it, whatever `group.consumer.migration.policy` says.

A partition that a member may still own after the change is its own in the records, so that no other member
gets it before.

embedded          what the consumers' embedded protocol says of topics and partitions
upgrading         a classic group becomes a consumer group
upgraded_members  its members then, and their records
preparing         the members of a large group are prepared in turns before the upgrade
downgrading       a consumer group becomes a classic group
"""
