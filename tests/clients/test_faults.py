"""Each kind of fault on steady heartbeats of confluent-kafka; the situations are in `situations`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.launching.launcher import NodeProcess
from quorate.app import run
from quorate.http_client import ask_json
from tests.report import count_fault
from tests.support.polled_consumers import Crowd, PolledConsumer
from tests.support.waiting import wait_for

NUM_PARTITIONS = 12
BEATS = ("--api", "ConsumerGroupHeartbeat")


class Faults:
    """Faults on the requests of one group, set by the command."""

    def __init__(self, url: str, group: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._url = url
        self._group = group
        self._capsys = capsys

    def add(self, *words: str) -> int:
        assert run(["faults", "add", *words, "--group", self._group, "--url", self._url, "--json"]) == 0
        return int(json.loads(self._capsys.readouterr().out)["fault"]["id"])

    def wait_applied(self, fault_id: int, times: int) -> None:
        def applied() -> int:
            faults: list[dict[str, Any]] = ask_json(self._url + "/v1/faults", 5)["faults"]
            return int(next(fault["applied"] for fault in faults if fault["id"] == fault_id))

        wait_for(lambda: applied() >= times, "a fault that is applied")
        count_fault("clients", "fault on demand")

    def members(self) -> list[dict[str, Any]]:
        group: dict[str, Any] = ask_json(f"{self._url}/v1/groups/{self._group}", 5)["group"]
        members: list[dict[str, Any]] = group["members"]
        return members


@pytest.fixture
def faults(node: NodeProcess, group: str, capsys: pytest.CaptureFixture[str]) -> Iterator[Faults]:
    yield Faults(node.url, group, capsys)
    assert run(["faults", "clear", "--url", node.url]) == 0


@pytest.fixture
def member(crowd: Crowd) -> PolledConsumer:
    """The only member, with everything assigned."""
    joined = crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    return joined


def goes_on(faults: Faults, crowd: Crowd) -> None:
    """Check that the group has the open consumers as its members, that they share everything, and commit."""
    crowd.wait_balanced(NUM_PARTITIONS)
    consumers = [one for one in crowd.members if not one.closed]
    crowd.wait("the group to have no other member", lambda: len(faults.members()) == len(consumers))
    for one in consumers:
        one.commit(dict.fromkeys(one.owned, 5))


@pytest.mark.parametrize(
    "words",
    [
        ("delay", "700ms", "--times", "2"),
        ("drop", "--times", "1"),
        ("drop", "--delay", "700ms", "--times", "1"),
        ("close", "--times", "1"),
        ("silence", "--times", "1"),
        ("throttle", "1s", "--times", "2"),
        ("error", "COORDINATOR_NOT_AVAILABLE", "--times", "1"),
        ("error", "NOT_COORDINATOR", "--rate", "0.5", "--seed", "3", "--times", "2"),
    ],
    ids=" ".join,
)
def test_a_fault_on_steady_heartbeats_takes_no_partition_away(
    words: tuple[str, ...], faults: Faults, member: PolledConsumer, crowd: Crowd
) -> None:
    fault = faults.add(*words, *BEATS)
    faults.wait_applied(fault, int(words[-1]))
    beats = faults.members()[0]["last_heartbeat_ms"]
    crowd.wait("a heartbeat after the fault", lambda: faults.members()[0]["last_heartbeat_ms"] > beats)
    goes_on(faults, crowd)
    assert not member.lost
    assert not member.errors
