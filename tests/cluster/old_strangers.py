"""Connections to the older protocols' listeners on which a test sends any bytes."""

from __future__ import annotations

from typing import Any

from cluster.lineage.serving import LineageListeners
from cluster.simulator import VirtualHost
from lineage.push.messages import RegisterRequest
from lineage.rewrite.messages import decode_response, encode_request
from raftlog.env.host import Stream, StreamHandler
from raftlog.env.simulated_files import SimFiles
from tests.cluster.old_protocols import PING_MS, RETRIES, OldNodes
from tests.support.three_nodes import GROUP
from wire.framing import Framer
from wire.schema import Message


class Stranger(StreamHandler):
    """A connection on which any bytes are sent; `frames` are what came back."""

    def __init__(self, nodes: OldNodes, port: int, node_id: int | None = None) -> None:
        self._nodes = nodes
        self._framer = Framer(8 << 20)
        self._stream: Stream | None = None
        self.frames: list[bytes] = []
        self.is_lost = False
        host = VirtualHost(nodes.world, nodes.network, SimFiles(), name="stranger")
        address = nodes.cluster[node_id or nodes.leader].address
        host.connect(address, port, lambda: self, lambda _handler, error: None)
        nodes.wait(lambda: self._stream is not None)

    def send(self, data: bytes) -> None:
        assert self._stream is not None
        if not self.is_lost:
            self._stream.write(data)

    def leave(self) -> None:
        assert self._stream is not None
        self._stream.abort()

    def ask(self, request: Message, client_id: str = "stranger") -> Any:
        """The answer of seed 000's listener; None if the connection is closed instead."""
        before = len(self.frames)
        self.send(encode_request(1, client_id, request))
        self._nodes.wait(lambda: len(self.frames) > before or self.is_lost)
        return None if self.is_lost else decode_response(request, self.frames[-1])[1]

    def connection_made(self, transport: Stream) -> None:
        self._stream = transport

    def data_received(self, data: bytes) -> None:
        self.frames += self._framer.feed(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def pause_writing(self) -> None:
        """Do nothing: what cannot be sent is kept by the simulated stream."""

    def resume_writing(self) -> None:
        """Do nothing."""


def listeners(nodes: OldNodes) -> list[LineageListeners]:
    found = [machine.node._lineage for machine in nodes.cluster.machines.values()]
    return [one for one in found if one is not None]


def register(name: str, group_id: str = GROUP, **fields: Any) -> RegisterRequest:
    given = {"ping_interval_ms": PING_MS, "max_ping_retries": RETRIES} | fields
    return RegisterRequest(group_id=group_id, consumer_id=name, auto_commit=True, **given)
