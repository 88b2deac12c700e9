"""Faults that an operator set, as explanations and timelines name them: by words, and from a whole node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.simulator.client import ConnectionGone
from cluster.simulator.machine import DATA_DIR
from history.reading.notes import fault_words
from history.render import UTC_STYLE
from history.telling.explain import explain
from history.telling.prose import explanation_text
from history.telling.story import NoteStep
from history.telling.timeline import timeline, timeline_text
from raftlog.env.simulated_files import SimFiles
from raftlog.storage.evidence import is_note
from tests.support.fault_rules import fault_rule
from tests.support.sim_node import SimNode
from wire.errors import ErrorCode

BY = "by fault 3 of an operator"
COME_LATER = "NOT_COORDINATOR 2.0 s later"


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ({"action": "delay", "delay_ms": 500}, f"the reply to OffsetCommit of m1 was delayed by 500 ms {BY}"),
        (
            {"action": "drop"},
            f"the reply to OffsetCommit of m1 was dropped {BY}; the request was carried out",
        ),
        (
            {"action": "error", "error": 113},
            f"OffsetCommit of m1 was answered STALE_MEMBER_EPOCH {BY}; the request was not carried out",
        ),
        (
            {"action": "error", "error": 16, "delay_ms": 2_000},
            f"OffsetCommit of m1 was answered {COME_LATER} {BY}; the request was not carried out",
        ),
        ({"action": "close"}, f"the connection of m1 was closed at OffsetCommit {BY}"),
        ({"action": "silence"}, f"the connection of m1 was not answered any more from OffsetCommit on, {BY}"),
        (
            {"action": "throttle", "throttle_ms": 5_000},
            f"the reply to OffsetCommit of m1 was given a throttle time of 5.0 s {BY}",
        ),
        ({"action": "later kind"}, "OffsetCommit of m1 met fault 3 of an operator (later kind)"),
    ],
)
def test_each_kind_of_fault_has_its_words(note: dict[str, Any], said: str) -> None:
    whose = {"kind": "fault", "at_ms": 1, "fault": 3, "group": "g", "member": "m1", "client": "c"}
    what = {"api": 8, "error": 0, "delay_ms": 0, "throttle_ms": 0, **note}
    assert is_note(whose | what)
    assert not is_note(whose | what | {"fault": "3"})
    assert fault_words(whose | what, "m1") == said


def saved(files: SimFiles, source: str, target: Path) -> Path:
    """Copy a simulated directory to the disk."""
    target.mkdir()
    for name in files.listdir(source):
        path = f"{source}/{name}"
        if files.is_dir(path):
            saved(files, path, target / name)
        else:
            (target / name).write_bytes(files.read(path))
    return target


def test_a_whole_nodes_faults_are_told_where_they_happened(tmp_path: Path) -> None:
    sim = SimNode()
    sim.node.kafka.add_fault(
        fault_rule(action="drop", api="ConsumerGroupHeartbeat", group="billing", times=1)
    )
    fence = fault_rule(action="error", error="FENCED_MEMBER_EPOCH", member="ann", after=3, times=2)
    sim.node.kafka.add_fault(fence)
    ann = sim.consumer("ann")
    with pytest.raises(ConnectionGone):
        ann.heartbeat()
    assert ann.heartbeat().error_code == 0, "the join is sent again, and the group has one member"
    assert len(ann.partitions) == 12
    codes = [ann.heartbeat().error_code for _ in range(4)]
    assert codes == [0, 0, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_MEMBER_EPOCH]
    sim.world.run_for(2_000)
    home = str(saved(sim.machine.disk, DATA_DIR, tmp_path / "node-1"))
    told = explain(home, "billing", style=UTC_STYLE)
    assert [epoch.epoch for epoch in told.epochs] == [1]
    who = "ann (client ann, 127.0.0.1)"
    first, second = (step for step in told.steps if isinstance(step, NoteStep))
    assert first.text == (
        f"the reply to ConsumerGroupHeartbeat of {who} was dropped by fault 1 of an operator; the request "
        "was carried out"
    )
    assert second.text.startswith(
        f"ConsumerGroupHeartbeat of {who} was answered FENCED_MEMBER_EPOCH by fault 2 of an operator; the "
        "request was not carried out (2 times until "
    )
    assert first.members == ("ann",)
    text = "\n".join(explanation_text(told, UTC_STYLE))
    table = "\n".join(timeline_text(timeline(told), width=1_000, style=UTC_STYLE))
    for shown in (text, table):
        assert "was dropped by fault 1 of an operator" in shown
        assert "by fault 2 of an operator" in shown
