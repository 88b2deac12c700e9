"""Groups of stock clients move to the consumer protocol and back while they consume, member by member."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from cluster.launching.launcher import ClusterProcess
from tests.languages.asking import listed, new_topic, stored
from tests.languages.members import (
    KEYS,
    MESSAGES,
    PARTITIONS,
    client,
    newest,
    produce,
    wait_until_shared,
    wait_while_running,
)
from tests.support.verifiable import VerifiableConsumer

pytestmark = pytest.mark.timeout(180)

KCAT = pytest.param("kcat", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", ["java-classic", "franz-go", "kafkajs", KCAT])
def test_a_group_moves_to_the_consumer_protocol_and_back(
    name: str, one_node: ClusterProcess, group: str, running: ExitStack
) -> None:
    classic, new = client(name), client("java-consumer")
    where = (one_node.bootstrap, new_topic(one_node, PARTITIONS))

    def consume(*members: VerifiableConsumer, run: int) -> None:
        """Let the members share the partitions, and consume more messages."""
        wait_until_shared(*members)
        produce(classic.producer(*where, "--max-messages", str(MESSAGES), *KEYS))
        wait_while_running(lambda: sum(newest(*everyone).values()) == run * MESSAGES, *members)

    first = running.enter_context(classic.consumer(*where, group, client_id="first"))
    everyone = [first]
    consume(first, run=1)
    assert listed(one_node, group).group_type == "classic"

    second = running.enter_context(new.consumer(*where, group, client_id="second"))
    everyone.append(second)
    consume(first, second, run=2)
    assert listed(one_node, group).group_type == "consumer"
    first.stop()
    consume(second, run=3)

    third = running.enter_context(classic.consumer(*where, group, client_id="third"))
    everyone.append(third)
    consume(second, third, run=4)
    second.stop()
    consume(third, run=5)
    assert listed(one_node, group).group_type == "classic"
    assert stored(one_node, group) == newest(*everyone)
    assert [one.commit_errors for one in everyone] == [[], [], []]
