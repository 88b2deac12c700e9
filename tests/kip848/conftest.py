"""Count what the suite made happen, and print it: a transition that no test takes is not tested."""

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
def without_classic() -> World:
    """The same without the classic protocol, so that its groups stay as they are in the log."""
    world = World(limits=Limits(serves_classic=False))
    world.create_topic("orders", 12)
    return world


@pytest.fixture
def by_children() -> World:
    """The same, but a child process resolves every round of expressions, and waits for the test."""
    world = World(limits=Limits(resolve_inline_cost_max=-1))
    world.create_topic("orders", 12)
    world.holds_jobs = True
    return world


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TALLY:
        terminalreporter.section("kip848: what happened how often")
        for (kind, name), count in sorted(TALLY.items()):
            terminalreporter.write_line(f"{kind:<16} {name:<40} {count:>7}")
