"""The names under which the HTTP listener answers.

A page in a browser may send requests to any address, and may read the answer if that address is the page's
own site. A site whose name is made to resolve to this node after its page is loaded (DNS rebinding) is such a
site: the request comes from a machine inside the network, and only its `Host` shows the foreign name. So a
node answers to addresses, which are not the name of any site, to localhost, to the names in its settings, and
to those in `http.allowed.hosts`.
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
"""Paths that a load balancer checks under any name, and that reveal nothing to a page. They cost next to
nothing, so they are answered however busy the node is."""


class Hosts:
    """The names of one node."""

    def __init__(self, settings: Settings) -> None:
        nodes = parse_nodes(settings.cluster_nodes)
        own_entry = [node.host for node in nodes if node.node_id == settings.node_id]
        given = (settings.http_host, settings.http_advertised_host, settings.kafka_advertised_host)
        names = {"localhost", settings.kafka_host, *given, *own_entry, *settings.http_allowed_hosts}
        self._names = frozenset(name.lower().rstrip(".") for name in names if name)

    def check(self, asked: str | None, path: str, own: NodeInfo) -> None:
        """Raise HttpError 403 for a `Host` that is not one of this node's. Only programs can omit it."""
        if not asked or path in OPEN_PATHS or ANY in self._names:
            return
        name = _name_of(asked)
        if name in self._names or name == own.http_host.lower() or _is_address(name):
            return
        message = f"{asked[:100]!r} is not a name of this node"
        hint = "use its address or localhost, or add the name to http.allowed.hosts"
        raise HttpError(403, "FOREIGN_HOST", message, hint)


def _name_of(host: str) -> str:
    """Return the name without the port; "" if it is not a host."""
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
