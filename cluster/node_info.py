"""The identity of a node and of a client, shared by listeners, runtime and node.

They live apart from the node so that a listener can name them without importing what it serves.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """One node as clients see it: ids, and the addresses that it advertises (not those it binds)."""

    node_id: int
    cluster_id: str
    kafka_host: str
    kafka_port: int
    http_host: str = ""
    http_port: int = 0
    push_port: int = 0
    """Port of the push protocol on `kafka_host`; 0: this node does not serve it."""
    rewrite_port: int = 0
    """The same of the rewrite design's protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientInfo:
    """The sender of a request: client id of its header, address, authenticated principal ("" if none).

    `is_one_of_several` says of a client that joins a group that others are about to join it too."""

    client_id: str = ""
    host: str = ""
    principal: str = ""
    is_one_of_several: bool = False
