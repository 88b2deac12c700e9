"""E.1 OffsetCommit: who may commit, and what a partition can be refused for by itself."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.limits import Limits
from coordinator.topics import new_topic_id
from records import OffsetCommitKey, OffsetCommitValue, Record, Trigger
from tests.kip848.classic_groups import classic_group
from tests.support.group_client import Client, settle
from tests.support.world import FIRST_TOPIC, WALL_START_MS, World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

ORDERS = FIRST_TOPIC


def test_a_client_that_is_no_member_may_commit_to_a_new_group(world: World) -> None:
    """Group missing, epoch < 0 → a *simple* group comes to be; a cause names no member then."""
    assert world.commit({("orders", 0): 7, ("orders", 1): 8}) == {("orders", 0): 0, ("orders", 1): 0}
    assert world.fetch() == {("orders", 0): 7, ("orders", 1): 8}
    entry = world.log[-1]
    assert (entry.cause.trigger, entry.cause.member_id, entry.cause.address) == (
        Trigger.OFFSETS_COMMITTED, "", "/127.0.0.1",
    )  # fmt: skip
    assert entry.types == [1, 1], "one record 1 per accepted partition, in one entry"


def test_the_empty_group_id_is_accepted(world: World) -> None:
    """The empty string is accepted for OffsetCommit and OffsetFetch (old simple consumers)."""
    world.commit({("orders", 0): 7}, group_id="")
    assert world.fetch("") == {("orders", 0): 7}


@pytest.mark.parametrize(
    ("version", "code"), [(9, ErrorCode.GROUP_ID_NOT_FOUND), (8, ErrorCode.ILLEGAL_GENERATION)]
)
def test_a_member_of_no_group(world: World, version: int, code: ErrorCode) -> None:
    """Group missing: v9+ GROUP_ID_NOT_FOUND 69, older ILLEGAL_GENERATION 22."""
    assert world.commit({("orders", 0): 7}, member_id="a", epoch=1, version=version) == {("orders", 0): code}
    assert world.log == []


def test_a_member_commits_at_its_epoch(world: World) -> None:
    """Equal → ok. The cause names member id and epoch."""
    world.join("a")
    assert world.commit({("orders", 0): 7}, member_id="a", epoch=1) == {("orders", 0): 0}
    assert (world.log[-1].cause.member_id, world.log[-1].cause.member_epoch) == ("a", 1)


def test_only_members_may_commit_to_a_group_with_members(world: World) -> None:
    """Epoch < 0 and no members → ok (admin reset); with members → 25."""
    world.join("a")
    refused = {("orders", 0): ErrorCode.UNKNOWN_MEMBER_ID}
    assert world.commit({("orders", 0): 7}) == refused
    assert world.commit({("orders", 0): 7}, member_id="b", epoch=1) == refused
    world.heartbeat("a", -1)
    assert world.commit({("orders", 0): 7}) == {("orders", 0): 0}


def test_a_member_with_epoch_minus_1_is_stale(world: World) -> None:
    """A member's commit with epoch −1 is 113."""
    world.join("a")
    assert world.commit({("orders", 0): 7}, member_id="a") == {("orders", 0): ErrorCode.STALE_MEMBER_EPOCH}


def test_members_need_version_9(world: World) -> None:
    """Member on the consumer protocol with API < 9 → UNSUPPORTED_VERSION 35."""
    world.join("a")
    refused = {("orders", 0): ErrorCode.UNSUPPORTED_VERSION}
    assert world.commit({("orders", 0): 7}, member_id="a", epoch=1, version=8) == refused


def test_a_higher_epoch_is_stale(world: World) -> None:
    """Higher → 113."""
    world.join("a")
    assert world.commit({("orders", 0): 7}, member_id="a", epoch=2) == {
        ("orders", 0): ErrorCode.STALE_MEMBER_EPOCH
    }


