"""Logs in memory for functions that take a path."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from history.checking import commits, verify
from history.reading.node import NodeLog
from history.state import replay
from history.telling import dump, explain, terms
from tests.support.memory_log import MemoryReader

Serve = Callable[..., NodeLog]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Let `history` read these shards from whatever path it is given."""

    def serves(readers: dict[int, MemoryReader], num_shards: int | None = 4) -> NodeLog:
        node = NodeLog("node-1", readers, num_shards)
        for module in (commits, dump, explain, replay, terms):
            monkeypatch.setattr(module, "open_node", lambda path: node)
        monkeypatch.setattr(verify, "open_one", lambda path: node)
        return node

    return serves
