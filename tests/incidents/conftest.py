"""Prints the score: how many incidents of each kind were provoked, and how many were named."""

from __future__ import annotations

from collections import Counter

import pytest

from .score import SCORE


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not SCORE:
        return
    terminalreporter.section("incidents: provoked, and named with members and partitions")
    headers = f"{'':<74} {'provoked':>8} {'named':>6} {'without evidence':>17} {'invented':>9}"
    terminalreporter.write_line(headers)
    total = sum((Counter(score) for score in SCORE.values()), Counter[str]())
    for name, score in [*sorted(SCORE.items()), ("all", total)]:
        alone = f"{score['alone']} of {score['alone provoked']}"
        terminalreporter.write_line(
            f"{name:<74} {score['provoked']:>8} {score['named']:>6} {alone:>17} {score['invented']:>9}"
        )
