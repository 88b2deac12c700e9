"""The live state of a group, read over HTTP from its current leader.

The Kafka protocol does not name HTTP addresses, so they come from `--url`, as with `quorate cluster`. The
first node that answers names the addresses of all, and is checked to belong to the same cluster. Any node
forwards a consistent read to the leader; while there is none, the request is repeated for a short time.
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

from quorate.commands.http import HttpRefused, first_of, get_json, node_url
from quorate.errors import CommandError, ExitCode

LIVE_S_MAX = 3.0  # a failover takes less; after that the plain description is used
PAUSE_S = 0.1


class LiveView:
    """The HTTP side of the cluster with that id, found at one of `urls` (with commas)."""

    def __init__(self, urls: str, cluster_id: str | None, timeout_s: float) -> None:
        self._urls = urls
        self._cluster_id = cluster_id
        self._timeout_s = min(timeout_s, LIVE_S_MAX)
        self._known: str | None = None

    def group(self, group_id: str) -> Any:
        """The leader's answer to `GET /v1/groups/{id}`; raises `CommandError` if there is none."""
        return self._consistent(f"/v1/groups/{quote(group_id, safe='')}")

    def group_configs(self, group_id: str) -> Any:
        """The leader's answer to `GET /v1/groups/{id}/configs`; raises `CommandError` if there is none."""
        return self._consistent(f"/v1/groups/{quote(group_id, safe='')}/configs")

    def _consistent(self, path: str) -> Any:
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            left_s = max(0.1, deadline_s - time.monotonic())
            try:
                if self._known is None:
                    self._known = self._learn(left_s)
                return first_of(
                    self._known, left_s, lambda url, one_s: get_json(f"{url}{path}?consistent=1", one_s)
                )[0]
            except CommandError as error:
                passes = error.status == 503 if isinstance(error, HttpRefused) else self._known is not None
                if not passes or time.monotonic() + PAUSE_S >= deadline_s:
                    raise
            time.sleep(PAUSE_S)

    def _learn(self, timeout_s: float) -> str:
        """The HTTP addresses of all nodes of the cluster."""
        document, url = first_of(
            self._urls, timeout_s, lambda one, one_s: get_json(f"{one}/v1/cluster", one_s)
        )
        found = document.get("cluster_id") if isinstance(document, dict) else None
        if found != self._cluster_id:
            raise CommandError(
                f"{url} is of the cluster {found}, not of {self._cluster_id}",
                hint="name a node of the same cluster with --url",
                code=ExitCode.USAGE,
            )
        addresses = [node["http"] for node in document["nodes"] if node["http"] and node["http"]["port"]]
        return ",".join(dict.fromkeys([url, *map(node_url, addresses)]))
