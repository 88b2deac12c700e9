"""A node that serves a log over HTTP as a real one does, and injects faults on request."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgpack

from raftlog.storage.frames import encode_frame
from records import Cause, Trigger, encode_entry, encode_record
from tests.support.memory_log import commit

PAGE = 7
"""At most this many entries in one answer, so that a small log has pages too."""


def frame(index: int, term: int = 1, offset: int = 0) -> bytes:
    """Return a frame with one commit."""
    body = encode_entry(Cause(trigger=Trigger.OFFSETS_COMMITTED), [encode_record(commit(0, offset or index))])
    return encode_frame(index, term, index - 1, 1_000 + index, 1, body)


class LogNode:
    """Holds one group shard (0) and an empty metadata shard; `fault` may answer in its place.

    `fault` receives the path and query of each request for the log, the snapshot or the evidence. It returns
    None, or (status, headers, body), or raises ConnectionError to close the connection.
    """

    def __init__(self, node_id: int, num_entries: int = 40, cluster_id: str = "test") -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.frames = [frame(index) for index in range(1, num_entries + 1)]
        self.commit_index = num_entries
        self.first_kept = 1
        self.snapshot = b""
        self.notes: list[dict[str, Any]] = []
        self.others: list[LogNode] = []
        self.asked: list[str] = []
        self.fault: Callable[[str, dict[str, str]], tuple[int, dict[str, str], bytes] | None] | None = None
        node = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                node.asked.append(self.path)
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                try:
                    status, headers, body = node.answer(parts.path, query)
                except ConnectionError:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        """Stop the process; open connections break with their next request."""
        self.fault = _gone
        self.server.shutdown()
        self.server.server_close()

    def append(self, num: int = 1) -> None:
        for _ in range(num):
            self.frames.append(frame(len(self.frames) + 1))
        self.commit_index = len(self.frames)

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        if path == "/v1/cluster":
            return _json(200, self.document())
        if self.fault is not None and (found := self.fault(path, query)) is not None:
            return found
        if path == "/v1/evidence":
            group = query.get("group")
            notes = [one for one in self.notes if group is None or one["group"] == group]
            return 200, {"Quorate-Left-Out": "0"}, b"".join(map(msgpack.packb, notes))
        if path == "/v1/shards/0/snapshot":
            return (200, {}, self.snapshot) if self.snapshot else _refusal(404, "there is no snapshot yet")
        if path == "/v1/shards/metadata/log":
            return 200, {"Quorate-Commit-Index": "0"}, b""
        return self.page(int(query["from"]), int(query["limit"]), int(query.get("wait_ms", 0)))

    def page(self, first: int, limit: int, wait_ms: int) -> tuple[int, dict[str, str], bytes]:
        deadline_s = time.monotonic() + wait_ms / 1000
        while first > self.commit_index and time.monotonic() < deadline_s:
            time.sleep(0.005)  # a long poll: woken by the entry, or over
        if first < self.first_kept:
            return _refusal(410, f"entry {first} was removed", first_index=self.first_kept)
        last = min(self.commit_index, first + min(limit, PAGE) - 1)
        headers = {"Quorate-Commit-Index": str(self.commit_index)}
        return 200, headers, b"".join(self.frames[first - 1 : last])

    def document(self) -> dict[str, Any]:
        known = [self, *self.others]
        return {
            "cluster_id": self.cluster_id,
            "node_id": self.node_id,
            "nodes": [
                {"node_id": one.node_id, "http": {"host": "127.0.0.1", "port": one.port}} for one in known
            ],
            "shards": [
                {"shard": -1, "log": {"commit_index": 0}},
                {"shard": 0, "log": {"commit_index": self.commit_index}},
            ],
        }


def _gone(path: str, query: dict[str, str]) -> None:
    raise ConnectionError


def _json(status: int, document: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    return status, {}, json.dumps(document).encode()


def _refusal(status: int, message: str, **more: Any) -> tuple[int, dict[str, str], bytes]:
    return _json(status, {"error": "E", "message": message, "hint": "", **more})
