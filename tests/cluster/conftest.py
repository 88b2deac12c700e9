"""One node among others, whose replicas do what a test says."""

from __future__ import annotations

import pytest

from tests.cluster.fakes import Bench
from tests.cluster.led_node import lead


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


@pytest.fixture
def led(bench: Bench) -> Bench:
    """The same; it leads both shards, has topic orders and one stable member, and holds no reply."""
    return lead(bench)
