"""Hostile clients of a node's older listeners: `python -m tests.failover.old_flood JSON`; runs until killed.

It opens silent connections, sends lookups as fast as the node takes them, and on some connections never reads
an answer; besides random bytes, registrations that answer nothing, and joins of ever new groups. It prints a
line once all have begun.
"""

from __future__ import annotations

import contextlib
import json
import random
import selectors
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from lineage.push.messages import LookupRequest, RegisterRequest, frame
from lineage.rewrite.messages import ConsumerMetadataRequest, JoinGroupRequest, encode_request

CHUNK: Final = 2_000
"""Frames of one write of a flood."""
READ_BYTES: Final = 1 << 16
PAUSE_S: Final = 0.002

Refill = Callable[[], bytes]


class Flood:
    """The connections, each with what it sends next."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._host: str = asked["host"]
        self._group: str = asked["group"]
        self._chance = random.Random(asked["seed"])
        self._ready = selectors.DefaultSelector()
        self._number = 0
        self._idle: list[socket.socket] = []
        push, rewrite = int(asked["push"]), int(asked["rewrite"])
        looking = frame(LookupRequest(group_id=self._group)) * CHUNK
        asking = encode_request(1, "flood", ConsumerMetadataRequest(group_id=self._group)) * CHUNK
        for port, lookups in ((push, looking), (rewrite, asking)):
            for _ in range(asked["silent"]):
                self._idle.append(self._connect(port))
            for number in range(asked["floods"]):
                self._open(port, lambda lookups=lookups: lookups, reads=number % 2 == 0)
            self._open(port, lambda: self._chance.randbytes(50), reads=True)
        self._open(push, self._registration, reads=True)
        self._open(rewrite, self._join, reads=True)

    def run(self) -> None:
        print("begun", flush=True)
        while True:
            for key, events in self._ready.select(1.0):
                self._serve(key, events)
            time.sleep(PAUSE_S)

    def _connect(self, port: int) -> socket.socket:
        return socket.create_connection((self._host, port), 10.0)

    def _open(self, port: int, refill: Refill, *, reads: bool) -> None:
        with contextlib.suppress(OSError):
            line = self._connect(port)
            line.setblocking(False)
            events = selectors.EVENT_WRITE | (selectors.EVENT_READ if reads else 0)
            self._ready.register(line, events, [port, refill, reads, b""])

    def _serve(self, key: selectors.SelectorKey, events: int) -> None:
        line, state = key.fileobj, key.data
        assert isinstance(line, socket.socket)
        try:
            if events & selectors.EVENT_READ and not line.recv(READ_BYTES):
                raise ConnectionResetError
            if events & selectors.EVENT_WRITE:
                data = state[3] or state[1]()
                state[3] = data[line.send(data) :]
        except BlockingIOError:
            return
        except OSError:
            self._ready.unregister(line)
            line.close()
            self._open(state[0], state[1], reads=state[2])

    def _registration(self) -> bytes:
        self._number += 1
        name = f"flood-{self._number}"
        return frame(
            RegisterRequest(group_id=self._group, consumer_id=name, auto_commit=True, ping_interval_ms=200)
        )

    def _join(self) -> bytes:
        self._number += 1
        request = JoinGroupRequest(
            group_id=f"flood-{self._number}",
            session_timeout=1_000,
            topics=["orders"],
            partition_assignment_strategy="range",
        )
        return encode_request(1, "flood", request)


if __name__ == "__main__":
    Flood(json.loads(sys.argv[1])).run()
