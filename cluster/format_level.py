"""The format level of a cluster: where a new one begins, and how an operator raises it.

A new cluster begins at the newest level that all of its nodes read. The directory of each node says at which
level its release begins a cluster (`NodeIdentity.starting_level`), and each hello carries it. Once the leader
of the metadata shard is in contact with every node, it writes the lowest of these levels down. A directory of
an older release has none, nor has a replaced disk; a cluster with one of these stays at the first level until
an operator raises it. So no release that ran a cluster before is shut out without being asked.

Invariants: the level rises only while every node is in contact and reads the new one, and never falls; a
cluster whose log has a level never raises it by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from cluster.membership import Membership
from cluster.runtime.catalog_duties import CatalogRuntime
from coordinator.topics import FIRST_FORMAT_LEVEL
from raftlog.env.host import Host
from raftlog.transport.links import Links

LOG = logging.getLogger("quorate.node")

AWAITED_MS: Final = 5_000
"""A node of a new cluster is not ready for so long after its start, unless the level is known sooner."""


class FormatLevel:
    """The format level as one node sees it.

    `level_max` is the highest one that its release reads, and `starting_level` that of its directory.
    `settled` is called when `is_awaited` may have ended, unless a new entry of the metadata shard ended it.
    """

    def __init__(
        self,
        host: Host,
        membership: Membership,
        metadata: CatalogRuntime,
        links: Links | None,
        settled: Callable[[], None],
        *,
        level_max: int,
        starting_level: int,
    ) -> None:
        self._host = host
        self._membership = membership
        self._metadata = metadata
        self._level_max = level_max
        self._starting_level = min(starting_level, level_max)
        self._settled = settled
        self._awaited_until_ms = host.monotonic_ms() + AWAITED_MS
        if self._starting_level > FIRST_FORMAT_LEVEL:
            host.call_later(AWAITED_MS, settled)
            if links is not None:
                links.on_change = self._met

    @property
    def now(self) -> int:
        """The highest level that writers may use."""
        return self._metadata.duties.committed.format_level

    @property
    def is_awaited(self) -> bool:
        """Whether this node has just started and the cluster, which is new, is about to have its level."""
        is_first = self.now == FIRST_FORMAT_LEVEL
        return is_first and self._host.monotonic_ms() < self._awaited_until_ms and self._may_begin

    @property
    def _may_begin(self) -> bool:
        level = self._begins_at()
        return level is None or level > FIRST_FORMAT_LEVEL

    def _begins_at(self) -> int | None:
        """The level at which the cluster begins; None while that depends on a node that is not in contact."""
        if self._starting_level == FIRST_FORMAT_LEVEL:
            return FIRST_FORMAT_LEVEL
        level = self._membership.lowest(
            self._starting_level, lambda peer: min(peer.starting_level, peer.format_level_max)
        )
        return None if isinstance(level, str) else level

    def begin(self) -> None:
        """Let a new cluster begin at its level if this node leads; called when that may have changed."""
        if self._starting_level > FIRST_FORMAT_LEVEL:
            self._host.call_soon(self._begin)

    def _met(self) -> None:
        """Follow a link that came up or went down."""
        self.begin()
        self._settled()

    def _begin(self) -> None:
        level = self._begins_at()
        is_settled = self._metadata.machine.format_level is not None or not self._metadata.is_ready
        if is_settled or level is None or level == FIRST_FORMAT_LEVEL:
            return

        def written(why: str | None) -> None:
            if why is None:
                LOG.info("the cluster is new and begins at format level %d", level)
            else:
                LOG.warning("the cluster is new and still at format level %d: %s", self.now, why)

        self._metadata.duties.raise_format_level(level, written)

    def upgrade(self, done: Callable[[str | None], None]) -> None:
        """Raise the level to the highest that every node can read; `done` gets None or the reason why not."""
        level = self._membership.lowest(self._level_max, lambda peer: peer.format_level_max)
        if isinstance(level, str):
            done(level)
        elif level <= self.now:
            done(None)
        else:
            self._metadata.duties.raise_format_level(level, done)
