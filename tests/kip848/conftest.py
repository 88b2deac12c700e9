"""Counts what the suite made happen, and prints it: a transition that no test takes is not tested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import coordinator.state.reconcile
from coordinator.limits import Limits
from coordinator.state.machines import Finding, Transition, member_transition
from records import MemberState
from tests.support.world import TALLY, World


@pytest.fixture(autouse=True, scope="session")
def _count_transitions() -> Iterator[None]:
    def counted(state: MemberState, finding: Finding) -> Transition:
        TALLY["transition", f"{state.name}, {finding.name}"] += 1
        return member_transition(state, finding)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator.state.reconcile, "member_transition", counted)
        yield


@pytest.fixture
def world() -> World:
    """One shard and a topic `orders` of 12 partitions."""
    world = World()
    world.create_topic("orders", 12)
    return world


@pytest.fixture
def by_children() -> World:
    """The same, where every round of expressions is a child's, and waits until the test ends it."""
    world = World(limits=Limits(resolve_inline_cost_max=-1))
    world.create_topic("orders", 12)
    world.holds_jobs = True
    return world


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TALLY:
        terminalreporter.section("kip848: what happened how often")
        for (kind, name), count in sorted(TALLY.items()):
            terminalreporter.write_line(f"{kind:<16} {name:<40} {count:>7}")
