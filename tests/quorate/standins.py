"""Nodes that answer from a script, over the Kafka protocol and over HTTP, and record their requests."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from wire.apis import ApiKey
from wire.framing import Framer
from wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from wire.protocol import decode_request, encode_response

CLUSTER_ID = "test-cluster"
HANG_UP = object()
SILENCE = object()


class ScriptedNode:
    """Answers each API from a list of answers and repeats the last one; counts the requests."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.asked: list[tuple[ApiKey, Any]] = []
        self._script: dict[ApiKey, list[Any]] = {}
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def answer(self, api: ApiKey, *answers: object) -> None:
        self._script[api] = list(answers)

    def count(self, api: ApiKey) -> int:
        return sum(asked == api for asked, _ in self.asked)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        framer = Framer(1 << 20)
        while True:
            try:
                data = connection.recv(65536)
            except OSError:
                return
            if not data:
                return
            for payload in framer.feed(data):
                header, body = decode_request(payload)
                api = ApiKey(header.api_key)
                self.asked.append((api, body))
                answer = self._next(api)
                if answer is HANG_UP:
                    connection.close()
                    return
                if isinstance(answer, bytes):
                    connection.sendall(answer)
                elif answer is not SILENCE:
                    connection.sendall(
                        encode_response(api, header.api_version, header.correlation_id, answer)
                    )

    def _next(self, api: ApiKey) -> object:
        script = self._script[api]
        return script.pop(0) if len(script) > 1 else script[0]


def metadata(node: ScriptedNode, **topics: int) -> MetadataResponse:
    return MetadataResponse(
        cluster_id=CLUSTER_ID,
        brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=node.port)],
        topics=[
            MetadataResponseTopic(
                name=name, partitions=[MetadataResponsePartition(partition_index=p) for p in range(count)]
            )
            for name, count in topics.items()
        ],
    )


Answer = tuple[int, Any]


class HttpNode:
    """Answers each path from a list and repeats the last answer; records the requests."""

    def __init__(self) -> None:
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer("")

            def do_DELETE(self) -> None:
                self.answer("")

            def do_POST(self) -> None:
                assert self.headers["Content-Type"] == "application/json"
                self.answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

            def answer(self, body: str) -> None:
                node.asked.append((self.command, self.path, body))
                script = node.script.get(self.path, [(404, {})])
                status, document = script.pop(0) if len(script) > 1 else script[0]
                data = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None: ...

        self.asked: list[tuple[str, str, str]] = []
        self.script: dict[str, list[Answer]] = {}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.port}

    def of_cluster(self, cluster_id: str = CLUSTER_ID) -> None:
        """Answer /v1/cluster as the only node."""
        nodes = [{"node_id": 1, "http": self.address}]
        shards = [{"shard": 0, "log": {"commit_index": 1}}]
        document = {"cluster_id": cluster_id, "node_id": 1, "nodes": nodes, "shards": shards}
        self.script["/v1/cluster"] = [(200, document)]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
