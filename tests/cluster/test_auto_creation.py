"""Topics that are created because a client asks for them, on whole nodes in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.kafka.auto_topics import TOPICS_AT_ONCE
from records import METADATA_SHARD
from tests.support.sim_node import SimNode
from tests.support.three_nodes import ThreeNodes
from wire.apis import API_VERSIONS, ApiKey
from wire.errors import ErrorCode
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
VERSIONS = range(API_VERSIONS[ApiKey.METADATA][0], API_VERSIONS[ApiKey.METADATA][1] + 1)


def named(*names: str, allow: bool = True) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=allow
    )


def found(answer: Any) -> dict[str, tuple[int, int]]:
    """Return the error code and number of partitions of each topic."""
    return {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics}


def single(**settings: Any) -> SimNode:
    return SimNode(settings={"scratch_log_enable": True} | settings)


def asked(node: SimNode, request: MetadataRequest, version: int = 12) -> dict[str, tuple[int, int]]:
    return found(node.client(f"asker-{version}").ask(ApiKey.METADATA, version, request))


@pytest.fixture(scope="module")
def created() -> SimNode:
    return single(num_partitions=3)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_there_when_its_client_is_answered(created: SimNode, version: int) -> None:
    name = f"new-{version}"
    assert asked(created, named(name, "orders"), version)[name] == (0, 3)


def test_nothing_is_created_against_the_clients_wish_or_kafkas_rules(created: SimNode) -> None:
    before = len(created.node.catalog)
    assert asked(created, named("other", allow=False)) == {"other": (UNKNOWN, 0)}
    illegal = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert asked(created, named("a b", "", "..", "x" * 250)) == {
        "a b": (illegal, 0), "": (illegal, 0), "..": (illegal, 0), "x" * 250: (illegal, 0)
    }  # fmt: skip
    assert asked(created, named("__consumer_offsets")) == {"__consumer_offsets": (UNKNOWN, 0)}
    client = created.client("all")
    client.ask(ApiKey.METADATA, 12, MetadataRequest(topics=None))
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"i" * 16, name=None)])
    assert client.ask(ApiKey.METADATA, 12, by_id).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert len(created.node.catalog) == before


@pytest.mark.parametrize("settings", [{"auto_create_topics_enable": False}, {"scratch_log_enable": False}])
def test_nothing_is_created_where_it_is_not_enabled(settings: dict[str, bool]) -> None:
    node = single(**settings)
    assert asked(node, named("new")) == {"new": (UNKNOWN, 0)}


def test_what_cannot_be_created_is_told_as_absent() -> None:
    node = single(topics_max=1)
    assert set(asked(node, named("a", "b")).values()) == {(UNKNOWN, 0)}


def test_one_request_creates_a_bounded_number() -> None:
    node = single()
    names = [f"t{number}" for number in range(TOPICS_AT_ONCE + 5)]
    answers = asked(node, named(*names))
    assert sorted(answers.values()).count((0, 1)) == TOPICS_AT_ONCE
    assert set(asked(node, named(*names), 11).values()) == {(0, 1)}


def test_any_node_is_asked_and_every_node_knows() -> None:
    nodes = ThreeNodes(settings={"scratch_log_enable": True})
    controller = nodes.cluster.wait_for_leader(METADATA_SHARD)
    for node_id in (1, 2, 3):
        assert found(nodes.ask(node_id, ApiKey.METADATA, 12, named(f"by-{node_id}"))) == {
            f"by-{node_id}": (0, 1)
        }
    everything = found(nodes.ask(controller, ApiKey.METADATA, 12, MetadataRequest(topics=None)))
    assert {"by-1", "by-2", "by-3"} <= everything.keys()


def test_two_clients_that_ask_at_once_get_one_topic() -> None:
    nodes = ThreeNodes(settings={"scratch_log_enable": True})
    calls = [nodes.client(node_id).send(ApiKey.METADATA, 12, named("new")) for node_id in (1, 2, 3, 1, 2)]
    assert nodes.world.run_until(lambda: all(call.response is not None for call in calls), within_ms=5_000)
    ids = {call.response.topics[0].topic_id for call in calls if call.response.topics[0].error_code == 0}
    assert len(ids) == 1


def test_without_a_controller_the_client_is_answered_as_ever() -> None:
    nodes = ThreeNodes(settings={"scratch_log_enable": True})
    left = nodes.cluster.wait_for_leader(METADATA_SHARD)
    for node_id in {1, 2, 3} - {left}:
        nodes.cluster[node_id].kill()
    nodes.world.run_for(3_000)
    call = nodes.client(left).send(ApiKey.METADATA, 12, named("new"))
    assert nodes.world.run_until(lambda: call.response is not None, within_ms=10_000)
    assert found(call.response) == {"new": (UNKNOWN, 0)}
