"""Leaders are killed, stopped and cut off under committing clients: nothing is lost, nothing is owned twice.

`rounds` describes a round, and why it would detect a loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.launching.launcher import ClusterProcess
from history.checking.compare import compare, comparison_text
from quorate.client import Client
from tests.failover.mesh import Meshed
from tests.failover.rounds import MEMBERS_PARTITIONS, MEMBERS_TOPIC, TOPIC, Fault, Rounds

ROUNDS = 20
ROUNDS_OF_CHAOS = 200
ROUNDS_OF_CUTS = 4
CUTS_OF_CHAOS = 40
PARTITIONS = 10_000


@contextmanager
def living(found: Rounds) -> Iterator[Rounds]:
    """The rounds with their consumers, which are ended after the test."""
    with Client(found.cluster.bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS)
        client.create_topic(MEMBERS_TOPIC, MEMBERS_PARTITIONS)
    try:
        found.start_members()
        found.start_movers()
        yield found
    finally:
        found.kill_members()
        found.stop_movers()


def check(rounds: Rounds) -> None:
    rounds.check_members()
    rounds.check_movers()
    rounds.check_logs()
    compared = compare([str(node.data) for node in rounds.cluster.nodes])
    assert compared.ok, "\n".join(comparison_text(compared))


@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("count", [ROUNDS, pytest.param(ROUNDS_OF_CHAOS, marks=pytest.mark.slow)])
def test_no_acknowledged_commit_is_lost_and_no_partition_has_two_owners(
    cluster: ClusterProcess, tmp_path: Path, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with living(Rounds(cluster, tmp_path)) as rounds:
        rounds.run([Fault.KILL, Fault.KILL, Fault.KILL, Fault.PAUSE], count)
        check(rounds)
    with capsys.disabled():
        print(f"\n{rounds.outages}")


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("count", [ROUNDS_OF_CUTS, pytest.param(CUTS_OF_CHAOS, marks=pytest.mark.slow)])
def test_the_same_when_the_leader_lives_on_without_its_peers(
    meshed: Meshed, tmp_path: Path, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its clients still reach it, and every answer it gives them must be true."""
    with living(Rounds(meshed.cluster, tmp_path, meshed)) as rounds:
        rounds.run([Fault.CUT], count)
        check(rounds)
    with capsys.disabled():
        print(f"\n{rounds.outages}")
