"""The older group protocols of one node: their listeners, and what they are told of the node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from cluster.lineage.connections import FramedContext, FramedListener
from cluster.lineage.push import PushService
from cluster.lineage.rewrite import RewriteService
from cluster.lineage.shard_door import ShardDoor
from cluster.node_info import NodeInfo
from cluster.runtime.group_duties import GroupRuntime
from cluster.runtime.job_slots import JobSlots
from cluster.runtime.slices import Slices
from cluster.settings import Settings
from coordinator.api import JobKind
from raftlog.env.host import Host
from raftlog.env.rate_limit import RateLimitedLogger
from records import OLD_GROUPS_SINCE

LOG = logging.getLogger("quorate.lineage")


class LineageNode(Protocol):
    """The part of a Node that is used here."""

    host: Host
    settings: Settings
    slices: Slices
    shards: list[GroupRuntime]
    job_slots: dict[JobKind, JobSlots]

    @property
    def nodes(self) -> tuple[NodeInfo, ...]: ...

    @property
    def has_met_all(self) -> bool: ...

    @property
    def format_level(self) -> int: ...

    def coordinator_of(self, group_id: str) -> NodeInfo | None: ...

    def observe_clock(self, now_ms: float) -> None: ...


class LineageListeners:
    """The listeners that the settings turn on, for a node whose shards are made and not started."""

    def __init__(self, node: LineageNode) -> None:
        self._node = node
        self._limited_log = RateLimitedLogger(LOG, node.host.monotonic_ms)
        settings = node.settings
        self._doors = [ShardDoor(runtime) for runtime in node.shards]
        self._push: PushService | None = None
        self._rewrite: RewriteService | None = None
        self._listeners: list[FramedListener] = []
        if settings.lineage_push_port >= 0:
            self._push = PushService(
                node.host, settings.node_id, self._doors, self._locate, lambda: node.nodes
            )
            self._push.listener = self._listen(self._push, settings.lineage_push_port)
        if settings.lineage_rewrite_port >= 0:
            slots = node.job_slots[JobKind.ASSIGN]
            self._rewrite = RewriteService(node.host, settings, self._doors, self._locate, slots, node.slices)
            self._rewrite.listener = self._listen(self._rewrite, settings.lineage_rewrite_port)
        self._services = [one for one in (self._push, self._rewrite) if one is not None]

    def _listen(self, service: PushService | RewriteService, port: int) -> FramedListener:
        node = self._node
        context = FramedContext(node.host, node.settings, node.slices, node.observe_clock)
        listener = FramedListener(context, service, port)
        self._listeners.append(listener)
        return listener

    def _locate(self, group_id: str) -> NodeInfo | None:
        """Return the node that leads a group.

        None while this node has not met the others since its start, or if no such group can be written."""
        if self._node.format_level < OLD_GROUPS_SINCE:
            self._limited_log.warning(
                "format",
                "groups of older protocols need format level %d, and the cluster is at %d: "
                "`quorate cluster upgrade` raises it when every node has this release",
                OLD_GROUPS_SINCE,
                self._node.format_level,
            )
            return None
        return self._node.coordinator_of(group_id) if self._node.has_met_all else None

    @property
    def ports(self) -> tuple[int, int]:
        """The bound ports of push and rewrite; 0 for one that is off."""
        push, rewrite = self._push, self._rewrite
        return (
            0 if push is None else push.listener.port,
            0 if rewrite is None else rewrite.listener.port,
        )

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        """Listen; `done(None)` once connections are accepted, or `done(error)`."""
        waiting = list(self._listeners)

        def next_one(error: BaseException | None) -> None:
            if error is not None or not waiting:
                done(error)
            else:
                waiting.pop().start(next_one)

        next_one(None)

    def stop(self) -> None:
        """Accept nothing more and close every connection."""
        for listener in self._listeners:
            listener.stop()

    # The node.

    def shard_moved(self, shard: int) -> None:
        """Follow a change of a group shard's state on this node."""
        for service in self._services:
            service.moved(shard)

    def topics_changed(self) -> None:
        """Compare groups with the committed catalog."""
        for service in self._services:
            service.topics_changed()

    def configs_changed(self, group_ids: Iterable[str]) -> None:
        """Follow changed configs of groups."""
        if self._push is not None:
            self._push.configs_changed(group_ids)

    def shift_deadlines(self, gap_ms: float) -> None:
        """Move all deadlines after the loop stood still for `gap_ms`; negative: bring them nearer."""
        for door in self._doors:
            door.shift(gap_ms)
        for service in self._services:
            service.resumed()
