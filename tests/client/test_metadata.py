"""The metadata of a consumer: its knowledge of the cluster, its requests, and the errors that it reports."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from client.core.cluster_view import ClusterView
from client.core.events import UpdateMetadataEvent
from client.core.metadata import WAITERS_MAX
from client.core.types import TopicPartition
from tests.client.fake_network import Answers, ClientRig, FakeNetwork, list_offsets
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.metadata import MetadataResponse, MetadataResponseTopic

ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))


def orders(leaders: tuple[int, ...] = (1, 2), leader_epoch: int = 5) -> FakeNetwork:
    network = FakeNetwork()
    network.add_topic("orders", ID, leaders, leader_epoch)
    network.add_topic("bills", OTHER_ID, (3,))
    return network


def knows(network: FakeNetwork, *names: str, **settings: Any) -> ClientRig:
    rig = ClientRig(network, **settings)
    rig.metadata.want_topics(names)
    rig.run()
    return rig


def asked_times(rig: ClientRig) -> list[float]:
    return [one.at_ms for one in rig.network.asked_for(ApiKey.METADATA)]


def test_topics_have_ids_partitions_and_leaders() -> None:
    rig = knows(orders(), "orders")
    view = rig.metadata.view
    assert view.topics.keys() == {"orders"}
    assert rig.metadata.topic_name(ID) == "orders"
    assert [view.leader(TopicPartition("orders", index)) for index in range(3)] == [1, 2, None]
    assert view.leader(TopicPartition("bills", 0)) is None
    (node,) = (node for node in view.nodes.values() if node.id == 2)
    assert (node.host, node.port) == ("n2", 9092)


def test_topics_are_found_by_id() -> None:
    rig = knows(orders())
    rig.metadata.want_ids([OTHER_ID])
    rig.run()
    assert rig.metadata.topic_name(OTHER_ID) == "bills"
    assert "bills" in rig.metadata.view.topics
    rig.metadata.want_ids([OTHER_ID])
    rig.run(1_000)
    assert len(asked_times(rig)) == 2


def test_an_id_without_a_topic_is_asked_for_again_and_the_rest_goes_on() -> None:
    rig = knows(orders())
    late = bytes(15) + b"\7"
    rig.metadata.want_ids([OTHER_ID, late])
    rig.run(5_000)
    assert rig.metadata.topic_name(OTHER_ID) == "bills"
    rig.network.add_topic("late", late, (1,))
    rig.metadata.want_ids([late])
    rig.run(1_300)
    assert rig.metadata.topic_name(late) == "late"
    assert len(asked_times(rig)) < 15


def test_a_subscription_to_a_topic_that_does_not_exist_yet_waits_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = knows(orders(), "new")
    rig.run(10_000)
    assert rig.errors() == []
    assert rig.metadata.view.topics["new"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert caplog.messages == ["topic 'new' does not exist, or not yet: it is waited for"]
    rig.network.add_topic("new", bytes(15) + b"\1", (2,))
    rig.run(1_300)
    assert rig.metadata.view.leader(TopicPartition("new", 0)) == 2


def test_a_topic_that_is_gone_is_dropped_in_time() -> None:
    rig = knows(orders(), "orders", metadata_max_age_ms=10_000)
    del rig.network.topics["orders"]
    rig.run(30_000)
    assert rig.metadata.view.topics == {}
    assert rig.metadata.topic_name(ID) is None


def test_a_topic_that_was_made_again_has_its_new_id() -> None:
    rig = knows(orders(), "orders")
    new_id = bytes(15) + b"\2"
    rig.network.add_topic("orders", new_id, (3,), leader_epoch=0)
    rig.metadata.refresh(rig.network.now_ms, "a test")
    rig.run(200)
    assert rig.metadata.topic_name(ID) is None
    assert rig.metadata.topic_name(new_id) == "orders"
    assert rig.metadata.view.leader(TopicPartition("orders", 0)) == 3


def test_a_leader_of_an_older_epoch_is_not_news() -> None:
    rig = knows(orders(leader_epoch=5), "orders")
    rig.network.add_topic("orders", ID, (3, 3), leader_epoch=4)
    rig.metadata.refresh(rig.network.now_ms, "a test")
    rig.run(200)
    assert rig.metadata.view.leader(TopicPartition("orders", 0)) == 1


def test_a_leader_that_a_broker_names_is_taken() -> None:
    """KIP-951"""
    rig, partition = knows(orders(leader_epoch=5), "orders"), TopicPartition("orders", 0)
    assert not rig.metadata.update_leader(partition, 3, 5)
    assert not rig.metadata.update_leader(partition, 9, 6)
    assert not rig.metadata.update_leader(TopicPartition("bills", 0), 3, 6)
    assert rig.metadata.update_leader(partition, 3, 6)
    assert rig.metadata.view.leader(partition) == 3


def test_another_view_is_made_only_after_a_change() -> None:
    rig = knows(orders(), "orders")
    view = rig.metadata.view
    rig.metadata.refresh(rig.network.now_ms, "a test")
    rig.run(200)
    assert rig.metadata.view is view
    rig.network.add_topic("orders", ID, (2, 2), leader_epoch=6)
    rig.metadata.refresh(rig.network.now_ms, "a test")
    rig.run(200)
    assert rig.metadata.view.leader(TopicPartition("orders", 0)) == 2


# When.


def test_the_view_is_asked_for_again_when_it_is_old() -> None:
    rig = knows(orders(), "orders", metadata_max_age_ms=60_000)
    rig.run(180_000)
    assert asked_times(rig) == [0, 60_000, 120_000, 180_000]


def test_many_complaints_are_one_request() -> None:
    rig = knows(orders(), "orders")
    rig.run(1_000)
    for _ in range(50):
        rig.metadata.refresh(rig.network.now_ms, "a fetch failed")
        rig.run(10)
    assert len(asked_times(rig)) <= 7  # one for each retry.backoff.ms


def test_a_lost_connection_to_a_leader_is_a_complaint() -> None:
    rig = knows(orders(), "orders")
    rig.send(list_offsets(Answers(), to=2))
    rig.run(1_000)
    rig.network.kill(2)
    rig.run()
    assert asked_times(rig) == [0, 1_000]


def test_a_partition_without_a_leader_is_asked_about_again() -> None:
    rig = knows(orders(leaders=(1, -1)), "orders")
    rig.run(1_000)
    rig.network.add_topic("orders", ID, (1, 3), leader_epoch=6)
    rig.run(1_000)
    assert rig.metadata.view.leader(TopicPartition("orders", 1)) == 3


@pytest.mark.parametrize("leader", [-1, 77])
def test_a_partition_whose_leader_stays_away_is_asked_about_more_and_more_slowly(leader: int) -> None:
    """Leader 77 is none of the nodes that the same answer has."""
    rig = knows(orders(leaders=(1, leader)), "orders")
    for _ in range(300):
        rig.metadata.refresh(rig.network.now_ms, "the fetcher finds no leader")
        rig.run(100)
    assert 30 <= len(asked_times(rig)) <= 40


def test_an_answer_with_more_topics_than_asked_for_adds_none() -> None:
    rig = knows(orders())
    rig.network.answer(
        ApiKey.METADATA,
        lambda asked: MetadataResponse(
            brokers=rig.network.metadata(asked).brokers, topics=list(rig.network.topics.values())
        ),
    )
    rig.metadata.want_ids([OTHER_ID])
    rig.run(1_000)
    assert rig.metadata.view.topics.keys() == {"bills"}


def test_a_node_that_does_not_answer_is_passed_over() -> None:
    network = orders()
    for node_id in (1, 2):
        network.nodes[node_id].answers[ApiKey.METADATA] = lambda asked: None
    rig = knows(network, "orders")
    rig.run(20_000)
    assert "orders" in rig.metadata.view.topics


@pytest.mark.parametrize("code", [ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_an_answer_without_nodes_changes_nothing(code: ErrorCode) -> None:
    rig = knows(orders(), "orders")
    rig.network.answer(ApiKey.METADATA, lambda asked: MetadataResponse(error_code=code))
    before = rig.metadata.view
    rig.metadata.refresh(rig.network.now_ms, "a test")
    rig.run(10_000)
    assert rig.metadata.view is before
    assert len(asked_times(rig)) < 20


# What the application is told.


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "the client is not authorized to read topic 'secret' (TOPIC_AUTHORIZATION_FAILED, 29)",
        ),
        (
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "'secret' is not a valid name of a topic (INVALID_TOPIC_EXCEPTION, 17)",
        ),
        (
            4_242,
            (
                "Metadata answered for topic 'secret' with an error that this client cannot handle"
                " (UNKNOWN_ERROR_CODE, 4242)"
            ),
        ),
    ],
)
def test_a_refused_topic_is_told_once(code: int, words: str) -> None:
    network = orders()
    network.topics["secret"] = MetadataResponseTopic(name="secret", error_code=code)
    rig = knows(network, "secret", "orders", metadata_max_age_ms=5_000)
    rig.run(60_000)
    assert rig.errors() == [words]
    assert rig.metadata.view.leader(TopicPartition("orders", 0)) == 1


def ask(rig: ClientRig, topics: frozenset[str] | None, ms: float = 1_000) -> Future[ClusterView]:
    future: Future[ClusterView] = Future()
    rig.tell(UpdateMetadataEvent(topics=topics, future=future, deadline_ms=rig.network.now_ms + ms))
    return future


def test_a_call_gets_all_topics_and_they_are_not_kept() -> None:
    rig = knows(orders(), "orders")
    future = ask(rig, None)
    rig.run()
    assert future.result(0).topics.keys() == {"orders", "bills"}
    assert rig.metadata.view.topics.keys() == {"orders"}


def test_a_call_gets_an_answer_to_a_request_made_after_it() -> None:
    network = orders()
    network.answer(ApiKey.METADATA, lambda asked: None)
    rig = knows(network, "orders")
    (early,) = network.asked_for(ApiKey.METADATA)
    network.answer(ApiKey.METADATA, network.metadata)
    future = ask(rig, frozenset({"bills"}))
    rig.run()
    network.reply(early, network.metadata(early))
    assert not future.done()
    rig.run(200)
    assert future.result(0).leader(TopicPartition("bills", 0)) == 3


def test_a_topic_that_is_being_created_is_waited_for() -> None:
    network = orders()
    code = ErrorCode.LEADER_NOT_AVAILABLE
    network.topics["new"] = MetadataResponseTopic(name="new", error_code=code)
    rig = knows(network)
    future = ask(rig, frozenset({"new"}))
    rig.run(300)
    assert not future.done()
    network.add_topic("new", bytes(15) + b"\3", (1,))
    rig.run(300)
    assert future.result(0).leader(TopicPartition("new", 0)) == 1


def test_a_call_that_gets_no_answer_says_why() -> None:
    network = orders()
    for node_id in network.nodes:
        network.kill(node_id)
    rig = ClientRig(network)
    future = ask(rig, frozenset({"orders"}), ms=6_000)
    rig.run(6_000)
    error = str(future.exception(0))
    assert error.startswith("metadata of topics orders did not arrive: Metadata was not sent in time: the")
    assert error.endswith("ended while connecting: refused")


def test_a_call_that_was_given_up_is_left_alone() -> None:
    rig = knows(orders(), "orders")
    future = ask(rig, None)
    future.cancel()
    rig.run(2_000)
    assert future.cancelled()


def test_calls_beyond_the_bound_fail() -> None:
    network = orders()
    network.answer(ApiKey.METADATA, lambda asked: None)
    rig = ClientRig(network)
    futures = [ask(rig, None) for _ in range(WAITERS_MAX + 1)]
    rig.run()
    assert futures[0].done() is False
    assert str(futures[-1].exception(0)) == f"{WAITERS_MAX} calls are waiting for metadata already"


def test_an_event_without_a_call_makes_its_topics_known() -> None:
    rig = knows(orders())
    rig.tell(UpdateMetadataEvent(topics=frozenset({"bills"})))
    rig.run(200)
    assert rig.metadata.view.topics.keys() == {"bills"}
