"""What every run of pytest has for itself, wherever it is started.

Suites run side by side (`make test`), and the nodes that they start must not meet: each run has ports of its
own. A port is free while its node is down; a random one of another run's could be that.
"""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from cluster.launching import launcher

PORTS_OF_A_RUN = 2_000
"""Several times what all the nodes of a run have, and enough runs fit in."""


@pytest.fixture(scope="session", autouse=True)
def _interrupts() -> None:
    """In the background of a shell SIGINT is ignored, also by all that is started there; tests send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _ports_of_this_run() -> Iterator[None]:
    """The first share of the launcher's ports that no other run on this machine has; all, if none is left."""
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
