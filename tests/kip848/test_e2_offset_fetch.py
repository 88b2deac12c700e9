"""E.2 OffsetFetch."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.offsets import fetching
from coordinator.topics import new_topic_id
from records import ZERO_UUID
from tests.kip848.classic_groups import classic_group
from tests.support.world import FIRST_TOPIC, World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

ORDERS = FIRST_TOPIC


def fetch_group(world: World, version: int = 9, **fields: object) -> Any:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", **fields)])  # type: ignore[arg-type]
    return world.handle(ApiKey.OFFSET_FETCH, version, request).groups[0]


def test_an_unknown_group_has_no_offsets(world: World) -> None:
    """Unknown group → offset −1, leader epoch −1, metadata "" per partition, no error."""
    group = fetch_group(world, topics=[OffsetFetchRequestTopics(name="orders", partition_indexes=[0])])
    assert group.error_code == 0
    part = group.topics[0].partitions[0]
    assert (part.committed_offset, part.committed_leader_epoch, part.metadata, part.error_code) == (
        -1,
        -1,
        "",
        0,
    )


def test_null_topics_mean_all(world: World) -> None:
    """Topics null → all offsets of the group."""
    world.commit({("orders", 3): 5, ("orders", 1): 6})
    world.commit({("orders", 2): 7}, group_id="other")
    assert world.fetch() == {("orders", 1): 6, ("orders", 3): 5}
    assert fetch_group(world, topics=[]).topics == []


@pytest.mark.parametrize("version", range(1, 8))
def test_versions_for_one_group(world: World, version: int) -> None:
    """v1–7 ask for one group; requireStable (v7) is accepted."""
    world.commit({("orders", 0): 5}, metadata="note")
    request = OffsetFetchRequest(
        group_id="g", require_stable=True,
        topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])],
    )  # fmt: skip
    answer = world.handle(ApiKey.OFFSET_FETCH, version, request)
    found = [(part.committed_offset, part.metadata, part.error_code) for part in answer.topics[0].partitions]
    assert found == [(5, "note", 0), (-1, "", 0)]
    if version >= 2:
        everything = world.handle(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(group_id="g", topics=None))
        assert len(everything.topics[0].partitions) == 1


def test_version_8_asks_for_several_groups(world: World) -> None:
    """v8+ batches groups; errors are per group."""
    world.commit({("orders", 0): 5}, group_id="g1")
    world.join("a", group_id="g2")
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g1", topics=None),
            OffsetFetchRequestGroup(group_id="g2", member_id="nobody", member_epoch=1, topics=None),
        ]
    )
    first, second = world.handle(ApiKey.OFFSET_FETCH, 9, request).groups
    assert (first.error_code, first.topics[0].partitions[0].committed_offset) == (0, 5)
    assert (second.error_code, second.topics) == (ErrorCode.UNKNOWN_MEMBER_ID, [])


def test_version_10_names_topics_by_id(world: World) -> None:
    """v10: by topic id; an id that is not in the catalog is UNKNOWN_TOPIC_ID 100."""
    world.commit({("orders", 0): 5})
    group = fetch_group(
        world, 10,
        topics=[
            OffsetFetchRequestTopics(topic_id=ORDERS, partition_indexes=[0]),
            OffsetFetchRequestTopics(topic_id=b"?" * 16, partition_indexes=[0]),
        ],
    )  # fmt: skip
    found = {topic.topic_id: topic.partitions[0] for topic in group.topics}
    assert (found[ORDERS].committed_offset, found[ORDERS].error_code) == (5, 0)
    unknown = found[b"?" * 16]
    assert (unknown.committed_offset, unknown.error_code) == (-1, ErrorCode.UNKNOWN_TOPIC_ID)
    everything = fetch_group(world, 10, topics=None)
    assert [topic.topic_id for topic in everything.topics] == [ORDERS]


def test_an_id_of_a_newer_catalog_is_asked_for_again(world: World) -> None:
    """v10: of a topic that this node does not know *yet* neither "unknown" nor "no offset" is said."""
    world.commit({("orders", 0): 5})
    later = new_topic_id(bytes(16), world.catalog.view.version + 1)
    topics = [
        OffsetFetchRequestTopics(topic_id=ORDERS, partition_indexes=[0]),
        OffsetFetchRequestTopics(topic_id=later, partition_indexes=[0]),
    ]
    group = fetch_group(world, 10, topics=topics)
    assert (group.error_code, group.topics) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    world.create_topic("later", 1)
    assert fetch_group(world, 10, topics=topics).error_code == 0


def test_members_are_checked_where_they_say_who_they_are(world: World) -> None:
    """memberId null and epoch < 0 → allowed; else 25, or 113 at any other epoch, also an older one."""
    world.join("a")
    world.join("b")
    world.heartbeat("a", 1)
    assert fetch_group(world, topics=None).error_code == 0
    assert fetch_group(world, topics=None, member_id="b", member_epoch=2).error_code == 0
    assert fetch_group(world, topics=None, member_id="b", member_epoch=1).error_code == 113
    assert fetch_group(world, topics=None, member_id="c", member_epoch=1).error_code == 25
    assert fetch_group(world, topics=None, member_id="b").error_code == 113


def test_any_client_may_read_a_classic_group(world: World) -> None:
    """Kafka's ClassicGroup checks no member and no generation of an OffsetFetch."""
    from records import encode_record

    world.shard.apply(encode_record(classic_group(members=1)), 1)
    assert fetch_group(world, topics=None, member_id="old", member_epoch=3).error_code == 0
    assert fetch_group(world, topics=None, member_id="old", member_epoch=2).error_code == 0
    assert fetch_group(world, topics=None, member_id="nobody", member_epoch=2).error_code == 0


