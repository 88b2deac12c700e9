"""What the readers tell of static members: nothing that they do without an epoch goes untold."""

from __future__ import annotations

from pathlib import Path

import pytest

from history.explain import NoteStep, explain, explanation_text
from history.render import UTC_STYLE
from history.replay import replay, state_text
from history.timeline import timeline
from history.verify import report_text, verify

from .reallog import Node
from .test_history_real import GROUP, settle


@pytest.fixture
def home(tmp_path: Path) -> str:
    """Ann and Bob are static; Ann restarts, which bumps nothing, goes away again and does not come back."""
    path = str(tmp_path / "node-1")
    node = Node(path)
    node.create_topic("orders", 6)
    ann, bob = node.member(GROUP, "app-1", "orders"), node.member(GROUP, "app-2", "orders")
    ann.instance_id, bob.instance_id = "web-1", "web-2"
    ann.join()
    bob.join()
    settle(node, ann, bob)
    ann.leave(for_good=False)
    again = node.member(GROUP, "app-1", "orders")
    again.instance_id = "web-1"
    node.pass_ms(1_000, bob)
    again.join()
    settle(node, again, bob)
    again.leave(for_good=False)
    node.pass_ms(1_000, bob)
    node.crash()
    node.start()
    node.pass_ms(4_000, bob)
    node.stop()
    return path


def test_comings_and_goings_stand_between_the_epochs(home: str) -> None:
    """They explain why partitions were idle, and where their owner got another name."""
    told = explain(home, GROUP, style=UTC_STYLE)
    names = {text.split()[0]: name for name, text in told.members.items()}
    assert len(names) == 3
    notes = [step.text for step in told.steps if isinstance(step, NoteStep)]
    assert [note.replace("(client app-1, 127.0.0.1, instance web-1)", "…") for note in notes] == [
        "m1 … went away and keeps its place",
        "m3 … took the place of m1 …",
        "m3 … went away and keeps its place",
    ]
    last = told.epochs[-1]
    assert last.why[0].startswith("session of m3 (client app-1, 127.0.0.1, instance web-1) expired")
    assert last.owners == {"m2": "orders 0-5"}
    assert "took the place of" in "\n".join(explanation_text(told, UTC_STYLE))
    assert [row.why for row in timeline(told) if row.epoch is None and "went away" in row.why] == [
        notes[0],
        notes[2],
    ]


def test_verify_finds_nothing_wrong(home: str) -> None:
    """Epoch −2, a kept state with nothing to give up, two instance ids: all as it should be."""
    report = verify(home)
    assert report.ok, "\n".join(report_text(report))


def test_replay_shows_who_is_away(home: str) -> None:
    """At the index after which Ann was away: epoch −2, and her partitions."""
    told = explain(home, GROUP)
    away = next(step.index for step in told.steps if isinstance(step, NoteStep))
    state = replay(home, group=GROUP, at_index=away)
    ann = next(member for member in state.groups[0].members if member.instance_id == "web-1")
    assert (ann.epoch, ann.assigned, ann.pending_revocation) == (-2, ann.target, {})
    text = "\n".join(state_text(state, UTC_STYLE))
    assert "(client app-1, 127.0.0.1, instance web-1): away, was STABLE" in text
