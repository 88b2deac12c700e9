"""Stock confluent-kafka consumers on a real node: their callbacks and their commits."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, TopicPartition

from quorate.client import Client
from quorate.demo.fleet import Fleet
from tests.clients.conftest import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from tests.report import count_fault
from tests.support.polled_consumers import Crowd

NUM_PARTITIONS = 12


def test_two_then_three_then_two_share_all_partitions(crowd: Crowd) -> None:
    crowd.join()
    crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    third = crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    assert len(third.owned) == NUM_PARTITIONS // 3
    third.close()
    crowd.wait_balanced(NUM_PARTITIONS)
    assert not third.lost


def test_a_subscription_is_assigned_within_a_heartbeat(crowd: Crowd) -> None:
    started_s = time.monotonic()
    crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    assert time.monotonic() - started_s < 2.0  # librdkafka's own start-up and one heartbeat


def test_the_range_assignor_gives_runs(crowd: Crowd) -> None:
    first = crowd.join(**{"group.remote.assignor": "range"})
    second = crowd.join(**{"group.remote.assignor": "range"})
    crowd.wait_balanced(NUM_PARTITIONS)
    assert sorted(map(sorted, (first.owned, second.owned))) == [list(range(6)), list(range(6, 12))]


def test_a_killed_consumer_expires_and_its_partitions_go_on(
    crowd: Crowd, bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    survivor = crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    fleet = Fleet(tmp_path, bootstrap, group, topic)
    try:
        victim = fleet.start("victim")
        crowd.wait("giving half away", lambda: len(survivor.owned) == NUM_PARTITIONS // 2)
        crowd.wait("the victim's commits", lambda: victim.evidence().num_acknowledged > 0)
        victim.kill()
        count_fault("clients", "kill -9 of a consumer")
        killed_s = time.monotonic()
        crowd.wait("taking over", lambda: len(survivor.owned) == NUM_PARTITIONS)
        took_s = time.monotonic() - killed_s
    finally:
        fleet.stop_all()
    assert (SESSION_TIMEOUT_MS - HEARTBEAT_INTERVAL_MS) / 1000 - 0.5 < took_s < SESSION_TIMEOUT_MS / 1000 + 3
    for partition, (offset, _) in survivor.committed(victim.evidence().owned).items():
        commits = [commit.offsets for commit in victim.evidence().acknowledged]
        assert offset >= max(offsets[partition] for offsets in commits if partition in offsets)


def test_a_commit_is_fetched_by_the_next_consumer_of_the_group(
    crowd: Crowd, bootstrap: str, group: str, topic: str, client: Client
) -> None:
    member = crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    wanted = {partition: 100 + partition for partition in range(NUM_PARTITIONS)}
    member.commit(wanted)
    member.close()
    assert client.offsets(group) == {topic: wanted}
    second = crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    found = second.committed([*wanted, NUM_PARTITIONS + 5])
    assert found.pop(NUM_PARTITIONS + 5) == (OFFSET_INVALID, None)
    assert found == {partition: (offset, f"m{partition}") for partition, offset in wanted.items()}


def test_a_commit_from_outside_the_group_is_refused_while_it_has_members(
    crowd: Crowd, bootstrap: str, group: str, topic: str, client: Client
) -> None:
    member = crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    member.commit({0: 7})
    stranger = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        stranger.assign([TopicPartition(topic, 0, 0)])
        with pytest.raises(KafkaException, match=r"UNKNOWN_MEMBER_ID|STALE_MEMBER_EPOCH|Unknown member"):
            stranger.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    finally:
        stranger.close()
    assert client.offsets(group)[topic] == {0: 7}


def test_a_topic_that_grows_is_shared_out_anew(crowd: Crowd, client: Client, topic: str) -> None:
    crowd.join()
    crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    client.grow_topic(topic, 2 * NUM_PARTITIONS)
    crowd.wait_balanced(2 * NUM_PARTITIONS)


def test_a_topic_that_is_deleted_is_given_up(crowd: Crowd, client: Client, topic: str) -> None:
    member = crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    client.delete_topic(topic)
    crowd.wait("giving everything up", lambda: not member.owned)


def test_a_topic_that_appears_later_is_assigned(bootstrap: str, group: str, client: Client) -> None:
    topic = f"{group}-topic"
    crowd = Crowd(bootstrap, group, topic)
    try:
        member = crowd.join(**{"topic.metadata.refresh.interval.ms": 500})
        crowd.wait("the member to join", lambda: any(found.group_id == group for found in client.groups()))
        assert not member.owned
        client.create_topic(topic, 3)
        crowd.wait_balanced(3)
    finally:
        crowd.close()
