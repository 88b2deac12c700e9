"""A client of ours with assignors of its own, over the wire, against one real node and against three.

Every branch of the rules is in `tests/kip848/test_h1_clientside*.py`; the bytes, the listener, the fast path
and a leader killed in the middle are tested here.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from client_assignor_member import Assign, ClientAssignorMember, CoordinatorRefused
from confluent_kafka import Consumer

from benchmarks.raw import Address, RawGroup
from client.core.member.fields import on_the_wire
from cluster.launching.launcher import ClusterProcess, NodeProcess, launch_cluster
from quorate.client import Client
from quorate.connection import ClientConnection, ConnectionLost
from tests.report import count_fault
from tests.support.computing_client import dealt_round, offer, part
from wire.apis import API_VERSIONS, ApiKey, is_private
from wire.errors import ErrorCode
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.protocol import decode_response, encode_request

pytestmark = pytest.mark.failover  # nodes of real clusters are killed

WITHIN_S = 60.0
SETTINGS = {
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.heartbeat.interval.ms": "500",
}


def address_of(node: NodeProcess) -> Address:
    return node.host, node.port


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ClusterProcess]:
    started = launch_cluster(tmp_path / "cluster", num_nodes=3, settings=SETTINGS)
    try:
        yield started
    finally:
        started.kill()


class Fleet:
    """Members that send each request one at a time, whatever happens to the nodes."""

    def __init__(self, nodes: Sequence[Address], group_id: str, topics: Sequence[str]) -> None:
        self.nodes, self.group_id, self.topics = nodes, group_id, topics
        self.members: list[ClientAssignorMember] = []

    def join(self, assign: Assign = dealt_round, **fields: Any) -> ClientAssignorMember:
        member = ClientAssignorMember(
            self.nodes, self.group_id, self.topics, [on_the_wire(offer())], assign, **fields
        )
        self.members.append(member)
        member.heartbeat()
        return member

    def turn(self, *, computes: bool = True) -> None:
        for member in self.members:
            try:
                member.heartbeat()
                if computes:
                    member.compute()
            except (ConnectionLost, CoordinatorRefused):
                continue

    def until(self, condition: Callable[[], object], what: str, *, computes: bool = True) -> None:
        deadline_s = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline_s, f"not within {WITHIN_S:.0f} s: {what}"
            self.turn(computes=computes)

    def sizes(self) -> list[int]:
        return sorted(sum(map(len, member.owned.values())) for member in self.members)

    def all_owned(self) -> list[tuple[bytes, int]]:
        return sorted(
            (topic_id, one)
            for member in self.members
            for topic_id, numbers in member.owned.items()
            for one in numbers
        )

    def close(self) -> None:
        for member in self.members:
            member.close()


def fleet_of(nodes: Sequence[NodeProcess], group: str, topic: str) -> Fleet:
    return Fleet([address_of(node) for node in nodes], group, [topic])


def test_members_compute_for_themselves(
    node: NodeProcess, group: str, new_topic: Callable[[int], str]
) -> None:
    """Two members share 7 partitions by their own assignor; a third joins, one leaves."""
    fleet = fleet_of([node], group, new_topic(7))
    fleet.join()
    fleet.join()
    fleet.until(lambda: fleet.sizes() == [3, 4], "two share")
    fleet.join()
    fleet.until(lambda: fleet.sizes() == [2, 2, 3], "three share")
    assert len(set(fleet.all_owned())) == 7
    fleet.members.pop().leave()
    fleet.until(lambda: fleet.sizes() == [3, 4], "two share again")
    fleet.close()


def test_metadata_and_errors_reach_the_members(
    node: NodeProcess, group: str, new_topic: Callable[[int], str]
) -> None:
    fleet = fleet_of([node], group, new_topic(4))

    def assign(shown: Any) -> list[Any]:
        return [
            part(one.member_id, error=9, version=0, metadata=one.member_id.encode()) for one in shown.members
        ]

    a = fleet.join(assign)
    fleet.until(lambda: a.told.error == 9, "the error arrives")
    assert (a.owned, a.told.metadata_bytes.decode()) == ({}, a.member_id)
    fleet.close()


def test_pending_partitions_over_the_wire(
    node: NodeProcess, group: str, new_topic: Callable[[int], str]
) -> None:
    fleet = fleet_of([node], group, new_topic(4))
    a = fleet.join()
    fleet.until(lambda: fleet.sizes() == [4], "one has all")
    b = fleet.join()
    a.heartbeat()
    for member in (a, b):
        member.compute()
    b.heartbeat()
    assert (b.owned, sum(map(len, b.pending.values()))) == ({}, 2)
    fleet.until(lambda: fleet.sizes() == [2, 2], "both have half")
    assert b.pending == {}
    fleet.close()


def test_refusals_over_the_wire(node: NodeProcess, group: str, new_topic: Callable[[int], str]) -> None:
    """The errors are 69, 25, 113, 25 and INVALID_ASSIGNMENT; the member goes on after each."""
    fleet = fleet_of([node], group, new_topic(4))
    a = fleet.join()

    def refused(call: Callable[[], object]) -> int:
        with pytest.raises(CoordinatorRefused) as caught:
            call()
        return caught.value.code

    nobody = ClientAssignorMember(
        fleet.nodes, f"{group}-x", fleet.topics, [on_the_wire(offer())], dealt_round
    )
    assert refused(nobody.prepare) == ErrorCode.GROUP_ID_NOT_FOUND
    nobody.group_id = group
    assert refused(nobody.prepare) == ErrorCode.UNKNOWN_MEMBER_ID
    epoch, a.epoch = a.epoch, 77
    assert refused(a.prepare) == ErrorCode.STALE_MEMBER_EPOCH
    a.epoch = epoch
    shown = a.prepare()
    assert refused(lambda: a.install(shown.group_epoch, [part("x")])) == ErrorCode.INVALID_ASSIGNMENT
    assert refused(a.prepare) == ErrorCode.UNKNOWN_MEMBER_ID
    a.must_compute = False
    fleet.until(lambda: fleet.sizes() == [4], "the server assignor computed")
    nobody.close()
    fleet.close()


def test_a_stock_consumer_in_the_same_group(
    node: NodeProcess, bootstrap: str, group: str, new_topic: Callable[[int], str]
) -> None:
    """While the stock consumer is a member the server assignor computes; after it left, a member does."""
    topic = new_topic(6)
    fleet = fleet_of([node], group, topic)
    asked: list[int] = []

    def assign(shown: Any) -> list[Any]:
        asked.append(shown.group_epoch)
        return dealt_round(shown)

    fleet.join(assign)
    fleet.until(lambda: fleet.sizes() == [6], "alone")
    before = len(asked)
    stock = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"})
    stock.subscribe([topic])
    deadline_s = time.monotonic() + WITHIN_S
    while len(stock.assignment()) != 3:
        stock.poll(0.05)
        fleet.turn()
        assert time.monotonic() < deadline_s
    assert (fleet.sizes(), len(asked)) == ([3], before)
    stock.close()
    fleet.until(lambda: fleet.sizes() == [6] and len(asked) > before, "alone again")
    fleet.close()


def test_describe_names_the_assignor(node: NodeProcess, group: str, new_topic: Callable[[int], str]) -> None:
    fleet = fleet_of([node], group, new_topic(2))
    fleet.join()
    fleet.until(lambda: fleet.sizes() == [2], "alone")
    raw = RawGroup([address_of(node)], group)
    described = raw.ask(
        ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(group_ids=[group])
    ).groups[0]
    assert (described.assignor_name, described.group_state) == ("warm", "Stable")
    raw.close()
    fleet.close()


def test_only_our_own_software_is_told_of_the_extensions(node: NodeProcess) -> None:
    connection = ClientConnection(*address_of(node), time.monotonic() + 5)
    told = set(connection._served)
    assert {key for key in API_VERSIONS if is_private(key)} <= told
    request = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.3.0")
    connection.socket.sendall(encode_request(ApiKey.API_VERSIONS, 4, 9, "stock", request))
    _, answer = decode_response(ApiKey.API_VERSIONS, 4, connection._receive(time.monotonic() + 5))
    assert not [key.api_key for key in answer.api_keys if is_private(key.api_key)]
    connection.close()


@pytest.mark.timeout(180)
def test_the_leader_dies_between_prepare_and_install(three: ClusterProcess) -> None:
    """Volatile state is rebuilt: what the dead leader had prepared cannot be installed.

    The heartbeat names the member that is to compute now, and the group gets its target.
    """
    with Client(three.bootstrap) as client:
        client.create_topic("orders", 8)
    nodes = [address_of(node) for node in three.nodes]
    fleet = Fleet(nodes, "computing", ["orders"])
    fleet.join()
    fleet.join()
    fleet.until(lambda: fleet.sizes() == [4, 4], "two share")
    third = fleet.join()
    fleet.until(lambda: any(one.must_compute for one in fleet.members), "somebody is told", computes=False)
    chosen = next(one for one in fleet.members if one.must_compute)
    shown = chosen.prepare()
    raw = RawGroup(nodes, "computing")
    leader = raw.until_accepted(raw.find)
    raw.close()
    next(node for node in three.nodes if address_of(node) == leader).kill()
    count_fault("clients", "kill -9 of the leader between Prepare and Install")
    codes: list[int] = []
    deadline_s = time.monotonic() + WITHIN_S
    while ErrorCode.UNKNOWN_MEMBER_ID not in codes:
        assert time.monotonic() < deadline_s, codes
        try:
            chosen.install(shown.group_epoch, dealt_round(shown))
        except CoordinatorRefused as refused:
            codes.append(refused.code)
        except ConnectionLost:
            continue
        else:
            raise AssertionError("the new leader installed what it had not shown")
    fleet.until(lambda: fleet.sizes() == [2, 3, 3], "three share at the new leader")
    assert len(set(fleet.all_owned())) == 8
    assert third.owned
    fleet.close()


@pytest.mark.timeout(180)
def test_the_chosen_member_dies(three: ClusterProcess) -> None:
    """The chosen member is killed: another is chosen after its rebalance timeout."""
    with Client(three.bootstrap) as client:
        client.create_topic("orders", 6)
    fleet = Fleet([address_of(node) for node in three.nodes], "orphans", ["orders"])
    fleet.join(rebalance_timeout_ms=1_500)
    fleet.join(rebalance_timeout_ms=1_500)
    fleet.until(lambda: fleet.sizes() == [3, 3], "two share")
    fleet.join(rebalance_timeout_ms=1_500)
    fleet.until(lambda: any(one.must_compute for one in fleet.members), "somebody is told", computes=False)
    chosen = next(one for one in fleet.members if one.must_compute)
    fleet.members.remove(chosen)
    chosen.close()
    fleet.until(lambda: any(one.must_compute for one in fleet.members), "another is told", computes=False)
    fleet.until(lambda: fleet.sizes() == [3, 3], "the two that are left share it all, once it has expired")
    fleet.close()


def test_the_example_weighs(node: NodeProcess, group: str, new_topic: Callable[[int], str]) -> None:
    """examples/client_side_assignor.py: weights 3 and 1 share 8 partitions 6 to 2."""
    path = Path(__file__).parents[2] / "examples" / "client_side_assignor.py"
    spec = importlib.util.spec_from_file_location("client_side_assignor", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    fleet = fleet_of([node], group, new_topic(8))
    for weight in (3, 1):
        member = ClientAssignorMember(
            fleet.nodes,
            group,
            fleet.topics,
            [on_the_wire(offer("weighted", metadata=bytes([weight])))],
            example.share_out,
        )
        fleet.members.append(member)
    fleet.until(lambda: fleet.sizes() == [2, 6], "3 to 1")
    fleet.close()
