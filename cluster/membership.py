"""The members of the cluster, which of them are in contact, and who leads each shard, as this node knows it.

Invariants: no client is sent to a leader that this node has no link to, or that is handing the shard
over; a node that is alone always names itself, also while it loads, because there is no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from cluster.node_info import NodeInfo
from cluster.runtime.shard_runtime import AnyShardRuntime
from cluster.settings import Settings, SettingsError
from cluster.settings.nodes import parse_nodes
from raftlog.storage.directory import NodeDirectory
from raftlog.transport.contract import PeerInfo
from raftlog.transport.links import Links

LISTED_AFTER_LOSS_MS: Final = 9_000
"""Clients are told of a lost node for so long: Kafka's default of broker.session.timeout.ms.

librdkafka gives up a broker that Metadata does not list, but may still wait for it as the coordinator of a
group; its `send_offsets_to_transaction` then never ends. While the broker is listed, it asks for another one.
"""


MEETING_MS: Final = 1_000
"""After a start this node waits so long for links to the others before it tells clients who they are.

Its first links are up within milliseconds, one after the other. An answer between two of them would leave out
a live node, and a client may then wait for a coordinator there for ever (see `LISTED_AFTER_LOSS_MS`).
"""


class Membership:
    """The nodes of one cluster as seen from one of them. `runtimes` are its shards by number."""

    def __init__(
        self,
        own: Callable[[], NodeInfo],
        voters: tuple[int, ...],
        links: Links | None,
        runtimes: Mapping[int, AnyShardRuntime],
    ) -> None:
        self._own = own
        self._links = links
        self._runtimes = runtimes
        self.voters = voters
        """The ids of all nodes, in contact or not."""

    @property
    def nodes(self) -> tuple[NodeInfo, ...]:
        """Every node in contact, this one included, ordered by id."""
        return self._with_own(() if self._links is None else self._links.peers.values())

    @property
    def listed_nodes(self) -> tuple[NodeInfo, ...]:
        """The nodes in contact, and those lost less than LISTED_AFTER_LOSS_MS ago; ordered by id."""
        if self._links is None:
            return self.nodes
        return self._with_own([*self._links.peers.values(), *self._links.lost_within(LISTED_AFTER_LOSS_MS)])

    @property
    def known_nodes(self) -> tuple[NodeInfo, ...]:
        """The nodes that were in contact since the start, with their newest addresses; ordered by id."""
        if self._links is None:
            return self.nodes
        return self._with_own([*self._links.peers.values(), *self._links.lost_within(math.inf)])

    @property
    def has_met_all(self) -> bool:
        """Whether every node has been in contact since the start, or `MEETING_MS` were spent on it."""
        return self._links is None or self._links.have_met(MEETING_MS)

    def _with_own(self, peers: Iterable[PeerInfo]) -> tuple[NodeInfo, ...]:
        others = map(self._node_info, peers)
        return tuple(sorted((self._own(), *others), key=lambda info: info.node_id))

    def leader_of(self, shard: int) -> NodeInfo | None:
        """Return the leader of the shard; None if it is unknown, not in contact, or handing over."""
        if self._links is None:
            return self._own()
        replica = self._runtimes[shard].replica
        leader_id = replica.leader_id
        if leader_id is None or replica.leadership.is_handing_over:
            return None
        return self._info(leader_id)

    def is_led_elsewhere(self, shard: int) -> bool:
        leader = self.leader_of(shard)
        return leader is not None and leader.node_id != self._own().node_id

    def _info(self, node_id: int) -> NodeInfo | None:
        own = self._own()
        if node_id == own.node_id:
            return own
        assert self._links is not None
        peer = self._links.peers.get(node_id)
        return None if peer is None else self._node_info(peer)

    def _node_info(self, peer: PeerInfo) -> NodeInfo:
        push_port, rewrite_port = (*peer.lineage_ports, 0, 0)[:2]
        return NodeInfo(
            node_id=peer.node_id,
            cluster_id=self._own().cluster_id,
            kafka_host=peer.kafka_host,
            kafka_port=peer.kafka_port,
            http_host=peer.http_host,
            http_port=peer.http_port,
            push_port=push_port,
            rewrite_port=rewrite_port,
        )

    def lowest(self, own: int, level_of: Callable[[PeerInfo], int]) -> int | str:
        """Return the lowest of a format level of all nodes, or a message saying why it is unknown."""
        peers = {} if self._links is None else self._links.peers
        own_id = self._own().node_id
        missing = [str(voter) for voter in self.voters if voter != own_id and voter not in peers]
        if missing:
            return (
                f"the format levels that node {', '.join(missing)} can read are unknown: it is not connected"
            )
        return min([own, *map(level_of, peers.values())])


def check_identity(directory: NodeDirectory, settings: Settings) -> None:
    """Check that the settings agree with what was fixed when the directory was formatted.

    Raises SettingsError, which says which of the two to change.
    """
    identity, path = directory.identity, directory.path
    for name, value, formatted in (
        ("node.id", settings.node_id, identity.node_id),
        ("cluster.shards", settings.cluster_shards, identity.num_shards),
    ):
        if value != formatted:
            raise SettingsError(
                f"{name} = {value}, but {path} was formatted with {formatted}, which cannot be changed: set "
                f"{name} = {formatted}, or set another data.dir"
            )
    named = tuple(address.node_id for address in parse_nodes(settings.cluster_nodes))
    if identity.is_alone and len(named) > 1:
        raise SettingsError(
            f"cluster.nodes names nodes {_listed(named)}, but {path} was formatted for a cluster of one "
            "node: leave cluster.nodes empty, or format another directory with --nodes"
        )
    if not identity.is_alone and named != identity.voters:
        given = f"names nodes {_listed(named)}" if named else "is empty"
        raise SettingsError(
            f"cluster.nodes {given}, but {path} was formatted as one of nodes {_listed(identity.voters)}, "
            "which cannot be changed: give the addresses of exactly these nodes"
        )


def _listed(node_ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, node_ids))
