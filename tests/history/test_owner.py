"""The owners of a partition, at a moment and over the whole log, in every group, checked against a story."""

from __future__ import annotations

from pathlib import Path

import pytest

from history.answers.owner import PartitionOwners, owner, owner_text, parse_partition
from history.facts.rows import SpanKind
from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.reading.source import NothingToRead
from history.render import UTC_STYLE
from tests.support.disk_node import DiskNode

ORDERS_0 = parse_partition("orders-0")


class Story:
    """Group payments: ann owns everything and leaves, bob joins later. Group audit: cid owns everything."""

    def __init__(self, home: str) -> None:
        self.node = DiskNode(home, num_shards=1)
        self.node.create_topic("orders", 2)
        self.node.create_topic("other", 1)
        ann = self.node.member("payments", "app-1", "orders").join()
        cid = self.node.member("audit", "app-9", "orders").join()
        ann.commit({0: 7})
        self.node.pass_ms(1_000, ann, cid)
        self.with_ann_ms = self.node.host.wall_ms()
        self.node.pass_ms(1_000, ann, cid)
        ann.leave()
        self.node.pass_ms(1_000, cid)
        self.without_ms = self.node.host.wall_ms()
        self.node.pass_ms(1_000, cid)
        bob = self.node.member("payments", "app-2", "orders").join()
        self.node.pass_ms(2_000, bob, cid)
        self.node.stop()
        self.ann, self.bob, self.cid = ann, bob, cid


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(str(tmp_path / "node-1"))


@pytest.fixture
def log(story: Story) -> NodeLog:
    return open_node(story.node.path)


def _told(found: PartitionOwners) -> str:
    return "\n".join(owner_text(found, UTC_STYLE))


def test_all_along_in_every_group(story: Story, log: NodeLog) -> None:
    found = owner(log, ORDERS_0)
    held = {group.group_id: [(one.kind, one.member_id) for one in group.held] for group in found.groups}
    assert held == {
        "audit": [(SpanKind.OWNED, story.cid.member_id)],
        "payments": [(SpanKind.OWNED, story.ann.member_id), (SpanKind.OWNED, story.bob.member_id)],
    }


def test_at_a_moment_with_what_was_before_and_after(story: Story, log: NodeLog) -> None:
    found = owner(log, ORDERS_0, group="payments", at_ms=story.with_ann_ms)
    (group,) = found.groups
    assert group.at is not None
    assert group.at.member_id == story.ann.member_id
    assert group.before is None
    assert group.after is not None
    assert group.after.member_id == story.bob.member_id
    assert group.last_commit is not None
    assert (group.last_commit.offset, group.last_commit.member_id) == (7, story.ann.member_id)
    assert "then    m1 owned it" in _told(found)
    assert "last offset 7 was committed by m1" in _told(found)


def test_at_an_index(story: Story, log: NodeLog) -> None:
    first = owner(log, ORDERS_0, group="payments").groups[0].held[0]
    at_begin = owner(log, ORDERS_0, group="payments", at_index=first.from_index).groups[0]
    assert at_begin.at == first
    assert first.to_index is not None
    assert owner(log, ORDERS_0, group="payments", at_index=first.to_index).groups[0].at != first


def test_a_moment_at_which_no_group_assigned_the_partition(story: Story, log: NodeLog) -> None:
    found = owner(log, ORDERS_0, group="payments", at_ms=story.without_ms)
    assert found.groups[0].at is None
    assert "the group did not assign it at that time" in _told(found)


def test_why_each_began(log: NodeLog) -> None:
    why = [held.why for held in owner(log, ORDERS_0, group="payments").groups[0].held]
    assert why == ["m1 (client app-1, 127.0.0.1) joined", "m2 (client app-2, 127.0.0.1) joined"]


def test_a_reason_is_said_once(tmp_path: Path) -> None:
    """orders-1 moves from ann to bob in several spans (to be revoked, free, owned), all for one reason."""
    node = DiskNode(str(tmp_path / "node-1"), num_shards=1)
    node.create_topic("orders", 2)
    ann = node.member("payments", "app-1", "orders").join()
    bob = node.member("payments", "app-2", "orders").join()
    node.pass_ms(20_000, ann, bob)
    node.stop()
    lines = _told(owner(open_node(node.path), parse_partition("orders-1"))).splitlines()
    spans = [line for line in lines if "owned it" in line or "give it up" in line]
    assert len(spans) > 2
    assert sum("m2 (client app-2, 127.0.0.1) joined" in line for line in spans) == 1
    assert [line for line in spans if line.endswith("still in epoch 2")] == spans[2:]


def test_a_moment_behind_the_end(log: NodeLog) -> None:
    with pytest.raises(NothingToRead, match="index 9999 does not exist, the last one is"):
        owner(log, ORDERS_0, group="payments", at_index=9999)
    later = _told(owner(log, ORDERS_0, group="payments", at_ms=1 << 42))
    assert "note: the last entry was written at 20" in later


@pytest.mark.parametrize(
    ("partition", "group", "said"),
    [
        ("orders-9", None, "no group has ever assigned orders-9: topic orders has partitions 0 to 1"),
        ("other-0", None, "no group has ever assigned other-0: topic other has partitions 0 to 0"),
        ("nothing-0", None, "there is no such topic, but orders and other"),
        ("orders-0", "billing", "group 'billing' never assigned orders-0: topic orders has"),
    ],
)
def test_what_is_not_there_says_what_is(log: NodeLog, partition: str, group: str | None, said: str) -> None:
    with pytest.raises(NothingToRead, match=said):
        owner(log, parse_partition(partition), group=group)


@pytest.mark.parametrize("text", ["orders", "orders-", "-3", "orders-x", ""])
def test_a_partition_is_a_topic_and_a_number(text: str) -> None:
    with pytest.raises(ValueError, match="not TOPIC-PARTITION"):
        parse_partition(text)