def test_an_older_epoch_commits_what_it_held_since(world: World) -> None:
    """KIP-1251: lower → allowed iff held (assigned or pending) since that epoch or before."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    settle([a, b])
    assert a.epoch == 2
    kept = a.partitions(ORDERS)[0]
    given_to_b = b.partitions(ORDERS)[0]
    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit({("orders", kept): 7}, member_id="a", epoch=1) == {("orders", kept): 0}
    assert world.commit({("orders", kept): 7}, member_id="a", epoch=0) == {("orders", kept): stale}
    assert world.commit({("orders", given_to_b): 7}, member_id="a", epoch=1) == {
        ("orders", given_to_b): stale
    }
    assert world.commit({("orders", given_to_b): 7}, member_id="b", epoch=1) == {
        ("orders", given_to_b): stale
    }


def test_one_failing_partition_refuses_the_whole_commit(world: World) -> None:
    """One failing partition refuses the whole commit with 113."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    settle([a, b])
    mixed = {("orders", a.partitions(ORDERS)[0]): 7, ("orders", b.partitions(ORDERS)[0]): 7}
    entries = len(world.log)
    assert set(world.commit(mixed, member_id="a", epoch=1).values()) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert len(world.log) == entries


def test_what_is_pending_revocation_may_still_be_committed(world: World) -> None:
    """… assigned or pending revocation: the last commit before giving up."""
    world.create_topic("more", 2)
    a = Client(world, "a")
    a.beat()
    a.subscribe(["orders", "more"])
    a.beat()
    Client(world, "b", topics=("orders", "more")).beat()
    a.beat()
    pending = min(world.group().members["a"].current.pending[ORDERS])
    assert world.commit({("orders", pending): 7}, member_id="a", epoch=1) == {("orders", pending): 0}


def test_present_members_may_commit_any_partition(world: World) -> None:
    """Not checked: that the member owns the partition, that the offset is sane, or monotone."""
    world.join("a", topics=["nowhere"])
    assert world.commit({("orders", 0): 7}, member_id="a", epoch=1) == {("orders", 0): 0}
    assert world.commit({("orders", 0): -5}, member_id="a", epoch=1) == {("orders", 0): 0}


def test_metadata_too_large_is_per_partition(world: World) -> None:
    """Metadata longer than 4 096 bytes → OFFSET_METADATA_TOO_LARGE 12 for that partition, others commit."""
    topic = OffsetCommitRequestTopic(name="orders")
    for partition, size in ((0, 4_096), (1, 4_097), (2, 0)):
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=5, committed_metadata="x" * size or None
            )
        )
    answer = world.handle(ApiKey.OFFSET_COMMIT, 9, OffsetCommitRequest(group_id="g", topics=[topic]))
    assert [part.error_code for part in answer.topics[0].partitions] == [
        0, ErrorCode.OFFSET_METADATA_TOO_LARGE, 0,
    ]  # fmt: skip
    assert sorted(world.fetch()) == [("orders", 0), ("orders", 2)]


@pytest.mark.parametrize(
    ("version", "code"), [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (10, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_unknown_topics_and_partitions(world: World, version: int, code: ErrorCode) -> None:
    """Topic unknown → 3 (v10 names topics by id: 100); others still commit."""
    answer = world.commit({("nowhere", 0): 1, ("orders", 0): 2, ("orders", 12): 3}, version=version)
    assert answer == {
        ("nowhere", 0): code,
        ("orders", 0): 0,
        ("orders", 12): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_an_id_of_a_newer_catalog_is_not_unknown(world: World) -> None:
    """v10: a topic that this node does not know *yet* is to be tried again, by itself; others commit."""
    later = new_topic_id(bytes(16), world.catalog.view.version + 1)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])
            for topic_id in (later, ORDERS, b"?" * 16)
        ],
    )
    answer = world.handle(ApiKey.OFFSET_COMMIT, 10, request)
    assert [topic.partitions[0].error_code for topic in answer.topics] == [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]


def test_unknown_partitions_are_told_apart_in_a_refused_commit(world: World) -> None:
    """Topic unknown → 3, whoever asks: Kafka looks at topics before it looks at the member."""
    world.join("a")
    offsets = {("orders", 0): 7, ("orders", 99): 7, ("nothing", 0): 7}
    assert world.commit(offsets, member_id="b", epoch=1) == {
        ("orders", 0): ErrorCode.UNKNOWN_MEMBER_ID,
        ("orders", 99): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert world.fetch() == {}


def test_the_record(world: World) -> None:
    """Commit time = now; RetentionTimeMs ≠ −1 → expireTimestamp = now + it; the topic's id goes with it."""
    partition = OffsetCommitRequestPartition(
        partition_index=3, committed_offset=9, committed_leader_epoch=4, committed_metadata="m"
    )
    request = OffsetCommitRequest(
        group_id="g",
        retention_time_ms=1_000,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])],
    )
    world.handle(ApiKey.OFFSET_COMMIT, 4, request)
    now = WALL_START_MS + int(world.now_ms)
    assert world.log[-1].typed() == [
        Record(
            OffsetCommitKey(group_id="g", topic="orders", partition=3),
            OffsetCommitValue(
                offset=9, leader_epoch=4, metadata="m", commit_timestamp_ms=now,
                expire_timestamp_ms=now + 1_000, topic_id=ORDERS,
            ),
        )
    ]  # fmt: skip


