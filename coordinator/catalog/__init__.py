"""The metadata shard: topics, group configs and transactions, and the requests that change them.

shard              the metadata shard: topics, group configs, the format level, transactional ids
topicadmin         CreateTopics, CreatePartitions, DeleteTopics
configadmin        IncrementalAlterConfigs of groups
topicracks         the racks of a topic's replicas
transactions       producers of transactions: their ids and epochs, what they add, commit and abort
transactiontimers  when a transaction times out, is complete, or its id expires
"""
