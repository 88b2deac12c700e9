"""The scratch log: messages in memory, so that producers and consumers under test have something to do.

It is bounded and not durable. The leader of the metadata shard keeps it; a new leader begins with an empty
one. Nothing here knows a socket, a clock or a request.

batches       one record batch: its header, the checks that Kafka's broker makes, and its place in a log
records       records of a batch that is not compressed, found by time
producers     sequence numbers of idempotent producers
transactions  those of one partition: open ones, and what consumers of committed records leave out
partition     the log of one partition
table         the logs of all partitions in one term, their bounds, and who waits for records
"""

from cluster.scratchlog.batches import RefusedBatch
from cluster.scratchlog.partition import PartitionLog
from cluster.scratchlog.table import RecordWaiter, ScratchBounds, ScratchLog

__all__ = ["PartitionLog", "RecordWaiter", "RefusedBatch", "ScratchBounds", "ScratchLog"]
