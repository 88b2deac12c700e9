"""Tells how far a suite is while `make test` holds back what pytest prints: a plugin of pytest.

It writes to the file descriptor PROGRESS_FD, which is that of make's own output: when the suite begins, after
each quarter of its tests, at each failure, and when it ends. Without PROGRESS_FD it does nothing.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

PARTS = 4
"""Lines between the begin and the end of a suite."""


class ProgressLines:
    """Counts the tests of one run and writes its lines."""

    def __init__(self, fd: int, suite: str) -> None:
        self._fd = fd
        self._suite = suite
        self._began_s = time.monotonic()
        self._outcomes: Counter[str] = Counter()
        self._all = self._done = 0
        self._say("begins")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._all = len(session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self._outcomes[report.outcome] += 1
        if report.failed:
            self._say(f"FAILED {report.nodeid}")

    def pytest_runtest_logfinish(self) -> None:
        self._done += 1
        part = self._done * PARTS // self._all
        if part > (self._done - 1) * PARTS // self._all and part < PARTS:
            self._say(f"{self._done:,} of {self._all:,} tests after {self._time()}")

    def pytest_sessionfinish(self) -> None:
        counted = [f"{self._outcomes[kind]:,} {kind}" for kind in ("passed", "failed", "skipped")]
        told = ", ".join(words for words in counted if not words.startswith("0 ")) or "no test ran"
        self._say(f"ends: {told}, in {self._time()}")

    def _time(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began_s), 60)
        return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"

    def _say(self, what: str) -> None:
        os.write(self._fd, f"{self._suite}: {what}\n".encode())


def pytest_configure(config: pytest.Config) -> None:
    fd = os.environ.get("PROGRESS_FD")
    if fd is not None:
        config.pluginmanager.register(ProgressLines(int(fd), os.environ["SUITE"]))