def test_classic_groups_of_an_older_log(without_classic: World) -> None:
    """Classic group: member check 25, generation 22, empty and −1 ok."""
    from records import encode_record

    world = without_classic
    world.shard.apply(encode_record(classic_group(members=1)), 1)
    one = ("orders", 0)
    assert world.commit({one: 1}, member_id="old", epoch=3) == {one: 0}
    assert world.commit({one: 1}, member_id="old", epoch=2) == {one: ErrorCode.ILLEGAL_GENERATION}
    assert world.commit({one: 1}) == {one: ErrorCode.UNKNOWN_MEMBER_ID}
    world.shard.apply(encode_record(classic_group(members=0)), 1)
    assert world.commit({one: 1}) == {one: 0}


def test_static_members_of_classic_groups_of_an_older_log(world: World) -> None:
    """Kafka checks the instance id in classic groups, whether or not new members can join them."""
    from records import encode_record

    world.shard.apply(encode_record(classic_group(members=1, instance_id="i")), 1)
    one = ("orders", 0)
    for instance_id, code in (
        (None, 0), ("i", 0), ("other", ErrorCode.UNKNOWN_MEMBER_ID),
    ):  # fmt: skip
        assert world.commit({one: 1}, member_id="old", epoch=3, instance_id=instance_id) == {one: code}
    fenced = world.commit({one: 1}, member_id="older", epoch=3, instance_id="i")
    assert fenced == {one: ErrorCode.FENCED_INSTANCE_ID}


def test_group_ids_are_bounded(world: World) -> None:
    """A group id stands in every key of the group."""
    answer = world.commit({("orders", 0): 1}, group_id="g" * 1_025)
    assert answer == {("orders", 0): ErrorCode.INVALID_GROUP_ID}


def test_a_commit_that_cannot_be_one_entry_is_refused_before_it_is_built(world: World) -> None:
    """A few bytes on the wire may ask for a key of a kilobyte each: refused (28) before any is made."""
    topic = OffsetCommitRequestTopic(name="orders")
    one = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    topic.partitions = [one] * 20_000
    request = OffsetCommitRequest(group_id="g" * 1_000, topics=[topic])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coordinator.offsets.commits.encode_offset_commit", None)
        answer = world.handle(ApiKey.OFFSET_COMMIT, 9, request)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert world.log == []


def test_a_member_of_a_group_that_is_only_offsets(world: World) -> None:
    """The group exists (a simple classic one) and has no members → 25, whatever the version."""
    world.commit({("orders", 0): 7})
    for version in (8, 9):
        assert world.commit({("orders", 0): 8}, member_id="a", epoch=1, version=version) == {
            ("orders", 0): ErrorCode.UNKNOWN_MEMBER_ID
        }
    assert world.fetch() == {("orders", 0): 7}


def test_groups_that_are_only_offsets_are_bounded() -> None:
    """A client that invents group ids must not fill memory; groups that are there go on."""
    world = World(limits=Limits(groups_max=2))
    world.create_topic("orders", 1)
    one = ("orders", 0)
    codes = [world.commit({one: 1}, group_id=group_id)[one] for group_id in ("g", "h", "i", "g")]
    assert codes == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED, 0]


def commit_one(world: World, version: int, *, member_id: str = "", epoch: int = -1, **fields: Any) -> int:
    """The error code of one partition, whose fields may be anything."""
    fields = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""} | fields
    retention_ms = fields.pop("retention_time_ms", -1)
    topic = OffsetCommitRequestTopic(
        name="orders", topic_id=ORDERS, partitions=[OffsetCommitRequestPartition(**fields)]
    )
    request = OffsetCommitRequest(
        group_id="g",
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        retention_time_ms=retention_ms,
        topics=[topic],
    )
    code: int = world.handle(ApiKey.OFFSET_COMMIT, version, request).topics[0].partitions[0].error_code
    return code


