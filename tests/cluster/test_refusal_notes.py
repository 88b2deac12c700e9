"""Notes of refused requests."""

from __future__ import annotations

from cluster.runtime.refusal_notes import PARTITIONS_NOTED_MAX, owned_partitions
from records.ids import topic_id_text
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from wire.messages.delete_topics import DeleteTopicsRequest

ORDERS = bytes(range(16))


def heartbeat(owned: list[TopicPartitions] | None) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3, topic_partitions=owned)


def test_a_heartbeat_is_noted_with_what_it_says_that_its_member_owns() -> None:
    owned = [TopicPartitions(topic_id=ORDERS, partitions=[0, 2])]
    assert owned_partitions(heartbeat(owned)) == {topic_id_text(ORDERS): [0, 2]}
    assert owned_partitions(heartbeat([])) == {}
    assert owned_partitions(heartbeat(None)) is None
    assert owned_partitions(DeleteTopicsRequest(topic_names=["orders"])) is None


def test_a_note_stays_small_for_any_request() -> None:
    numbers = list(range(PARTITIONS_NOTED_MAX))
    assert owned_partitions(heartbeat([TopicPartitions(topic_id=ORDERS, partitions=numbers)])) is None
    assert owned_partitions(heartbeat([TopicPartitions(topic_id=ORDERS, partitions=numbers[1:])])) is not None
    empty = [TopicPartitions(topic_id=bytes([n]) * 16, partitions=[]) for n in range(201)]
    assert owned_partitions(heartbeat(empty)) is None
