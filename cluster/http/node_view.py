"""The interface of a node towards the HTTP listener, beyond that of the Kafka listener.

It gives access to shards and links, and to the two things that an operator may change over HTTP: the leader
of a shard, and the format level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from cluster.kafka.node_view import KafkaNode
from cluster.node_info import NodeInfo
from cluster.runtime.catalog_duties import CatalogRuntime
from cluster.runtime.group_duties import GroupRuntime
from cluster.runtime.shard_runtime import AnyShardRuntime
from coordinator.limits import SettingsView
from raftlog.env.host import Host
from raftlog.transport.links import Links

Json = dict[str, Any]


class HttpNode(KafkaNode, Protocol):
    """The part of a Node that the HTTP listener uses."""

    @property
    def host(self) -> Host: ...

    @property
    def shards(self) -> Sequence[GroupRuntime]: ...

    @property
    def metadata(self) -> CatalogRuntime: ...

    @property
    def all_shards(self) -> Sequence[AnyShardRuntime]:
        """The metadata shard, then the group shards."""

    @property
    def known_nodes(self) -> Sequence[NodeInfo]:
        """The nodes that were in contact since the start, this one included."""

    @property
    def links(self) -> Links | None:
        """The links to other nodes; None for a node alone."""

    @property
    def group_settings(self) -> SettingsView: ...

    @property
    def is_level_awaited(self) -> bool:
        """Whether the cluster is new and about to have its format level."""

    @property
    def format_level(self) -> int:
        """The highest format level that the cluster's writers may use."""

    def shard_for(self, group_id: str) -> GroupRuntime: ...

    def status(self) -> Json:
        """Return the identity of the node: `incarnation`, `boot_id`, `uptime_ms`, and more."""

    def transfer(self, shard: int, to: int | None, done: Callable[[str | None], None]) -> None:
        """Hand over the leadership of a shard; `done(None)`, or `done` with the reason why it stays."""

    def upgrade(self, done: Callable[[str | None], None]) -> None:
        """Raise the format level to the highest that every node reads; `done` gets None or a reason."""

    def advance(self, ms: int) -> None:
        """Let time pass for groups, offsets and transactions at once."""