@pytest.mark.parametrize("version", range(2, 11))
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"committed_offset": -1}, 0),
        ({"committed_offset": -(2**63)}, 0),
        ({"committed_offset": 2**63 - 1}, 0),
        ({"committed_leader_epoch": -(2**31)}, 0),
        ({"committed_metadata": None}, 0),
        ({"committed_metadata": "\u00e4" * 2_048}, 0),
        ({"committed_metadata": "\u00e4" * 2_049}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"committed_metadata": "x" * 32_000}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"partition_index": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition_index": -(2**31)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition_index": 12}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition_index": 2**31 - 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_fields_at_the_ends_of_their_domain(
    world: World, version: int, fields: dict[str, Any], code: int
) -> None:
    """Not checked: that the offset is sane. Partitions that do not exist are 3, long metadata is 12."""
    assert commit_one(world, version, **fields) == code
    assert bool(world.log) == (code == 0)
    assert world.replayed(len(world.log)).state_hash == world.shard.state_hash


@pytest.mark.parametrize("version", range(2, 5))
@pytest.mark.parametrize("retention_ms", [-(2**63), -2, 0, 1, 2**63 - 1])
def test_any_retention_can_be_named(world: World, version: int, retention_ms: int) -> None:
    """RetentionTimeMs \u2260 \u22121 \u2192 expireTimestamp = now + it, which is kept within its field."""
    assert commit_one(world, version, retention_time_ms=retention_ms) == 0
    now = WALL_START_MS + int(world.now_ms)
    value = world.log[-1].typed()[0].value
    assert value.expire_timestamp_ms == min(now + retention_ms, 2**63 - 1)


def test_a_partition_or_a_topic_twice_in_one_commit(world: World) -> None:
    """Each is answered, and the last one counts."""
    parts = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        for offset in (1, 2)
    ]
    topics = [
        OffsetCommitRequestTopic(name="orders", topic_id=ORDERS, partitions=parts),
        OffsetCommitRequestTopic(
            name="orders",
            topic_id=ORDERS,
            partitions=[
                OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
            ],
        ),
    ]
    answer = world.handle(ApiKey.OFFSET_COMMIT, 10, OffsetCommitRequest(group_id="g", topics=topics))
    assert [len(topic.partitions) for topic in answer.topics] == [2, 1]
    assert world.fetch() == {("orders", 0): 3}


def test_nothing_asked_nothing_done(world: World) -> None:
    """No topics, or a topic without partitions: no group comes to be."""
    for topics in ([], [OffsetCommitRequestTopic(name="orders", partitions=[])]):
        answer = world.handle(ApiKey.OFFSET_COMMIT, 9, OffsetCommitRequest(group_id="g", topics=topics))
        assert [topic.partitions for topic in answer.topics] == [[] for _ in topics]
    assert world.log == []
    assert not world.shard.projection.offsets.has_group("g")


@pytest.mark.parametrize("epoch", [0, 2, 2**31 - 1, -1, -2, -(2**31)])
def test_epochs_that_no_member_has(world: World, epoch: int) -> None:
    """Both lower and higher are refused, whatever the partition."""
    world.join("a")
    code = commit_one(world, 9, member_id="a", epoch=epoch)
    assert code == ErrorCode.STALE_MEMBER_EPOCH


def test_topic_ids_of_version_10(world: World) -> None:
    """Version 10 names topics by id: one that was deleted is unknown, whatever has its name now."""
    world.delete_topic("orders")
    world.create_topic("orders", 2)
    assert commit_one(world, 10) == ErrorCode.UNKNOWN_TOPIC_ID
    assert commit_one(world, 9) == 0
    assert world.fetch() == {("orders", 0): 1}


def test_a_simple_group_that_is_recreated_with_its_topic(world: World) -> None:
    """Topic deletion removes offsets, in all groups; those of the new topic of that name are its own."""
    world.commit({("orders", 0): 5, ("orders", 1): 6})
    world.delete_topic("orders")
    world.create_topic("orders", 2)
    world.commit({("orders", 1): 1})
    assert world.fetch() == {("orders", 1): 1}
    world.work()
    assert world.fetch() == {("orders", 1): 1}
    assert len(world.shard.projection.offsets) == 1
