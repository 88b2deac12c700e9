"""The interface of a node towards the HTTP listener, beyond that of the Kafka listener.

It gives access to shards and links, and to the two things that an operator may change over HTTP: the leader
of a shard, and the format level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from cluster.kafka.node_view import KafkaNode
from coordinator.limits import SettingsView
from raftlog.env.host import Host, Timer
from raftlog.storage.evidence import Refusal

Json = dict[str, Any]


class LinkInfo(Protocol):
    """A peer's description of itself in its hello."""

    @property
    def incarnation(self) -> str: ...

    @property
    def boot_id(self) -> str: ...

    @property
    def release(self) -> str: ...


class LinkTable(Protocol):
    """The part of `raftlog.transport.links.Links` that is shown."""

    @property
    def peers(self) -> Mapping[int, LinkInfo]:
        """The links that are up, by node id."""

    def status(self) -> list[Json]:
        """Return one row per configured peer: `node_id`, `state` (up, down), `for_ms`, `trouble`, bytes."""


class Archived(Protocol):
    """Sequential reads of entries older than the snapshot; on any thread, one call at a time."""

    def frames(self, from_index: int, bytes_max: int) -> bytes:
        """Return whole frames, at least one; KeyError if the entry was removed."""

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
        """The first entry after the snapshot."""

    def read_committed(self, from_index: int, bytes_max: int) -> bytes:
        """Return whole frames after the snapshot, at least one; b"" if there are none (yet)."""

    def archive(self) -> Archived: ...

    def first_kept(self) -> int:
        """Return the oldest entry that can be read; this reads a file."""

    def snapshot(self) -> OpenSnapshot:
        """Open the snapshot; FileNotFoundError if there is none yet."""


class Counted(Protocol):
    @property
    def rebalances(self) -> int: ...

    def as_dict(self) -> Mapping[str, int]: ...


class Noted(Protocol):
    """The node's evidence."""

    def refusals(self, group_id: str) -> Sequence[Refusal]:
        """Return the newest refusal of each member of the group and of each other client, newest first."""

    def flush(self) -> None: ...

    def contents(self) -> list[bytes]:
        """Return the content of both files, the older first; on any thread."""


class ShardView(Protocol):
    """One shard's runtime as HTTP sees it. `machine` is a GroupShard, or a CatalogShard for metadata.

    The projection may be ahead of what is committed; `when_committed` calls back once an index is committed.
    If entries that it holds are cut off the log, the projection is rebuilt in another `machine`.
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
        """The state "loading", "active" or "failed"; None if another node leads the shard, or none."""

    @property
    def load_ms(self) -> float:
        """Milliseconds from the node's election (alone: from its start) to serving, the last time."""

    @property
    def requests_waiting(self) -> int:
        """The number of requests that have had some of their decisions, but not all."""

    @property
    def is_readable(self) -> bool:
        """Whether the projection is complete and has caught up with its leader's; on followers too."""

    @property
    def counters(self) -> Counted: ...

    def status(self) -> Json: ...

    def when_committed(self, index: int, fn: Callable[[], None]) -> Timer: ...

    def when_consistent(self, fn: Callable[[object], None]) -> None:
        """Call `fn(None)` once this node is proven to lead and all that it has applied is committed.

        Calls `fn(why)` if that cannot be proven. The proof counts from now on.
        """


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
        """The links to other nodes; None for a node alone."""

    @property
    def group_settings(self) -> SettingsView: ...

    @property
    def evidence(self) -> Noted: ...

    @property
    def format_level(self) -> int:
        """The highest format level that the cluster's writers may use."""

    def shard_for(self, group_id: str) -> ShardView: ...

    def status(self) -> Json:
        """Return the identity of the node: `incarnation`, `boot_id`, `uptime_ms`, and more."""

    def transfer(self, shard: int, to: int | None, done: Callable[[str | None], None]) -> None:
        """Hand over the leadership of a shard; `done(None)`, or `done` with the reason why it stays."""

    def upgrade(self, done: Callable[[str | None], None]) -> None:
        """Raise the format level to the highest that every node reads; `done` gets None or a reason."""
