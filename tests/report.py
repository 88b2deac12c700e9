"""Prints the time of each suite and the faults it injected at the end of every run.

A suite is a folder of tests/. Its budget is in BUDGETS_S, the one table of time budgets: `make test` must
stay under 8 minutes on two cores, and `.ci/run`, which runs independent suites side by side, under 30. A
suite that outgrows its share fails the run instead of slowly using up that of the others. Budgets are two
to three times what was measured alone, so that a slow machine, or a neighbour, is not a failure.

Tests report injected faults with `count_fault`, so that a chaos suite that stopped injecting is noticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

BUDGETS_S: dict[str, int] = {
    "tests": 25,
    "records": 45,
    "wire": 120,
    "coordinator": 90,
    "lineage": 90,
    "classic": 20,
    "migration": 30,
    "kip848": 120,
    "raftlog": 240,
    "raftdefects": 60,
    "simulated": 180,
    "cluster": 300,
    "scenarios": 30,
    "listeners": 90,
    "history": 300,
    "client": 90,
    "incidents": 120,
    "quorate": 300,
    "pipeline": 600,
    "spark": 900,
    "clients": 480,
    "deploy": 60,
    "failover": 1_200,
    "java": 400,
    "languages": 450,
    "differential": 200,
}
SLOW_BUDGET_S = 3_600
"""Seconds for the whole of `make chaos`; its suites run alone, so they need no shares."""

_spent_s: Counter[str] = Counter()
_faults: Counter[tuple[str, str]] = Counter()


def count_fault(suite: str, kind: str, count: int = 1) -> None:
    """Record that `suite` injected `count` faults of `kind` (for the report at the end of the run)."""
    _faults[suite, kind] += count


def _suite_of(nodeid: str) -> str:
    parts = nodeid.split("::", 1)[0].split("/")
    return parts[1] if len(parts) > 2 else "tests"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _spent_s[_suite_of(report.nodeid)] += report.duration  # type: ignore[assignment]  # Counter adds floats too


def _over_budget(config: pytest.Config) -> Iterator[str]:
    if "slow" in (config.getoption("markexpr") or "").replace("not slow", ""):
        return
    for suite, spent_s in _spent_s.items():
        budget_s = BUDGETS_S.get(suite)
        if budget_s is None:
            yield f"suite {suite} has no time budget: add it to tests/report.py"
        elif spent_s > budget_s:
            yield f"suite {suite} took {spent_s:.1f} s of its {budget_s} s"


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK and any(_over_budget(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.section("suites")
    for suite, spent_s in sorted(_spent_s.items()):
        faults = ", ".join(
            f"{count} × {kind}" for (of, kind), count in sorted(_faults.items()) if of == suite
        )
        line = f"{suite:<12} {spent_s:7.1f} s of {BUDGETS_S.get(suite, 0)} s"
        terminalreporter.write_line(f"{line}   faults: {faults}" if faults else line)
    for complaint in _over_budget(config):
        terminalreporter.write_line(complaint, red=True)
