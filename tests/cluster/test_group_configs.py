"""Configs of groups on three nodes: committed before they apply, known to all nodes before the answer."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.kafka.forwarding import CLIENT_ID
from cluster.simulator import WireClient
from cluster.simulator.machine import KAFKA_PORT
from raftlog.storage.frames import frames_in
from records import METADATA_SHARD, Trigger, decode_cause
from tests.report import count_fault
from tests.support.requests import HEARTBEAT, setting
from tests.support.sim_node import SimNode
from tests.support.three_nodes import GROUP, ThreeNodes
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

SESSION = "consumer.session.timeout.ms"


def described(answer: Any) -> dict[str, str]:
    return {config.name: config.value for config in answer.results[0].configs}


def controller(nodes: ThreeNodes) -> int:
    leader = nodes.cluster.leader_of(METADATA_SHARD)
    assert leader is not None
    return leader


def configure(nodes: ThreeNodes, name: str, value: int | None) -> None:
    answer = nodes.ask(controller(nodes), ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, setting(name, value))
    assert answer.responses[0].error_code == 0, answer


def describe(nodes: ThreeNodes, node_id: int) -> dict[str, str]:
    resource = DescribeConfigsResource(resource_type=32, resource_name=GROUP, configuration_keys=None)
    return described(
        nodes.ask(node_id, ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[resource]))
    )


def test_a_config_that_was_acknowledged_is_on_every_node() -> None:
    nodes = ThreeNodes()
    configure(nodes, SESSION, 7_000)
    for node_id in (1, 2, 3):
        assert describe(nodes, node_id)[SESSION] == "7000"


def test_a_config_holds_for_running_members_at_their_next_heartbeat_under_any_leader() -> None:
    nodes = ThreeNodes()
    consumer = nodes.consumer("a")
    assert consumer.heartbeat().error_code == 0
    assert consumer.heartbeat().heartbeat_interval_ms <= 1_000
    configure(nodes, HEARTBEAT, 3_000)
    assert consumer.heartbeat().heartbeat_interval_ms == 3_000
    nodes.cluster[nodes.leader].kill()
    count_fault("cluster", "leader killed")
    nodes.cluster.wait_for_leader(nodes.shard)
    nodes.move(consumer)
    assert consumer.heartbeat().heartbeat_interval_ms == 3_000


def test_configs_come_back_after_a_full_restart() -> None:
    sim = SimNode()
    answer = sim.admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, setting(SESSION, 9_000))
    assert answer.responses[0].error_code == ErrorCode.NONE
    sim.machine.kill()
    sim.reboot()
    assert sim.node.group_settings.for_group(GROUP).session_timeout_ms == 9_000


def test_a_cached_reply_is_not_given_after_a_change() -> None:
    sim = SimNode()
    consumer = sim.consumer("a")
    consumer.heartbeat()
    for _ in range(3):
        consumer.heartbeat()
    fast = sim.node.kafka.context.counters.fast_heartbeats
    consumer.heartbeat()
    assert sim.node.kafka.context.counters.fast_heartbeats == fast + 1
    sim.admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, setting(HEARTBEAT, 3_000, "another"))
    consumer.heartbeat()
    assert sim.node.kafka.context.counters.fast_heartbeats == fast + 2
    sim.admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, setting(HEARTBEAT, 3_000))
    assert consumer.heartbeat().heartbeat_interval_ms == 3_000
    assert sim.node.kafka.context.counters.fast_heartbeats == fast + 2
    sim.admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, setting(HEARTBEAT, None))
    assert consumer.heartbeat().heartbeat_interval_ms < 3_000


def test_what_is_asked_of_a_node_that_does_not_lead_the_metadata_shard() -> None:
    """Requests about brokers only need no log."""
    nodes = ThreeNodes()
    other = next(node_id for node_id in (1, 2, 3) if node_id != controller(nodes))
    config = AlterableConfig(name="group.consumer.max.size", config_operation=0, value="5")
    broker = AlterConfigsResource(resource_type=4, resource_name=str(other), configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[broker])
    (answer,) = nodes.ask(other, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_any_node_takes_the_config_of_a_group(asked: int) -> None:
    """Kafka's own clients ask any broker, and treat NOT_CONTROLLER as final."""
    nodes = ThreeNodes()
    (answer,) = nodes.ask(asked, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, setting(SESSION, 7_000)).responses
    assert answer.error_code == ErrorCode.NONE
    assert {describe(nodes, node_id)[SESSION] for node_id in (1, 2, 3)} == {"7000"}
    (answer,) = nodes.ask(asked, ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, setting(SESSION, 1)).responses
    assert answer.error_code == ErrorCode.INVALID_CONFIG


