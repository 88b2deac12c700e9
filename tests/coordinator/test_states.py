"""The state machines' document is rendered from their tables, and the tables say what the protocol says."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.state.machines import GroupFacts, GroupState, group_state, render_markdown

DOCUMENT = Path(__file__).parents[2] / "docs" / "state-machines.md"


def test_the_document_is_the_rendering() -> None:
    assert DOCUMENT.read_text() == render_markdown(), (
        "run: python -m coordinator.state.machines > docs/state-machines.md"
    )


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (GroupFacts(False, 5, 4, True), GroupState.EMPTY),
        (GroupFacts(True, 5, 4, True), GroupState.ASSIGNING),
        (GroupFacts(True, 5, 5, False), GroupState.RECONCILING),
        (GroupFacts(True, 5, 5, True), GroupState.STABLE),
    ],
)
def test_group_states(facts: GroupFacts, state: GroupState) -> None:
    assert group_state(facts) is state
