"""Leaders are killed and stopped under committing clients: nothing acknowledged is lost, nothing owned twice.

`rounds` says what a round is and why it could find a loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.launcher import ClusterProcess
from history.compare import compare, comparison_text
from quorate.client import Client
from tests.failover.rounds import MEMBERS_PARTITIONS, MEMBERS_TOPIC, TOPIC, Fault, Rounds

ROUNDS = 20
ROUNDS_OF_CHAOS = 200
PARTITIONS = 10_000


@pytest.fixture
def rounds(cluster: ClusterProcess, tmp_path: Path) -> Iterator[Rounds]:
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS)
        client.create_topic(MEMBERS_TOPIC, MEMBERS_PARTITIONS)
    found = Rounds(cluster, tmp_path)
    try:
        found.start_members()
        yield found
    finally:
        found.kill_members()


@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("count", [ROUNDS, pytest.param(ROUNDS_OF_CHAOS, marks=pytest.mark.slow)])
def test_no_acknowledged_commit_is_lost_and_no_partition_has_two_owners(
    rounds: Rounds, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(count):
        rounds.run_round(Fault.PAUSE if number % 4 == 3 else Fault.KILL)
    rounds.check_members()
    rounds.check_logs()
    compared = compare([str(node.data) for node in rounds.cluster.nodes])
    assert compared.ok, "\n".join(comparison_text(compared))
    with capsys.disabled():
        print(f"\n{rounds.outages}")