def test_a_request_that_was_handed_on_is_not_handed_on_again() -> None:
    nodes = ThreeNodes()
    other = next(node_id for node_id in (1, 2, 3) if node_id != controller(nodes))
    address = nodes.cluster[other].address
    client = WireClient(nodes.world, nodes.network, f"{CLIENT_ID}9", KAFKA_PORT, address)
    (answer,) = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, setting(SESSION, 7_000)).responses
    assert answer.error_code == ErrorCode.NOT_CONTROLLER


def test_a_controller_that_does_not_answer_is_told_of_in_time() -> None:
    """The outcome is then unknown; every wait ends, and none is left over."""
    nodes = ThreeNodes()
    leader = controller(nodes)
    other = next(node_id for node_id in (1, 2, 3) if node_id != leader)
    client = nodes.client(other)
    call = client.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, setting(SESSION, 7_000))
    nodes.cluster[leader].kill()
    count_fault("cluster", "controller killed")
    assert nodes.world.run_until(lambda: call.response is not None, within_ms=10_000)
    assert call.response.responses[0].error_code in (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NONE,
    )
    assert nodes.cluster[other].node.kafka.context.forwards == 0


def test_a_controller_that_stands_still_is_given_up_in_time() -> None:
    """Its connection stays open, so only a timeout can tell."""
    nodes = ThreeNodes()
    leader = controller(nodes)
    other = next(node_id for node_id in (1, 2, 3) if node_id != leader)
    nodes.cluster[leader].host.pause()
    count_fault("cluster", "node paused")
    call = nodes.client(other).send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, setting(SESSION, 7_000))
    assert nodes.world.run_until(lambda: call.response is not None, within_ms=10_000)
    assert nodes.cluster[other].node.kafka.context.forwards == 0


def test_a_change_in_the_middle_of_an_election_waits_for_the_next_controller() -> None:
    """An error would be final for Kafka's clients."""
    nodes = ThreeNodes()
    leader = controller(nodes)
    other = next(node_id for node_id in (1, 2, 3) if node_id != leader)
    client = nodes.client(other)
    nodes.cluster[leader].kill()
    count_fault("cluster", "controller killed")
    node = nodes.cluster[other].node
    assert nodes.world.run_until(lambda: node.controller is None, within_ms=3_000)
    (answer,) = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, setting(SESSION, 7_000)).responses
    assert answer.error_code == ErrorCode.NONE, answer


@pytest.mark.parametrize("is_handed_on", [False, True])
def test_the_cause_says_who_asked(is_handed_on: bool) -> None:
    """The client is named even if another node forwarded the request; the address is then that node's."""
    nodes = ThreeNodes()
    leader = controller(nodes)
    asked = next(node_id for node_id in (1, 2, 3) if (node_id != leader) is is_handed_on)
    nodes.client(asked).ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, setting(SESSION, 7_000))
    replica = nodes.cluster.runtime(leader, METADATA_SHARD).replica
    frames = frames_in(replica.log.read(replica.commit_index, 1 << 20))
    cause = decode_cause(frames[-1].body)
    assert cause.trigger == Trigger.CONFIG_CHANGED
    assert cause.address
    handed_on = f"{CLIENT_ID}{asked} for " if is_handed_on else ""
    assert cause.detail.startswith(f"by client {handed_on}client-"), cause
    assert ("/" in cause.detail) is is_handed_on
