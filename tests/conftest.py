"""Isolates every run of pytest, wherever it is started.

Suites run side by side (`make test`), and their nodes must not meet, so each run has its own range of ports.
A node's port is free while the node is down, and another run could pick it if both picked from one range.
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from cluster.launching import launcher

PORTS_OF_A_RUN = 2_000
"""Several times the ports of all nodes of a run, yet enough runs fit in."""


@pytest.fixture(scope="session", autouse=True)
def _interrupts() -> None:
    """Restore SIGINT, which tests send: a shell's background jobs and their children ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _ports_of_this_run() -> Iterator[None]:
    """Reserve the first free range of the launcher's ports; use all of them if no range is free."""
    whole = launcher.FREE_PORTS
    with ExitStack() as held, pytest.MonkeyPatch.context() as patch:
        for first in range(whole.start, whole.stop - PORTS_OF_A_RUN + 1, PORTS_OF_A_RUN):
            share = Path(tempfile.gettempdir(), f"quorate-tests-{os.getuid()}-ports-{first}")
            lock = held.enter_context(share.open("w"))
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                patch.setattr(launcher, "FREE_PORTS", range(first, first + PORTS_OF_A_RUN))
                break
        yield


def pytest_collection_finish() -> None:
    """Freeze the ten thousand collected tests, or each full garbage collection would go through them."""
    gc.collect()
    gc.freeze()
