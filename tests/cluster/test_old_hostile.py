"""Hostile clients of the older protocols' listeners: closed or answered, and others notice nothing."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.kafka.connection_table import FIRST_REQUEST_MS
from lineage.push.messages import (
    TEXT_BYTES_MAX,
    CommandResponse,
    LookupRequest,
    PingResponse,
    decode_lookup_response,
    frame,
)
from lineage.rewrite.errors import RewriteError
from lineage.rewrite.messages import (
    CommitPartition,
    CommitTopic,
    ConsumerMetadataRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    decode_response,
    encode_request,
)
from records import shard_of
from tests.cluster.old_protocols import PING_MS, PUSH_PORT, REWRITE_PORT, SESSION_MS, OldNodes
from tests.cluster.old_strangers import Stranger, listeners, register
from tests.report import count_fault
from tests.support.three_nodes import GROUP

PORTS = [PUSH_PORT, REWRITE_PORT]
GOOD = {
    PUSH_PORT: frame(LookupRequest(group_id=GROUP)),
    REWRITE_PORT: encode_request(1, "stranger", ConsumerMetadataRequest(group_id=GROUP)),
}


@pytest.fixture
def nodes(caplog: pytest.LogCaptureFixture) -> Iterator[OldNodes]:
    """Two groups that are well, and must be well at the end, on nodes that log no failure."""
    made = OldNodes()
    made.push("bystander")
    made.rewrite("other", group_id="others")
    made.wait(lambda: owners_are_well(made))
    yield made
    assert owners_are_well(made)
    assert not [one for one in caplog.records if one.exc_info]
    assert all(machine.is_up for machine in made.cluster.machines.values())


def owners_are_well(nodes: OldNodes) -> bool:
    return all(sorted(names) == ["bystander", "other"] for names in nodes.owners().values()) and bool(
        nodes.owners()
    )


def kept(nodes: OldNodes) -> dict[str, int]:
    """The sizes of all tables of all nodes."""
    found: dict[str, int] = {}
    for one in listeners(nodes):
        assert one._push is not None
        assert one._rewrite is not None
        sizes: list[tuple[str, Any]] = [("registered", one._push._registered)]
        for service in (one._push, one._rewrite):
            sizes += [("connections", service.listener.connections), ("new", service.listener._newcomers)]
        for shard in one._push._shards:
            for name in ("_groups", "_timers", "_lines", "_group_of", "_events", "_said", "_moments"):
                sizes.append((f"push{name}", getattr(shard, name)))
        for other in one._rewrite._shards:
            sizes += [
                ("live", other._coordinator._groups),
                ("deadlines", other._coordinator._deadlines._heap),
            ]
        for name, table in sizes:
            found[name] = found.get(name, 0) + len(table)
    return {name: size for name, size in found.items() if size}


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("seed", range(10))
def test_random_bytes_are_answered_or_closed(nodes: OldNodes, port: int, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(20):
        stranger = Stranger(nodes, port)
        for _ in range(chance.randrange(1, 5)):
            stranger.send(chance.randbytes(chance.randrange(1, 200)))
        body = struct.pack(">hh", chance.choice([0, 1, 8, 10, 11, 12]), chance.randrange(3))
        body += chance.randbytes(chance.randrange(60))
        other = Stranger(nodes, port)
        other.send(struct.pack(">i", len(body)) + body)
        nodes.world.run_for(20)
    count_fault("cluster", "hostile connection of an old protocol", 40)
    nodes.world.run_for(FIRST_REQUEST_MS + 1_000)


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, (4 << 20) + 1])
def test_impossible_sizes_close_at_once(nodes: OldNodes, port: int, size: int) -> None:
    stranger = Stranger(nodes, port)
    stranger.send(struct.pack(">i", size))
    nodes.world.run_for(100)
    assert stranger.is_lost


@pytest.mark.parametrize("port", PORTS)
def test_frames_of_nothing_and_of_an_unknown_type_close(nodes: OldNodes, port: int) -> None:
    for body in (b"", b"\x00", b"\x7f\xff", b"\x00\x02", b"\x00\x08\x00\x09" + bytes(20)):
        stranger = Stranger(nodes, port)
        stranger.send(struct.pack(">i", len(body)) + body)
        nodes.world.run_for(50)
        assert stranger.is_lost


@pytest.mark.parametrize("port", PORTS)
def test_a_frame_in_pieces_of_one_byte_is_served_and_a_cut_one_is_not(nodes: OldNodes, port: int) -> None:
    whole, cut = Stranger(nodes, port), Stranger(nodes, port)
    for place in range(len(GOOD[port])):
        whole.send(GOOD[port][place : place + 1])
    cut.send(GOOD[port][:-1])
    nodes.world.run_for(100)
    assert len(whole.frames) == 1
    assert not cut.frames
    nodes.world.run_for(FIRST_REQUEST_MS + 1_000)
    assert cut.is_lost


@pytest.mark.parametrize("port", PORTS)
def test_thousands_of_frames_in_one_read_are_all_answered(nodes: OldNodes, port: int) -> None:
    stranger = Stranger(nodes, port)
    stranger.send(GOOD[port] * 5_000)
    nodes.wait(lambda: len(stranger.frames) == 5_000)


@pytest.mark.parametrize(
    "answers",
    [
        [frame(CommandResponse(error_code=0))] * 3,
        [frame(CommandResponse(error_code=7))],
        [frame(PingResponse(num_partition=3), 1)],
        [frame(register("again"))],
        [frame(CommandResponse(error_code=0)), frame(PingResponse(num_partition=9), 1)],
        [struct.pack(">i", 40) + bytes(40)],
    ],
)
def test_a_registered_consumer_that_answers_wrongly_is_removed(nodes: OldNodes, answers: list[bytes]) -> None:
    stranger = Stranger(nodes, PUSH_PORT)
    stranger.send(frame(register("stranger")) + b"".join(answers))
    nodes.wait(lambda: stranger.is_lost, within_ms=20 * PING_MS)
    nodes.wait(lambda: owners_are_well(nodes))
    nodes.world.run_for(2 * PING_MS)


def test_a_consumer_that_never_answers_costs_the_others_one_round(nodes: OldNodes) -> None:
    stranger = Stranger(nodes, PUSH_PORT)
    stranger.send(frame(register("stranger")))
    nodes.wait(lambda: stranger.is_lost, within_ms=4 * PING_MS)
    nodes.wait(lambda: owners_are_well(nodes), within_ms=2 * PING_MS)


def test_the_longest_strings_are_taken(nodes: OldNodes) -> None:
    longest = "x" * TEXT_BYTES_MAX
    looking = Stranger(nodes, PUSH_PORT)
    looking.send(frame(LookupRequest(group_id=longest)))
    nodes.wait(lambda: bool(looking.frames))
    assert decode_lookup_response(looking.frames[0]).error_code
    for name, group_id in ((longest, GROUP), (longest + "x", GROUP), ("c", longest + "x"), ("", GROUP)):
        stranger = Stranger(nodes, PUSH_PORT)
        stranger.send(frame(register(name, group_id)))
        nodes.world.run_for(100)
        assert stranger.is_lost == (name is not longest)
        stranger.leave()
    for group_id in ("g" * 1_025, "g" * 32_000):
        request = JoinGroupRequest(
            group_id=group_id, session_timeout=1_000, topics=["orders"], partition_assignment_strategy="range"
        )
        codes = {Stranger(nodes, REWRITE_PORT, one).ask(request).error_code for one in (1, 2, 3)}
        assert codes == {RewriteError.INVALID_REQUEST, RewriteError.NOT_COORDINATOR_FOR_GROUP}
    joining = Stranger(nodes, REWRITE_PORT)
    request.group_id = next(f"g{number}" for number in range(99) if shard_of(f"g{number}", 4) == nodes.shard)
    nodes.wait(lambda: not joining.ask(request, "c" * 32_000).error_code)
    nodes.wait(lambda: owners_are_well(nodes))


def test_a_group_of_consumers_that_ask_for_much_stops_no_node(nodes: OldNodes) -> None:
    """All of their wishes would be more than an entry may have."""
    strangers = []
    nodes.world.run_for(1_000)  # every shard has loaded its groups
    group_id = "g" * 1_000
    node_id = nodes.cluster.wait_for_leader(shard_of(group_id, 4))
    for number in range(300):
        stranger = Stranger(nodes, REWRITE_PORT, node_id)
        topics = [f"{number:03}-{other:03}-" + "x" * 240 for other in range(30)]
        request = JoinGroupRequest(
            group_id=group_id, session_timeout=1_000, topics=topics, partition_assignment_strategy="range"
        )
        stranger.send(encode_request(1, "c" * 400, request))
        strangers.append(stranger)
    nodes.world.run_for(3_000)
    codes = {decode_response(request, one.frames[0])[1].error_code for one in strangers if one.frames}  # type: ignore[attr-defined]
    assert RewriteError.GROUP_TOO_LARGE in codes
    assert not any(one.is_lost and not one.frames for one in strangers)


def test_a_commit_of_one_partition_again_and_again_stops_no_node(nodes: OldNodes) -> None:
    group_id = next(
        f"{number}-{'g' * 1_000}"
        for number in range(99)
        if shard_of(f"{number}-{'g' * 1_000}", 4) == nodes.shard
    )
    stranger = Stranger(nodes, REWRITE_PORT)
    join = JoinGroupRequest(
        group_id=group_id, session_timeout=1_000, topics=["orders"], partition_assignment_strategy="range"
    )
    joined = stranger.ask(join)
    for count, code in ((40_000, RewriteError.INVALID_COMMIT_OFFSET_SIZE), (5_000, RewriteError.NONE)):
        request = OffsetCommitRequest(
            group_id=group_id,
            group_generation_id=joined.group_generation_id,
            consumer_id=joined.consumer_id,
            topics=[CommitTopic(topic="orders", partitions=[CommitPartition(partition=0, offset=1)] * count)],
        )
        answer = stranger.ask(request)
        assert {one.error_code for one in answer.topics[0].partitions} == {code}
    pushing = Stranger(nodes, PUSH_PORT)
    pushing.send(encode_request(1, "c", request))
    nodes.world.run_for(100)
    assert not pushing.is_lost
    request.topics[0].partitions *= 3
    pushing.send(encode_request(1, "c", request))
    nodes.world.run_for(100)
    assert pushing.is_lost, "more partitions than a consumer may have"


def test_a_consumer_with_a_long_ping_interval_is_not_idle(nodes: OldNodes) -> None:
    patient = nodes.push("patient", group_id=GROUP)
    nodes.wait(lambda: nodes.is_shared({"bystander", "patient"}) or len(patient.positions) == 6)
    patient.quit()
    nodes.pushed.pop("patient")
    nodes.wait(lambda: owners_are_well(nodes))
    stranger = Stranger(nodes, PUSH_PORT)
    stranger.send(frame(register("stranger", ping_interval_ms=3_600_000)))
    nodes.wait(lambda: bool(stranger.frames))
    stranger.send(frame(CommandResponse(error_code=0)))
    nodes.wait(lambda: len(stranger.frames) == 2)
    stranger.send(frame(CommandResponse(error_code=0)))
    nodes.world.run_for(1_000)
    for one in listeners(nodes):
        assert one._push is not None
        one._push.listener._settings = type(one._push.listener._settings)(connections_max_idle_ms=1_000)
        one._push.listener.sweep()
    nodes.world.run_for(10_000)
    assert not stranger.is_lost
    stranger.leave()
    nodes.wait(lambda: owners_are_well(nodes))


def test_connections_that_send_nothing_make_room_for_consumers() -> None:
    nodes = OldNodes(settings={"max_connections": 50})
    for port in PORTS:
        for _ in range(200):
            Stranger(nodes, port)
    count_fault("cluster", "silent connection of an old protocol", 400)
    nodes.push("a")
    nodes.rewrite("b", group_id="others")
    nodes.wait(lambda: sorted(nodes.owners().get(("orders", 0), [])) == ["a", "b"])


def test_nothing_is_kept_of_clients_that_are_gone() -> None:
    nodes = OldNodes()
    for number in range(5):
        nodes.push(f"p{number}")
        nodes.rewrite(f"r{number}", group_id="others")
    nodes.wait(
        lambda: (
            nodes.is_shared({f"p{one}" for one in range(5)} | {f"r{one}" for one in range(5)})
            or all(len(names) == 2 for names in nodes.owners().values())
        )
    )
    joining = {node_id: Stranger(nodes, REWRITE_PORT, node_id) for node_id in (1, 2, 3)}
    for number in range(100):
        group_id = f"group-{number}"
        leader = nodes.cluster.wait_for_leader(shard_of(group_id, 4))
        request = JoinGroupRequest(
            group_id=group_id, session_timeout=1_000, topics=["orders"], partition_assignment_strategy="range"
        )
        nodes.wait(lambda request=request, leader=leader: not joining[leader].ask(request).error_code)
        stranger = Stranger(nodes, PUSH_PORT)
        stranger.send(frame(register(f"stranger-{number}")))
        if number % 2:
            stranger.leave()
    assert kept(nodes)["live"] == 101
    for name in list(nodes.hosts):
        nodes.kill_client(name)
    nodes.world.run_for(6 * SESSION_MS)
    for one in joining.values():
        one.leave()
    nodes.world.run_for(1_000)
    assert kept(nodes) == {}


def test_heartbeats_of_strangers_begin_no_rebalance(nodes: OldNodes) -> None:
    stranger = Stranger(nodes, REWRITE_PORT, nodes.cluster.wait_for_leader(shard_of("others", 4)))
    for generation in (-1, 0, 1, 2**31 - 1):
        beat = HeartbeatRequest(group_id="others", group_generation_id=generation, consumer_id="nobody")
        assert stranger.ask(beat).error_code == RewriteError.UNKNOWN_CONSUMER
