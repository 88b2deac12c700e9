"""The Kafka port.

listener      accepts connections
connection_table  the connections of any listener: how many, and what all of them keep together
context       what connections share: the node, settings, counters, bounds over all of them
connection    one connection: frames in, replies out in the order of their requests
unserved      what was read and is not served yet
reply_queue   unanswered requests in order, and replies that wait for earlier ones
written       replies that the transport may still keep
dispatch      from a frame to its handler
commit_runs   commits that follow each other, served in one call
exchange      one request and the reply that it waits for
steady        cached replies to steady heartbeats: the fast path
cluster_apis  versions, nodes, topics, coordinators
arrivals      clients that start together, by what they ask
auto_topics   topics created because a client asks for them, where there is a scratch log
topic_pages   topics with their partitions, in pages
configs       DescribeConfigs, ListConfigResources, IncrementalAlterConfigs
forwarding    requests passed on to the controller
injecting     faults that an operator has set
fetching      ListOffsets and Fetch of topics that are always empty
producing     Produce, which is always refused
appending     Produce, InitProducerId and DeleteRecords where there is a scratch log
ending        markers of transactions in the scratch log
reading       Fetch and ListOffsets where there is a scratch log
waiting       requests that wait for a leader or for time to pass
node_view     the interface of a node towards its listeners
counters      counters for the metrics
"""

from cluster.kafka.listener import KafkaListener

__all__ = ["KafkaListener"]