def test_an_offset_of_a_topic_that_was_recreated_is_none(world: World) -> None:
    """The topic that has the name now is another one; before the offset is tombstoned, too."""
    world.commit({("orders", 0): 5})
    world.delete_topic("orders")
    assert world.fetch() == {}
    world.create_topic("orders", 2)
    assert world.fetch(topics={"orders": [0]}) == {("orders", 0): -1}
    world.work()
    world.commit({("orders", 0): 1})
    assert world.fetch() == {("orders", 0): 1}


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_many_partitions_are_read_in_several_turns(
    world: World, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The loop is not held up by who asks for all offsets of a large group; the answer is the same."""
    for name in ("b", "aa"):
        world.create_topic(name, 5)
    world.commit({(name, number): number for name in ("b", "aa") for number in range(5)})
    catalog = world.ctx().catalog
    names = [OffsetFetchRequestTopic(name=name, partition_indexes=[4, 0, 2]) for name in ("b", "aa", "none")]
    many = [
        OffsetFetchRequestTopics(
            name=old.name,
            topic_id=topic.topic_id if (topic := catalog.topic(old.name)) else ZERO_UUID,
            partition_indexes=old.partition_indexes,
        )
        for old in names
    ]
    if version < 8:
        requests = [OffsetFetchRequest(group_id="g", topics=topics) for topics in (names, None)]
    else:
        asked = [OffsetFetchRequestGroup(group_id="g", topics=topics) for topics in (many, None, [])]
        requests = [
            OffsetFetchRequest(groups=[*asked, OffsetFetchRequestGroup(group_id="other", topics=None)])
        ]
    for request in requests:
        whole = world.shard.handle(ApiKey.OFFSET_FETCH, version, request, world.ctx())
        assert whole.continuation is None
        monkeypatch.setattr(fetching, "PARTITIONS_AT_ONCE", 3)
        decision, turns = world.shard.handle(ApiKey.OFFSET_FETCH, version, request, world.ctx()), 1
        while decision.continuation is not None:
            decision, turns = decision.continuation(world.ctx()), turns + 1
        assert turns >= 4
        assert decision.reply == whole.reply
        monkeypatch.undo()


def test_offsets_that_go_while_they_are_read_are_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "PARTITIONS_AT_ONCE", 2)
    world.commit({("orders", number): number for number in range(5)})
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    decision = world.shard.handle(ApiKey.OFFSET_FETCH, 9, request, world.ctx())
    world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    while decision.continuation is not None:
        decision = decision.continuation(world.ctx())
    assert decision.reply is not None
    (group,) = decision.reply.groups  # type: ignore[attr-defined]
    assert [part.partition_index for part in group.topics[0].partitions] == [0, 1]
