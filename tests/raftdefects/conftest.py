"""Fixtures with the unmodified library on a virtual clock."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.raftdefects.stock import Clock, StockCluster, stock_library


@pytest.fixture
def clock() -> Iterator[Clock]:
    """The virtual clock in place of the library's."""
    logging.getLogger("pysyncobj").setLevel(logging.CRITICAL + 1)
    with stock_library() as found:
        yield found


@pytest.fixture
def stock(clock: Clock) -> StockCluster:
    """Three nodes of the unmodified library, everything in memory."""
    return StockCluster(clock)
