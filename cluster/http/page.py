"""The page at `/`: one file put together of its parts, its security headers, and who else may read answers.

The page goes on from another node when its own one ends, so each node lets the pages of the cluster's other
nodes read the answers to GET (CORS), and the page's Content-Security-Policy lets it connect to these nodes
and nowhere else. Nothing else changes: no credentials are sent, `Host` is checked as ever (`hosts`), and a
change still has to come from the node's own page (`writes.check_origin`).
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Final

from aiohttp import web

from cluster.http.reads import http_url
from cluster.node_info import NodeInfo

SCRIPTS: Final = (
    "live_base.js",
    "live_cluster.js",
    "live_model.js",
    "live_lanes.js",
    "live_offsets.js",
    "live_group.js",
)


def _part(name: str) -> str:
    return files("cluster.http").joinpath(f"files/{name}").read_text(encoding="utf-8")


def _page() -> str:
    """Return the page with its style and its script inside."""
    script = "".join(map(_part, SCRIPTS))
    style = f"<style>\n{_part('live.css')}</style>"
    text = _part("live.html").replace("<style></style>", style)
    return text.replace("<script></script>", f"<script>\n{script}</script>")


PAGE: Final = _page()

_ORIGIN: Final = re.compile(r"http://[\w.:\[\]-]+", re.ASCII)
"""An origin that is safe in a header: a peer's host name comes from that peer."""


def _hash(tag: str) -> str:
    """Return the CSP source that allows the page's one inline `<tag>` and no other."""
    inline = PAGE.split(f"<{tag}>")[1].split(f"</{tag}>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"


_POLICY: Final = (
    f"default-src 'none'; script-src {_hash('script')}; style-src {_hash('style')}; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; connect-src 'self'"
)


def page_origins(nodes: Iterable[NodeInfo]) -> list[str]:
    """Return the origins that pages of these nodes may have, sorted.

    A node on a loopback address is also reached as localhost.
    """
    found: set[str] = set()
    for info in nodes:
        if info.http_port:
            found.add(http_url(info))
            if _is_loopback(info.http_host):
                found |= {f"http://{name}:{info.http_port}" for name in ("localhost", "127.0.0.1", "[::1]")}
    return sorted(origin for origin in found if _ORIGIN.fullmatch(origin))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def page(nodes: Iterable[NodeInfo]) -> web.Response:
    """Return the page, which may connect to these nodes only.

    A policy cannot name an IPv6 address, so the page does not go on from a node that has only that.
    """
    sources = [origin for origin in page_origins(nodes) if "[" not in origin]
    headers = {
        "Content-Security-Policy": " ".join((_POLICY, *sources)),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-cache",
    }
    return web.Response(text=PAGE, content_type="text/html", charset="utf-8", headers=headers)


def let_pages_read(request: web.Request, response: web.StreamResponse, nodes: Iterable[NodeInfo]) -> None:
    """Allow the page of another node of the cluster to read the answer to a GET."""
    origin = request.headers.get("Origin")
    if origin is None or request.method not in ("GET", "HEAD"):
        return
    response.headers["Vary"] = "Origin"
    if origin in page_origins(nodes):
        response.headers["Access-Control-Allow-Origin"] = origin
