"""What the HTTP listener asks of a node, beyond what the Kafka listener asks: to look into its shards.

Reading is all that HTTP does, so nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from cluster.kafka.node_view import KafkaNode
from raftlog.host import Host, Timer

Json = dict[str, Any]


class LogReader(Protocol):
    """The part of a replica that serves its committed frames."""

    def read_committed(self, from_index: int, max_bytes: int) -> Sequence[Any]: ...


class Counted(Protocol):
    def as_dict(self) -> Mapping[str, int]: ...


class ShardView(Protocol):
    """One shard's runtime as HTTP sees it. `machine` is a GroupShard, or a CatalogShard for metadata.

    The projection may be ahead of what is committed; `when_committed` calls once commit has reached an index.
    """

    @property
    def shard(self) -> int: ...

    @property
    def machine(self) -> Any: ...

    @property
    def replica(self) -> LogReader: ...

    @property
    def commit_index(self) -> int: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def counters(self) -> Counted: ...

    def status(self) -> Json: ...

    def when_committed(self, index: int, fn: Callable[[], None]) -> Timer: ...


class HttpNode(KafkaNode, Protocol):
    """The part of a Node that the HTTP listener uses."""

    @property
    def host(self) -> Host: ...

    @property
    def shards(self) -> Sequence[ShardView]: ...

    @property
    def metadata(self) -> ShardView: ...

    def shard_for(self, group_id: str) -> ShardView: ...
