"""What the HTTP listener asks of a node, beyond what the Kafka listener asks: to look into its shards and
links, and the two things that an operator may change over HTTP: who leads, and the format level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from cluster.kafka.node_view import KafkaNode
from coordinator.limits import SettingsView
from raftlog.evidence import Refusal
from raftlog.host import Host, Timer

Json = dict[str, Any]


class LinkInfo(Protocol):
    """What a peer said of itself in its hello."""

    @property
    def incarnation(self) -> str: ...

    @property
    def boot_id(self) -> str: ...

    @property
    def release(self) -> str: ...


class LinkTable(Protocol):
    """The part of `raftlog.peers.Links` that is shown."""

    @property
    def peers(self) -> Mapping[int, LinkInfo]:
        """The links that are up, by node id."""

    def status(self) -> list[Json]:
        """One row per configured peer: `node_id`, `state` (up, down), `for_ms`, `trouble` in words, bytes."""


class Archived(Protocol):
    """Reads on and on in what is older than the snapshot; on any thread, one call at a time."""

    def frames(self, from_index: int, bytes_max: int) -> bytes:
        """Whole frames, at least one; KeyError when the entry was removed."""

    def close(self) -> None: ...


class OpenSnapshot(Protocol):
    """A snapshot file, open for reading; on any thread."""

    @property
    def size(self) -> int: ...

    def chunk(self, offset: int, bytes_max: int) -> bytes: ...

    def close(self) -> None: ...


class LogReader(Protocol):
    """The part of a replica that serves its committed frames."""

    @property
    def live_from(self) -> int:
        """The first entry behind the snapshot."""

    def read_committed(self, from_index: int, bytes_max: int) -> bytes:
        """Whole frames behind the snapshot, at least one; b"" where there are none (yet)."""

    def archive(self) -> Archived: ...

    def first_kept(self) -> int:
        """The oldest entry that can be read; asks a file."""

    def snapshot(self) -> OpenSnapshot:
        """FileNotFoundError where there is none yet."""


class Counted(Protocol):
    @property
    def rebalances(self) -> int: ...

    def as_dict(self) -> Mapping[str, int]: ...


class Noted(Protocol):
    """The node's evidence."""

    def refusals(self, group_id: str) -> Sequence[Refusal]:
        """The newest refusal of each member of the group and of each stranger, the newest first."""

    def flush(self) -> None: ...

    def contents(self) -> list[bytes]:
        """Both files, the older first; on any thread."""


class ShardView(Protocol):
    """One shard's runtime as HTTP sees it. `machine` is a GroupShard, or a CatalogShard for metadata.

    The projection may be ahead of what is committed; `when_committed` calls once commit has reached an index.
    When entries that it holds are cut off the log, the projection is built anew, in another `machine`.
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
    def is_ready(self) -> bool:
        """Whether this node serves the shard to clients."""

    @property
    def serving(self) -> str | None:
        """ "loading", "active" or "failed"; None when another node leads the shard, or nobody."""

    @property
    def load_ms(self) -> float:
        """How long the node took from its election (alone: from its start) to serving, the last time."""

    @property
    def requests_waiting(self) -> int:
        """Requests between two of the decisions that they take."""

    @property
    def is_readable(self) -> bool:
        """Whether the projection is whole, and has been as new as its leader's: on followers too."""

    @property
    def counters(self) -> Counted: ...

    def status(self) -> Json: ...

    def when_committed(self, index: int, fn: Callable[[], None]) -> Timer: ...

    def when_consistent(self, fn: Callable[[object], None]) -> None:
        """`fn(None)` once this node is proven to lead after now, and all that it has applied is committed;
        `fn(why)` when it cannot be proven."""


class HttpNode(KafkaNode, Protocol):
    """The part of a Node that the HTTP listener uses."""

    @property
    def host(self) -> Host: ...

    @property
    def shards(self) -> Sequence[ShardView]: ...

    @property
    def metadata(self) -> ShardView: ...

    @property
    def links(self) -> LinkTable | None:
        """None for a node alone."""

    @property
    def group_settings(self) -> SettingsView: ...

    @property
    def evidence(self) -> Noted: ...

    @property
    def format_level(self) -> int:
        """What writers of the cluster may use."""

    def shard_for(self, group_id: str) -> ShardView: ...

    def status(self) -> Json:
        """Who the node is: `incarnation`, `boot_id`, `uptime_ms`, and more."""

    def transfer(self, shard: int, to: int | None, done: Callable[[str | None], None]) -> None:
        """Hands the leadership of a shard over; `done(None)`, or why it stays, in words."""

    def upgrade(self, done: Callable[[str | None], None]) -> None:
        """Raises the format level to what every node can read; `done(None)`, or why not, in words."""
