"""The format of `cluster.nodes`: `ID@HOST:PORT` for each node, with an IPv6 address in brackets."""

from __future__ import annotations

import re

from raftlog.transport import PeerAddress

NODES_MAX = 9
"""At most this many nodes: a quorum of more than nine would wait for at least six disks at every commit."""

_ENTRY = re.compile(r"(\d{1,10})@(?:\[([0-9A-Fa-f:.%]+)\]|([^\s@:\[\]/,]+)):(\d{1,5})")


class NodesError(ValueError):
    """A problem with the list; the message is read after the setting's name."""


def parse_nodes(entries: tuple[str, ...]) -> tuple[PeerAddress, ...]:
    """Return the addresses ordered by node id; raises NodesError."""
    if len(entries) > NODES_MAX:
        raise NodesError(f"names {len(entries)} nodes; at most {NODES_MAX} make a cluster")
    nodes = [_parse(entry) for entry in entries]
    for what in ("node_id", "host:port"):
        seen: set[object] = set()
        for node in nodes:
            key: object = node.node_id if what == "node_id" else (node.host, node.port)
            if key in seen:
                shown = f"node {node.node_id}" if what == "node_id" else f"the address {node}"
                raise NodesError(f"names {shown} twice")
            seen.add(key)
    return tuple(sorted(nodes, key=lambda node: node.node_id))


def _parse(entry: str) -> PeerAddress:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise NodesError(f"has {entry!r}: an entry must be ID@HOST:PORT, such as 1@127.0.0.1:9192")
    number, v6, name, port = match.groups()
    if int(number) >= 1 << 31 or not 0 < int(port) < 1 << 16:
        raise NodesError(f"has {entry!r}: ids are at most {(1 << 31) - 1}, ports are 1 to 65535")
    return PeerAddress(node_id=int(number), host=v6 or name, port=int(port))
