"""Under which names the HTTP listener may be asked.

A page in a browser may ask any address, and may read the answer if it comes from the page's own site. A
site whose name resolves to this node once its page is loaded (DNS rebinding) is such a site: the request
comes from a machine inside the network, and only its `Host` says under which name. So a node answers to
addresses, which are no site's name, to localhost, to the names that its settings give it, and to those in
`http.allowed.hosts`.
"""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from cluster.http.routes import HttpError
from cluster.node_info import NodeInfo
from cluster.settings import Settings
from cluster.settings.nodes import parse_nodes

ANY: Final = "*"
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""A load balancer looks at them under whatever name it was told, and they tell a page nothing. They cost next
to nothing, so they are answered however busy the node is."""


class Hosts:
    """The names that a node goes by."""

    def __init__(self, settings: Settings) -> None:
        nodes = parse_nodes(settings.cluster_nodes)
        own_entry = [node.host for node in nodes if node.node_id == settings.node_id]
        given = (settings.http_host, settings.http_advertised_host, settings.kafka_advertised_host)
        names = {"localhost", settings.kafka_host, *given, *own_entry, *settings.http_allowed_hosts}
        self._names = frozenset(name.lower().rstrip(".") for name in names if name)

    def check(self, asked: str | None, path: str, own: NodeInfo) -> None:
        """HttpError 403 for a `Host` that is none of this node's. Only programs may leave it out."""
        if not asked or path in OPEN_PATHS or ANY in self._names:
            return
        name = _name_of(asked)
        if name in self._names or name == own.http_host.lower() or _is_address(name):
            return
        message = f"{asked[:100]!r} is no name of this node"
        hint = "ask it by its address or as localhost, or name what it is asked by in http.allowed.hosts"
        raise HttpError(403, "FOREIGN_HOST", message, hint)


def _name_of(host: str) -> str:
    """Without the port; "" for what is no host."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
