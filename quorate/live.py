"""The live state of a group, read over HTTP from its current leader.

The first node that answers names the addresses of all, and is checked to belong to the same cluster. Any node
forwards a consistent read to the leader; while there is none, the request is repeated for a short time.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from quorate.addresses import ClusterPlace
from quorate.errors import CommandError, ExitCode
from quorate.http_client import OK, HttpRefused
from quorate.nodes import Nodes

LIVE_S_MAX = 3.0  # a failover takes less; after that the plain description is used


class LiveView:
    """The HTTP side of the cluster with that id; its address is looked up when it is first asked."""

    def __init__(self, place: ClusterPlace, cluster_id: str | None, timeout_s: float) -> None:
        self._place = place
        self._cluster_id = cluster_id
        self._timeout_s = min(timeout_s, LIVE_S_MAX)
        self._nodes: Nodes | None = None

    def group(self, group_id: str) -> Any:
        """The leader's answer to `GET /v1/groups/{id}`; raises `CommandError` if there is none."""
        return self._consistent(f"/v1/groups/{quote(group_id, safe='')}")

    def group_configs(self, group_id: str) -> Any:
        """The leader's answer to `GET /v1/groups/{id}/configs`; raises `CommandError` if there is none."""
        return self._consistent(f"/v1/groups/{quote(group_id, safe='')}/configs")

    def _consistent(self, path: str) -> Any:
        self._nodes = self._nodes or self._met()
        answer = self._nodes.ask(f"{path}?consistent=1")
        if answer.status != OK:
            raise HttpRefused(answer)
        return answer.document

    def _met(self) -> Nodes:
        """The nodes of the cluster, as the first one that answers names them."""
        nodes = Nodes(self._place.http(self._timeout_s), self._timeout_s)
        nodes.meet(everyone=False)
        if nodes.cluster_id != self._cluster_id:
            raise CommandError(
                f"{nodes.urls[0]} belongs to cluster {nodes.cluster_id}, not to {self._cluster_id}",
                hint="give a node of the same cluster with --url",
                code=ExitCode.USAGE,
            )
        return nodes
