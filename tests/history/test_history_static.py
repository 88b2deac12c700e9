"""The readers report everything that static members do, with or without a new epoch."""

from __future__ import annotations

from pathlib import Path

import pytest

from history.checking.verify import report_text, verify
from history.render import UTC_STYLE
from history.state.replay import replay, state_text
from history.telling.explain import explain
from history.telling.prose import explanation_text
from history.telling.story import EpochStep, NoteStep
from history.telling.timeline import timeline
from tests.support.disk_node import DiskNode
from tests.support.long_story import GROUP, settle


@pytest.fixture
def home(tmp_path: Path) -> str:
    """Ann and Bob are static. Ann restarts, which bumps no epoch, then leaves and does not return."""
    path = str(tmp_path / "node-1")
    node = DiskNode(path)
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
    """They explain why partitions were idle, and where an owner got another member id."""
    told = explain(home, GROUP, style=UTC_STYLE)
    names = {text.split()[0]: name for name, text in told.members.items()}
    assert len(names) == 3
    notes = [step.text for step in told.steps if isinstance(step, NoteStep)]
    assert [note.replace("(client app-1, 127.0.0.1, instance web-1)", "…") for note in notes] == [
        "m1 … left temporarily and keeps its partitions",
        "m3 … replaced m1 …",
        "m3 … left temporarily and keeps its partitions",
    ]
    last = told.epochs[-1]
    assert last.why[0].startswith("session of m3 (client app-1, 127.0.0.1, instance web-1) expired")
    assert "expired: it left temporarily and did not return within 3.0 s (counted from " in last.why[0]
    assert last.evidence == (), "how regular its heartbeats were has nothing to do with it"
    assert last.owners == {"m2": "orders 0-5"}
    assert " replaced " in "\n".join(explanation_text(told, UTC_STYLE))
    assert [row.why for row in timeline(told) if row.epoch is None and "left temporarily" in row.why] == [
        notes[0],
        notes[2],
    ]


def test_verify_finds_nothing_wrong(home: str) -> None:
    """Epoch −2, a kept state with nothing to revoke, two instance ids: all are valid."""
    report = verify(home)
    assert report.ok, "\n".join(report_text(report))


def test_replay_shows_who_is_away(home: str) -> None:
    """After the index at which Ann left temporarily, she has epoch −2 and keeps her partitions."""
    told = explain(home, GROUP)
    away = next(step.index for step in told.steps if isinstance(step, NoteStep))
    state = replay(home, group=GROUP, at_index=away)
    ann = next(member for member in state.groups[0].members if member.instance_id == "web-1")
    assert (ann.epoch, ann.assigned, ann.pending_revocation) == (-2, ann.target, {})
    text = "\n".join(state_text(state, UTC_STYLE))
    assert "(client app-1, 127.0.0.1, instance web-1): away, was STABLE" in text


def test_who_took_a_place_is_told_before_what_followed(tmp_path: Path) -> None:
    """A replacement with another subscription is one entry; it is reported first, then the epoch."""
    node = DiskNode(str(tmp_path / "node-1"))
    node.create_topic("orders", 2)
    node.create_topic("clicks", 2)
    old = node.member(GROUP, "app-1", "orders")
    old.instance_id = "web-1"
    settle(node, old.join())
    old.leave(for_good=False)
    new = node.member(GROUP, "app-1", "clicks")
    new.instance_id = "web-1"
    settle(node, new.join())
    node.stop()
    told = explain(node.path, GROUP, style=UTC_STYLE)
    at = next(place for place, s in enumerate(told.steps) if isinstance(s, NoteStep) and "replaced" in s.text)
    after = told.steps[at + 1]
    assert isinstance(after, EpochStep)
    assert after.index == told.steps[at].index
    assert "changed its subscription" in after.why[0]


def test_work_that_failed_is_told_between_the_epochs(tmp_path: Path) -> None:
    """An assignor that fails leaves no record; the node that called it noted the failure as evidence."""
    node = DiskNode(str(tmp_path / "node-1"))
    node.create_topic("orders", 2)
    settle(node, node.member(GROUP, "app-1", "orders").join())
    node.evidence.trouble("another", "Assignor mine failed for group another: no luck", work="assign")
    for _ in range(2):
        node.evidence.trouble(GROUP, f"Assignor mine failed for group {GROUP}: no luck", work="assign")
    node.evidence.refused(api=47, error=86, reason="", group_id=GROUP, client="admin")
    node.stop()
    texts = [s.text for s in explain(node.path, GROUP).steps if isinstance(s, NoteStep)]
    assert len(texts) == 2
    assert texts[0].startswith(f"Assignor mine failed for group {GROUP}: no luck (2 times until ")
    assert texts[1] == "refused admin: OffsetDelete, GROUP_SUBSCRIBED_TO_TOPIC"
