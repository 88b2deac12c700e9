"""The metadata shard: what it accepts, what it refuses and how, and that replay gives the same catalog."""

from __future__ import annotations

import pytest

from coordinator.api import MESSAGE_CHARS_MAX
from coordinator.catalog.shard import CatalogShard
from coordinator.limits import Limits
from records import (
    FormatLevelKey,
    FormatLevelValue,
    GroupConfigKey,
    GroupConfigValue,
    RawRecord,
    Record,
    TermStartKey,
    TermStartValue,
    encode_record,
)
from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from wire.protocol import encode_response


class Desk:
    """A catalog with its log."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.world = World(limits=limits)
        self.shard = self.world.catalog
        self.log: list[tuple[int, RawRecord]] = []
        self.causes: list[int] = []

    def handle(self, api: ApiKey, version: int, request: object) -> object:
        index = len(self.log) + 1
        decision = self.shard.handle(api, version, request, self.world.ctx(next_index=index))
        assert bool(decision.records) == (decision.cause is not None)
        if decision.cause is not None:
            self.causes.append(decision.cause.trigger)
            assert decision.cause.address == "/127.0.0.1", "an operator did it"
        self.log += [(index, raw) for raw in decision.records]
        replayed = CatalogShard()
        for at, raw in self.log:
            replayed.apply(raw, at)
        assert replayed.state_hash == self.shard.state_hash
        assert list(replayed.view.topics()) == list(self.shard.view.topics())
        assert replayed.view.version == self.shard.view.version
        return decision.reply

    def create(self, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatableTopicResult]:
        request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
        return self.handle(ApiKey.CREATE_TOPICS, 7, request).topics  # type: ignore[attr-defined,no-any-return]

    def grow(self, *topics: CreatePartitionsTopic, validate_only: bool = False) -> list[int]:
        request = CreatePartitionsRequest(topics=list(topics), validate_only=validate_only)
        answer = self.handle(ApiKey.CREATE_PARTITIONS, 3, request)
        return [result.error_code for result in answer.results]  # type: ignore[attr-defined]

    def delete(self, *topics: DeleteTopicState) -> list[DeletableTopicResult]:
        request = DeleteTopicsRequest(topics=list(topics))
        return self.handle(ApiKey.DELETE_TOPICS, 6, request).responses  # type: ignore[attr-defined,no-any-return]


def topic(name: str, partitions: int = 3, replication: int = 1) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication)


def growth(name: str, count: int) -> CreatePartitionsTopic:
    return CreatePartitionsTopic(name=name, count=count, assignments=None)


@pytest.fixture
def desk() -> Desk:
    return Desk(Limits(topics_max=4, partitions_per_topic_max=100, num_partitions_default=5))


def test_create(desk: Desk) -> None:
    first, second = desk.create(topic("a"), topic("b.c_d-E", -1, -1))
    assert (first.error_code, first.num_partitions, first.replication_factor) == (0, 3, 1)
    assert second.num_partitions == 5, "−1 is the default"
    assert len({first.topic_id, second.topic_id, bytes(16)}) == 3
    assert desk.shard.view.topic_by_id(first.topic_id) == desk.shard.view.topic("a")
    assert desk.shard.view.version == 1, "one request, one entry"


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 101), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 3, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
)
def test_create_refusals_are_per_topic(desk: Desk, asked: CreatableTopic, code: ErrorCode) -> None:
    desk.create(topic("there"))
    refused, accepted = desk.create(asked, topic("x" * 249))
    assert (refused.error_code, accepted.error_code) == (code, 0)
    assert refused.error_message


def test_a_name_that_differs_from_an_existing_one_in_dots_and_underscores_only_is_refused(desk: Desk) -> None:
    """As Kafka 4.3 does (measured): two topics of one request are not compared with each other."""
    created = desk.create(topic("a.b_c"), topic("p.q"), topic("p_q"))
    assert [one.error_code for one in created] == [0, 0, 0]
    refused = desk.create(topic("a_b.c"), topic("a.b_c"), topic("p_q"))
    assert [(one.error_code, one.error_message) for one in refused] == [
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'a_b.c' collides with existing topic: a.b_c"),
        (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a.b_c' already exists."),
        (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'p_q' already exists."),
    ]
    desk.delete(DeleteTopicState(name="p.q"))
    assert desk.create(topic("p.q"))[0].error_message == "Topic 'p.q' collides with existing topic: p_q"
    desk.delete(DeleteTopicState(name="p_q"))
    assert desk.create(topic("p.q"))[0].error_code == 0


def test_a_topic_named_twice_is_refused_twice(desk: Desk) -> None:
    codes = [result.error_code for result in desk.create(topic("a"), topic("a", 5), topic("b"))]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, 0]


def test_the_number_of_topics_is_bounded(desk: Desk) -> None:
    codes = [result.error_code for result in desk.create(*(topic(name) for name in "abcde"))]
    assert codes == [0, 0, 0, 0, ErrorCode.POLICY_VIOLATION]


def test_validate_only_writes_nothing(desk: Desk) -> None:
    (result,) = desk.create(topic("a"), validate_only=True)
    assert (result.error_code, result.topic_id) == (0, bytes(16))
    assert desk.log == []
    desk.create(topic("a"))
    assert desk.grow(growth("a", 9), validate_only=True) == [0]
    assert len(desk.log) == 1


def test_replica_assignments_give_the_count(desk: Desk) -> None:
    assignments = [CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in range(2)]
    good, bad = topic("a", -1, -1), topic("b", 2, -1)
    good.assignments = bad.assignments = assignments
    first, second = desk.create(good, bad)
    assert (first.error_code, first.num_partitions, second.error_code) == (0, 2, ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([1, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([0, 0, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (list(range(101)), ErrorCode.INVALID_PARTITIONS),
    ],
)
def test_replica_assignments_are_checked_as_counts_are(
    desk: Desk, numbers: list[int], code: ErrorCode
) -> None:
    asked = topic("a", -1, -1)
    asked.assignments = [CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in numbers]
    assert desk.create(asked)[0].error_code == code


def test_the_partitions_of_all_topics_are_bounded() -> None:
    """One member may own all of them, and its assignment is a single record."""
    desk = Desk(Limits(partitions_max=10))
    assert [result.error_code for result in desk.create(topic("a", 6), topic("b", 5))] == [0, 44]
    assert desk.create(topic("b", 3))[0].error_code == 0
    assert desk.grow(growth("a", 7), growth("b", 4)) == [0, 44]
    desk.delete(DeleteTopicState(name="b"))
    assert desk.grow(growth("a", 10)) == [0]


def test_grow(desk: Desk) -> None:
    (created,) = desk.create(topic("a", 3))
    assert desk.grow(growth("a", 7)) == [0]
    grown = desk.shard.view.topic("a")
    assert grown is not None
    assert (grown.num_partitions, grown.topic_id) == (7, created.topic_id)
    assert desk.shard.view.changed_at("a") == desk.shard.view.version == 2
    twice = growth("a", 9)
    wrong = CreatePartitionsTopic(name="a", count=9, assignments=[CreatePartitionsAssignment()])
    assert desk.grow(growth("a", 7), growth("nowhere", 3)) == [37, 3]
    assert desk.grow(growth("a", 101)) == [37]
    assert desk.grow(twice, twice) == [42, 42]
    assert desk.grow(wrong) == [39]


def test_delete_by_name_and_by_id(desk: Desk) -> None:
    created = desk.create(topic("a"), topic("b"))
    by_name, by_id = desk.delete(
        DeleteTopicState(name="a"), DeleteTopicState(name=None, topic_id=created[1].topic_id)
    )
    assert (by_name.topic_id, by_id.name) == (created[0].topic_id, "b")
    assert list(desk.shard.view.topics()) == []
    assert desk.shard.view.changed_at("a") == 3


def test_delete_refusals(desk: Desk) -> None:
    (created,) = desk.create(topic("a"))
    codes = [
        result.error_code
        for result in desk.delete(
            DeleteTopicState(name="nowhere"),
            DeleteTopicState(name=None, topic_id=b"?" * 16),
            DeleteTopicState(name="a", topic_id=created.topic_id),
            DeleteTopicState(name=None),
        )
    ]
    assert codes == [3, 100, 42, 42]
    both = desk.delete(DeleteTopicState(name="a"), DeleteTopicState(name=None, topic_id=created.topic_id))
    assert [result.error_code for result in both] == [42, 42]
    old = desk.handle(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["a", "b"]))
    assert [result.error_code for result in old.responses] == [0, 3]  # type: ignore[attr-defined]


def test_a_recreated_topic_has_another_id(desk: Desk) -> None:
    (first,) = desk.create(topic("a"))
    desk.delete(DeleteTopicState(name="a"))
    (second,) = desk.create(topic("a"))
    assert first.topic_id != second.topic_id
    assert desk.shard.view.topic_by_id(first.topic_id) is None


def test_configs_levels_and_terms_are_projected() -> None:
    shard = CatalogShard()
    config = GroupConfigKey(group_id="g", name="n")
    records = [
        Record(config, GroupConfigValue(value="1")),
        Record(FormatLevelKey(), FormatLevelValue(level=1)),
        Record(TermStartKey(), TermStartValue(term=1, node_id=1, why=0, incarnation="", boot_id="")),
    ]
    hashes = {shard.state_hash}
    for index, record in enumerate(records, 1):
        shard.apply(encode_record(record), index)
        hashes.add(shard.state_hash)
        assert shard.applied_index == index
    assert len(hashes) == 4
    assert (dict(shard.view.configs.of("g")), shard.format_level) == ({"n": "1"}, 1)
    assert shard.view.version == 0, "only topics move the catalog's version"
    for record in records:
        shard.apply(encode_record(Record(record.key, None)), 9)
    assert shard.state_hash == CatalogShard().state_hash


def test_unknown_records_are_skipped() -> None:
    shard = CatalogShard()
    shard.apply(RawRecord(4_321, 7, b"k", b"v"), 1)
    assert (dict(shard.unknown_types), shard.applied_index) == ({4_321: 1}, 1)


def test_a_refusal_of_a_name_of_32_kilobytes_can_be_answered() -> None:
    """It quotes the name, and strings of versions that are not flexible end at 32,767 bytes."""
    name = "é" * 16_000
    request = CreatePartitionsRequest(topics=[growth(name, 9)])
    answer = Desk().handle(ApiKey.CREATE_PARTITIONS, 1, request)
    assert encode_response(ApiKey.CREATE_PARTITIONS, 1, 1, answer)  # type: ignore[arg-type]
    (result,) = answer.results  # type: ignore[attr-defined]
    assert result.name == name
    assert len(result.error_message) <= MESSAGE_CHARS_MAX + len(" … ")
    assert result.error_message.startswith("Topic")
