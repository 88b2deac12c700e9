"""The interface of a node towards its listeners, and nothing more: tests use a small node of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from cluster.node_info import ClientInfo, NodeInfo
from cluster.settings import Settings
from coordinator.topics import CatalogView
from raftlog.storage.evidence import Evidence
from wire.errors import ErrorCode
from wire.messages.offset_commit import OffsetCommitRequest

Reply = Callable[[object], None]


class HeartbeatEntry(Protocol):
    """The coordinator's entry for a steady member; docs/architecture.md, "The life of one request"."""

    def is_valid(self) -> bool: ...

    def touch(self, monotonic_ms: float, wall_ms: int) -> None: ...


class WallClock(Protocol):
    """The wall clock as agreed by most nodes."""

    def wall_at(self, now_ms: float) -> int:
        """Return the wall time at this monotonic time."""


class KafkaNode(Protocol):
    """The part of a Node that the Kafka listener uses.

    `submit` takes every request that concerns groups or changes the catalog, and calls `reply` exactly once,
    perhaps at once. `fast_entry` is None unless the member is steady and its shard is ready.
    """

    @property
    def settings(self) -> Settings: ...

    @property
    def info(self) -> NodeInfo: ...

    @property
    def nodes(self) -> Sequence[NodeInfo]:
        """The nodes in contact, this one included, ordered by id."""

    @property
    def listed_nodes(self) -> Sequence[NodeInfo]:
        """The nodes that clients are told of: those in contact and, for some seconds, those just lost."""

    @property
    def has_met_all(self) -> bool:
        """Whether this node has had time since its start to meet the others."""

    @property
    def voters(self) -> Sequence[int]:
        """The ids of all nodes of the cluster, in contact or not, this one included."""

    @property
    def catalog(self) -> CatalogView: ...

    @property
    def is_catalog_current(self) -> bool:
        """Whether `catalog` has caught up with that of its leader since this node started."""

    @property
    def metadata_term(self) -> int: ...

    @property
    def metadata_lead(self) -> tuple[int, int] | None:
        """The term in which this node leads the metadata shard, and the index of its first entry."""

    @property
    def controller(self) -> NodeInfo | None:
        """The leader of the metadata shard."""

    def leader_of(self, shard: int) -> NodeInfo | None:
        """Return the leader of the shard as far as this node knows, if it has a link to it."""

    @property
    def clock(self) -> WallClock: ...

    @property
    def evidence(self) -> Evidence: ...

    def observe_clock(self, now_ms: float) -> None:
        """Take a fresh reading before anything is compared with it: a gap of the loop moves deadlines."""

    def transaction_error(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: tuple[str, int]
    ) -> ErrorCode:
        """Return NONE if this producer has an open transaction with the partition, a topic's name and number.

        To be asked of the metadata shard's leader, which coordinates transactions.
        """

    def is_in_parts(self, commit: OffsetCommitRequest, num_bytes: int) -> bool:
        """Whether a commit, in a frame of `num_bytes`, may take more than one decision."""

    def joins_in_turns(self, group_id: str) -> bool:
        """Whether a join of the consumer protocol may take more than one decision."""

    def submit(
        self, api_key: int, api_version: int, body: object, client: ClientInfo, reply: Reply
    ) -> None: ...

    def submit_run(
        self, api_key: int, api_version: int, bodies: list[Any], client: ClientInfo, reply: Reply
    ) -> None:
        """Take requests of one API to one group that came together; `reply` gets the list of responses."""

    def fast_entry(self, group_id: str, member_id: str) -> HeartbeatEntry | None: ...
