"""The metadata shard: topics and group configs, and the requests that change them.

shard        the metadata shard: topics, group configs, the format level
topicadmin   CreateTopics, CreatePartitions, DeleteTopics
configadmin  IncrementalAlterConfigs of groups
topicracks   the racks of a topic's replicas
"""
