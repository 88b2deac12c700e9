"""Checks of another node's hello; each refusal says what an operator can do about it."""

from __future__ import annotations

from raftlog.transport.hello import Hello
from raftlog.transport.refusals import HelloRefusal, HelloRefused


def check_claims(own: Hello, peer: Hello, *, is_dialer: bool) -> None:
    """Check the claims that can be refused before the peer has proven anything; raises HelloRefused."""
    if peer.cluster_id != own.cluster_id:
        raise HelloRefused(
            HelloRefusal.CLUSTER,
            f"belongs to cluster {peer.cluster_id!r}, but this node belongs to {own.cluster_id!r}; correct "
            "cluster.nodes or data.dir of one of the two",
        )
    if peer.node_id == own.node_id:
        if peer.boot_id == own.boot_id:
            raise HelloRefused(
                HelloRefusal.SAME_NODE,
                f"is this node itself; correct cluster.nodes, which gives the address of node {own.node_id} "
                "to another node as well",
            )
        raise HelloRefused(
            HelloRefusal.SAME_NODE,
            f"has node id {peer.node_id}, as this node has; give each node its own node.id",
        )
    if is_dialer and peer.node_id != own.to_node_id:
        raise HelloRefused(
            HelloRefusal.WRONG_ADDRESS,
            f"is node {peer.node_id}, not node {own.to_node_id}; correct its address in cluster.nodes",
        )
    if not is_dialer and peer.node_id not in own.voters:
        raise HelloRefused(
            HelloRefusal.UNKNOWN_NODE,
            f"has node id {peer.node_id}, but this cluster was formatted for nodes {_ids(own.voters)}; "
            "correct its node.id or data.dir",
        )
    if peer.to_node_id != own.node_id:
        raise HelloRefused(
            HelloRefusal.WRONG_ADDRESS,
            f"expects node {peer.to_node_id}, but this is node {own.node_id}; correct cluster.nodes of node "
            f"{peer.node_id}",
        )
    if not is_dialer and peer.node_id < own.node_id:
        raise HelloRefused(
            HelloRefusal.MALFORMED,
            f"connects as node {peer.node_id}; only the node with the greater id connects",
        )


def check_membership(own: Hello, peer: Hello) -> None:
    """Check the claims of a peer that has proven the secret; raises HelloRefused."""
    if peer.num_shards != own.num_shards:
        raise HelloRefused(
            HelloRefusal.SHARDS,
            f"was formatted with {peer.num_shards} shards, this node with {own.num_shards}; format one of "
            "them again",
        )
    if peer.voters != own.voters:
        raise HelloRefused(
            HelloRefusal.VOTERS,
            f"was formatted for nodes {_ids(peer.voters)}, this node for {_ids(own.voters)}; format one of "
            "them again",
        )
    theirs, ours = peer.description, own.description
    if theirs.format_level_max < ours.format_level:
        raise HelloRefused(
            HelloRefusal.FORMAT_LEVEL,
            f"runs release {theirs.release}, which reads format levels up to {theirs.format_level_max}, but "
            f"the cluster uses {ours.format_level}; start a newer release on it",
        )
    if ours.format_level_max < theirs.format_level:
        raise HelloRefused(
            HelloRefusal.FORMAT_LEVEL,
            f"runs release {theirs.release} and uses format level {theirs.format_level}, this release reads "
            f"up to {ours.format_level_max}; start a newer release on this node",
        )


def _ids(voters: tuple[int, ...]) -> str:
    return ", ".join(map(str, voters[:16]))
