"""Reasons not to talk to another node: the codes on the wire, and their meaning for the refused side."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class HelloRefusal(IntEnum):
    """The reason why a node does not talk to another; the number goes over the wire."""

    MALFORMED = 1
    PROTOCOL = 2
    CLUSTER = 3
    SAME_NODE = 4
    UNKNOWN_NODE = 5
    WRONG_ADDRESS = 6
    SECRET = 7
    SHARDS = 8
    VOTERS = 9
    INCARNATION = 10
    OLD_DISK = 11
    FORMAT_LEVEL = 12


TOLD: Final = {
    HelloRefusal.MALFORMED: "it could not read this node's hello",
    HelloRefusal.PROTOCOL: "it speaks another version of the peer protocol; run releases that are closer to "
    "each other",
    HelloRefusal.CLUSTER: "it belongs to another cluster; correct cluster.nodes, or this node's data.dir",
    HelloRefusal.SAME_NODE: "it has the same node id as this node; give each node its own node.id",
    HelloRefusal.UNKNOWN_NODE: "its cluster.nodes does not contain this node",
    HelloRefusal.WRONG_ADDRESS: "cluster.nodes has another node under its address; correct the address",
    HelloRefusal.SECRET: "the two nodes have different secrets; cluster.secret.file must hold the same "
    "secret on every node",
    HelloRefusal.SHARDS: "the two nodes were formatted with different numbers of shards",
    HelloRefusal.VOTERS: "the two nodes were formatted for different sets of nodes",
    HelloRefusal.INCARNATION: (
        "it knows this node with another disk; format an empty directory here with --replace"
    ),
    HelloRefusal.OLD_DISK: "it has seen a newer state of this node's disk: an old copy was restored here; "
    "format an empty directory with --replace instead",
    HelloRefusal.FORMAT_LEVEL: "one of the two nodes cannot read the format level that the cluster uses; "
    "run the newer release on both",
}
"""The reasons in words of the refused node; the refusing one knows and logs more."""


def told(body: bytes) -> str:
    """The meaning of a peer's refusal for this node, in words; also for unknown codes of newer releases."""
    code = body[0] if body else 0
    return (
        TOLD[HelloRefusal(code)]
        if code in TOLD
        else f"it gave reason {code}, which is unknown to this release"
    )


class HelloRefused(Exception):
    """This node refuses the peer; the text gives the reason and the remedy."""

    def __init__(self, code: HelloRefusal, text: str) -> None:
        super().__init__(text)
        self.code = code


OUTDATED: Final = (HelloRefusal.INCARNATION, HelloRefusal.OLD_DISK)
"""Refusals that mean that the refused node's disk is not the one the cluster counts on.

It must not vote anywhere, not even with a peer that was away and does not know.
"""


class RefusedByPeer(Exception):
    """The peer refuses this node; the text gives the reason and the remedy."""

    def __init__(self, body: bytes, *, is_proven: bool) -> None:
        """`is_proven`: the sender knows the cluster's secret."""
        super().__init__(told(body))
        self.is_outdated = is_proven and body[:1] in [bytes([code]) for code in OUTDATED]
