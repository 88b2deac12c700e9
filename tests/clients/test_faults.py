"""What a confluent-kafka consumer makes of each fault, and of the situations of docs/testing-clients.md."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException

from cluster.launching.launcher import NodeProcess
from quorate.app import run
from quorate.client import Client
from quorate.http_client import ask_json
from tests.report import count_fault
from tests.support.polled_consumers import Crowd, PolledConsumer
from tests.support.waiting import wait_for

NUM_PARTITIONS = 12
BEATS = ("--api", "ConsumerGroupHeartbeat")
COMMITS = ("--api", "OffsetCommit")


class Faults:
    """Faults on the requests of one group, set by the command."""

    def __init__(self, url: str, group: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._url = url
        self._group = group
        self._capsys = capsys

    def add(self, *words: str) -> int:
        assert run(["faults", "add", *words, "--group", self._group, "--url", self._url, "--json"]) == 0
        return int(json.loads(self._capsys.readouterr().out)["fault"]["id"])

    def shown(self, fault_id: int) -> dict[str, Any]:
        faults: list[dict[str, Any]] = ask_json(self._url + "/v1/faults", 5)["faults"]
        return next(fault for fault in faults if fault["id"] == fault_id)

    def applied(self, fault_id: int) -> int:
        return int(self.shown(fault_id)["applied"])

    def wait_applied(self, fault_id: int, times: int = 1) -> None:
        wait_for(lambda: self.applied(fault_id) >= times, 20)
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


# Each kind of fault, on a steady heartbeat.


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


# The situations.


def test_a_lost_join_reply_leaves_one_member(faults: Faults, crowd: Crowd) -> None:
    fault = faults.add("drop", *BEATS, "--times", "1")
    crowd.join()
    faults.wait_applied(fault)
    goes_on(faults, crowd)


def test_an_acknowledged_revocation_whose_reply_is_lost_is_acknowledged_again(
    faults: Faults, member: PolledConsumer, crowd: Crowd
) -> None:
    added: list[int] = []

    def lose() -> None:
        added.append(faults.add("drop", *BEATS, "--member", member.member_id, "--times", "1"))

    member.while_revoking = lose
    crowd.join()
    goes_on(faults, crowd)
    (fault,) = added
    faults.wait_applied(fault)
    goes_on(faults, crowd)
    assert not member.lost


def test_a_commit_whose_reply_is_lost_is_sent_again(
    faults: Faults, member: PolledConsumer, crowd: Crowd
) -> None:
    fault = faults.add("drop", *COMMITS, "--times", "1")
    member.commit({0: 77})
    assert faults.applied(fault) == 1
    assert member.committed([0]) == {0: (77, "m0")}
    goes_on(faults, crowd)


def test_a_member_fenced_in_the_middle_of_a_revocation_loses_the_rest_and_joins_again(
    faults: Faults, member: PolledConsumer, crowd: Crowd
) -> None:
    def fence() -> None:
        member.while_revoking = lambda: None
        fence_once = ("error", "FENCED_MEMBER_EPOCH", *BEATS, "--times", "1")
        faults.wait_applied(faults.add(*fence_once, "--member", member.member_id))

    member.while_revoking = fence
    crowd.join()
    goes_on(faults, crowd)
    assert member.lost
    assert not member.errors


def test_a_coordinator_that_moved_twice_is_found_again(
    faults: Faults, member: PolledConsumer, crowd: Crowd
) -> None:
    fault = faults.add("error", "NOT_COORDINATOR", *BEATS, "--times", "2")
    faults.wait_applied(fault, 2)
    goes_on(faults, crowd)
    assert not member.lost


def test_while_the_coordinator_loads_commits_are_refused_and_the_member_stays(
    faults: Faults, member: PolledConsumer, crowd: Crowd
) -> None:
    """For 2 s instead of 10, because a session of these nodes lasts 3 s."""
    apis = "ConsumerGroupHeartbeat,OffsetCommit,OffsetFetch"
    fault = faults.add("error", "COORDINATOR_LOAD_IN_PROGRESS", "--api", apis, "--for", "2s")
    with pytest.raises(KafkaException, match="COORDINATOR_LOAD_IN_PROGRESS"):
        member.commit({0: 8})
    faults.wait_applied(fault, 2)
    wait_for(lambda: faults.shown(fault)["has_ended"], 20)
    goes_on(faults, crowd)
    assert not member.lost


def test_a_group_that_is_not_found_is_a_fatal_error(
    faults: Faults, member: PolledConsumer, crowd: Crowd
) -> None:
    faults.wait_applied(faults.add("error", "GROUP_ID_NOT_FOUND", *BEATS, "--times", "1"))
    crowd.wait("the error", lambda: "The group id does not exist" in str(member.errors))
    assert "Fatal" in member.errors[0]


def test_an_instance_id_that_is_not_released_is_a_fatal_error(faults: Faults, crowd: Crowd) -> None:
    fault = faults.add("error", "UNRELEASED_INSTANCE_ID", *BEATS, "--times", "1")
    member = crowd.join(**{"group.instance.id": "web-1"})
    faults.wait_applied(fault)
    crowd.wait("the error", lambda: "instance ID is still used" in str(member.errors))
    assert "Fatal" in member.errors[0]
    assert not member.owned


def test_a_commit_with_a_stale_epoch_fails_and_the_next_one_does_not(
    faults: Faults, member: PolledConsumer, crowd: Crowd
) -> None:
    faults.add("error", "STALE_MEMBER_EPOCH", *COMMITS, "--times", "1")
    with pytest.raises(KafkaException, match="STALE_MEMBER_EPOCH"):
        member.commit({0: 77})
    goes_on(faults, crowd)


def test_a_topic_that_is_deleted_during_a_revocation_is_given_up_by_members_that_stay(
    faults: Faults, member: PolledConsumer, crowd: Crowd, client: Client, topic: str
) -> None:
    def delete() -> None:
        member.while_revoking = lambda: None
        client.delete_topic(topic)

    member.while_revoking = delete
    other = crowd.join()
    crowd.wait("giving everything up", lambda: not member.owned and not other.owned)
    crowd.wait("both to stay members", lambda: len(faults.members()) == 2)
    assert not member.lost


def test_a_member_whose_heartbeats_are_throttled_stays_and_does_not_wait(
    faults: Faults, member: PolledConsumer, crowd: Crowd
) -> None:
    """A client that waits would send three in 4 s; this one keeps its interval of half a second."""
    began_s = time.monotonic()
    faults.wait_applied(faults.add("throttle", "2s", *BEATS, "--times", "3"), 3)
    assert time.monotonic() - began_s < 4
    goes_on(faults, crowd)
    assert not member.lost
