"""The cluster as seen by each of its nodes: one knows its own shards, links and followers only."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from quorate.errors import CommandError, ExitCode
from quorate.http_client import (
    OTHERS_TIMEOUT_S,
    HttpRefused,
    ask_json,
    first_of,
    node_url,
    not_a_node,
    urls_of,
)

SERVICE_UNAVAILABLE = 503


def ask_views(urls: str, timeout_s: float) -> tuple[str, dict[str, Any], dict[int, dict[str, Any]]]:
    """The address and view of the first node that answers, and the views of all that do, by node id.

    Raises `CommandError` if none of `urls` does.
    """
    tried: set[str] = set()

    def ask(url: str, one_s: float) -> dict[str, Any]:
        tried.add(url)
        return _view(url, one_s)

    document, address = first_of(urls, timeout_s, ask)
    others = _other_views(document, urls, tried, min(timeout_s, OTHERS_TIMEOUT_S))
    return address, document, {document["node_id"]: document, **others}


def _view(url: str, timeout_s: float) -> dict[str, Any]:
    """One node's view of the cluster; a node that is too busy to give it counts as one that is away."""
    try:
        view = ask_json(url + "/v1/cluster", timeout_s)
    except HttpRefused as error:
        if error.answer.status != SERVICE_UNAVAILABLE:
            raise
        raise CommandError(error.message, hint=error.hint, code=ExitCode.UNREACHABLE) from error
    if not isinstance(view, dict) or not {"cluster_id", "node_id", "nodes", "shards"} <= set(view):
        raise not_a_node(url)
    return view


def _other_views(
    document: Mapping[str, Any], urls: str, tried: Container[str], timeout_s: float
) -> dict[int, dict[str, Any]]:
    """The views of the other nodes, as far as they answer: of those in contact, and of those in `urls`.

    A node that is cut off from the others is not in contact with them, and they may be well.
    """
    in_contact = [
        node_url(node["http"])
        for node in document["nodes"]
        if not node["is_self"] and node["http"] and node["http"]["port"]
    ]
    views = {}
    for address in dict.fromkeys([*in_contact, *urls_of(urls)]):
        if address in tried:
            continue
        try:
            view = _view(address, timeout_s)
        except CommandError:
            continue
        if view["cluster_id"] == document["cluster_id"] and view["node_id"] != document["node_id"]:
            views[view["node_id"]] = view
    return views
