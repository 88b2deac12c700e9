"""Under which names the HTTP listener may be asked.

A page in a browser may ask any address, and may read the answer if it comes from the page's own site. A site
whose name resolves to this machine once its page is loaded (DNS rebinding) is such a site: the request comes
from this machine, and only its `Host` says under which name. So a listener that only this machine reaches
answers to addresses, to localhost, and to the names that the node itself goes by.

A listener that was opened to others answers to any: the operator's names for it are not known here, and
whoever reaches it needs no trick.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from cluster.http.routes import HttpError
from cluster.node_info import NodeInfo
from cluster.settings import Settings, is_loopback


def check_host(asked: str | None, settings: Settings, own: NodeInfo) -> None:
    """HttpError 403 for a `Host` that is none of this node's. Programs may leave it out; browsers do not."""
    if not asked or not is_loopback(settings.http_host):
        return
    name = _name_of(asked)
    if name in {"localhost", settings.http_host.lower(), own.http_host.lower()} or _is_address(name):
        return
    message = f"{asked[:100]!r} is no name of this node"
    hint = "ask it by its address or as localhost; http.advertised.host gives it another name"
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
