"""`kill` and `restart` of nodes over HTTP: the node passes them on to the `quorate up` that runs it.

Invariants: a node that runs by itself has no launcher and refuses; one request is under way at a time; the
origin is checked before, as for every change (`writes`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cluster.http.file_server import busy, in_thread
from cluster.http.node_view import Json
from cluster.http.routes import HttpError
from cluster.supervisor_socket import NoSupervisor, ask, is_there

LOG = logging.getLogger("quorate.http")

ANSWER_S: Final = 45.0
"""Longest wait for the launcher: a restart may take ten seconds to stop and thirty to start."""


class Launcher:
    """The launcher that uses `directory`; none if that is empty."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._asking = asyncio.Lock()

    def is_there(self) -> bool:
        return bool(self._directory) and is_there(self._directory)

    async def run(self, command: str, node_id: int, asker: str) -> Json:
        """Let the launcher kill or restart a node; HttpError 403 if there is none, 409 if it refuses."""
        if not self.is_there():
            hint = "`quorate up --nodes 3` allows it for the nodes that it runs"
            raise HttpError(403, "NOT_LAUNCHED", "no launcher runs this node", hint)
        if self._asking.locked():
            raise busy("LAUNCHER_BUSY", "the launcher is at work for another request")
        async with self._asking:
            LOG.warning("%s of node %d, as requested by %s", command, node_id, asker)
            try:
                answer = await in_thread(ask, self._directory, command, node_id, ANSWER_S)
            except NoSupervisor as error:
                raise HttpError(503, "NO_LAUNCHER", str(error), "start it with `quorate up`") from None
            except TimeoutError:
                message = f"the launcher did not respond within {ANSWER_S:.0f} s"
                raise HttpError(503, "UNKNOWN_OUTCOME", message, "check /v1/cluster") from None
        if "error" in answer:
            raise HttpError(409, "REFUSED", str(answer["error"]), str(answer["hint"]))
        return {"said": str(answer["said"]), "node_id": node_id}
