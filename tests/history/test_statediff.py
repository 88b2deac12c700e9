"""`diff` between two moments, checked against a scripted story."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from history.answers.statediff import GroupDiff, OffsetChanged, diff, diff_text
from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.reading.source import NothingToRead
from history.render import UTC_STYLE
from records.ids import METADATA_SHARD, SCRATCH_TERM_BITS
from tests.support.disk_node import DiskNode

GROUP = "payments"


class Story:
    """ann is alone, bob joins, the topic grows, ann leaves; the story keeps a moment before each step."""

    def __init__(self, home: str) -> None:
        self.node = DiskNode(home, num_shards=1)
        self.node.create_topic("orders", 4)
        ann = self.node.member(GROUP, "app-1", "orders").join()
        ann.commit({0: 10, 1: 11})
        self.alone_ms = self.node.host.wall_ms()
        self.node.pass_ms(1_000, ann)
        bob = self.node.member(GROUP, "app-2", "orders").join()
        self.node.pass_ms(3_000, ann, bob)
        self.shared_ms = self.node.host.wall_ms()
        self.node.pass_ms(1_000, ann, bob)
        self.node.grow_topic("orders", 6)
        ann.leave()
        self.node.pass_ms(3_000, bob)
        bob.commit({0: 25})
        self.node.stop()
        self.ann, self.bob = ann, bob


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(str(tmp_path / "node-1"))


@pytest.fixture
def log(story: Story) -> NodeLog:
    return open_node(story.node.path)


def _group(log: NodeLog, start_ms: int | None, end_ms: int | None) -> GroupDiff:
    start = None if start_ms is None else (None, start_ms)
    (shard,) = diff(log, start, (None, end_ms), group=GROUP)
    (group,) = shard.groups
    return group


def test_who_came_and_what_moved(story: Story, log: NodeLog) -> None:
    found = _group(log, story.alone_ms, story.shared_ms)
    assert (found.change, found.epoch_before, found.epoch_after) == ("changed", 1, 2)
    assert [member.member_id for member in found.members_came] == [story.bob.member_id]
    assert found.members_went == ()
    assert [(row.source, row.target, len(row.partitions)) for row in found.moved] == [
        (story.ann.member_id, story.bob.member_id, 2)
    ]
    assert found.offsets == ()


def test_who_went_what_grew_and_what_was_committed(story: Story, log: NodeLog) -> None:
    found = _group(log, story.shared_ms, None)
    assert [member.member_id for member in found.members_went] == [story.ann.member_id]
    assert {row.source for row in found.moved} == {story.ann.member_id, None}
    assert {row.target for row in found.moved} == {story.bob.member_id}
    assert [(row.partition, row.before, row.after) for row in found.offsets] == [(0, 10, 25)]
    (metadata,) = diff(log, (None, story.shared_ms), (None, None), shard=METADATA_SHARD)
    assert [change.words() for change in metadata.topics] == ["grew from 4 to 6 partitions"]


def test_compared_with_the_oldest_state_the_group_is_created(log: NodeLog) -> None:
    found = _group(log, None, None)
    assert (found.change, found.state_after) == ("created", "Stable")
    assert [(row.partition, row.before, row.after) for row in found.offsets] == [(0, None, 25), (1, None, 11)]


def test_the_same_moment_twice_shows_nothing(story: Story, log: NodeLog) -> None:
    found = diff(log, (None, story.shared_ms), (None, story.shared_ms))
    assert all(shard.is_same for shard in found)
    assert all("nothing changed" in line for line in diff_text(found) if "->" in line)


def test_the_words(story: Story, log: NodeLog) -> None:
    said = "\n".join(diff_text(diff(log, (None, story.alone_ms), (None, None)), UTC_STYLE))
    assert "topic orders grew from 4 to 6 partitions" in said
    assert f"group {GROUP}: epoch 1 -> 4, Stable -> Stable" in said
    assert f"came      {story.bob.member_id} (client app-2, 127.0.0.1)" in said
    assert re.search(rf"moved     orders [0-9,-]+: \S+ \(app-1\) -> {story.bob.member_id} \(app-2\)", said)
    assert "committed orders 0: 10 -> 25 (15 offsets forward)" in said


def test_a_group_that_is_not_there_names_those_that_are(log: NodeLog) -> None:
    with pytest.raises(NothingToRead, match=f"no group 'billing' at either moment: shard-0 has {GROUP}"):
        diff(log, None, (None, None), group="billing")


def test_offsets_that_began_anew_after_a_failover_are_no_advance(log: NodeLog) -> None:
    (shard,) = [one for one in diff(log, None, (None, None)) if one.groups]
    rows = (
        (0, 10, (13 << SCRATCH_TERM_BITS) + 5),
        (1, (13 << SCRATCH_TERM_BITS), (13 << SCRATCH_TERM_BITS) + 7),
    )
    moved = tuple(OffsetChanged(topic="orders", partition=n, before=old, after=new) for n, old, new in rows)

    def said(offsets: tuple[OffsetChanged, ...]) -> str:
        return "\n".join(diff_text([replace(shard, groups=(replace(shard.groups[0], offsets=offsets),))]))

    assert "(7 offsets forward; after a failover the offsets of 1 partition began anew)" in said(moved)
    assert "(after a failover the offsets of 1 partition began anew)" in said(moved[:1])
