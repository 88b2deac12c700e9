"""The detectors, with injected damage, on whole nodes. Damage on one disk or in one memory stops that node,
which says where, and no other node's members notice; without a right majority no node serves the shard.
"""

from __future__ import annotations

import re
from typing import Final

from cluster.runtime.shard_state import ShardState
from cluster.simulator import Machine
from coordinator.shard import GroupShard
from raftlog.env.simulated_files import Crash
from raftlog.storage.frames import HEADER, HEADER_BYTES, encode_frame
from raftlog.storage.segments import LAGGING_GROUP_BYTES
from tests.report import count_fault
from tests.support.three_nodes import ThreeNodes

ACTIVE: Final = "/data/shard-0/00000000000000000001.log"
HASH: Final = "[0-9a-f]{16,}"


def fault(kind: str) -> None:
    count_fault("simulated", kind)


def flip_in_memory(nodes: ThreeNodes, node_id: int) -> None:
    """Flip one bit of a committed offset in the projection of one node."""
    machine = nodes.runtime(node_id).machine
    assert isinstance(machine, GroupShard)
    for offsets in machine.projection.offsets._groups.values():
        for key, value in offsets.items():
            offsets[key] = bytes([*value[:-1], value[-1] ^ 1])
    fault("flipped bit in memory")


def forge_a_frame(machine: Machine, index: int) -> None:
    """Replace an entry on a stopped node's disk by another one with a valid CRC, as a buggy writer would."""
    content = machine.disk.read(ACTIVE)
    at = 0
    while True:
        at = content.index(b"QFR1", at)
        _, _, length, count, found, term, commit_index, timestamp_ms = HEADER.unpack_from(content, at)
        if found == index:
            break
        at += HEADER_BYTES + length
    body = content[at + HEADER_BYTES : at + HEADER_BYTES + length]
    forged = encode_frame(index, term, commit_index - 1, timestamp_ms, count, body)
    file = machine.disk.open(ACTIVE, "w")
    file.pwrite(forged, at)
    file.fdatasync()
    file.close()
    fault("forged entry")


def assert_stopped_as_the_minority(nodes: ThreeNodes, node_id: int, what: str) -> None:
    """Assert that the node stopped, naming the entry and both hashes, and that the others serve."""
    message = nodes.cluster[node_id].host.fatal_message or ""
    found = re.search(rf"the {what} up to entry (\d+) have the hash ({HASH}) here and ({HASH}) on", message)
    assert found is not None, message
    assert found[2] != found[3]
    assert "--replace" in message
    leader = nodes.leader
    assert leader != node_id
    assert nodes.commit(leader, 77) == 0
    assert nodes.read(leader) == 77


def test_a_projection_that_differs_stops_its_node() -> None:
    nodes = ThreeNodes(11, num_shards=1)
    leader = nodes.leader
    nodes.commit_many(leader, 3)
    nodes.world.run_for(100)
    spoiled = nodes.cluster.others(leader)[0]
    flip_in_memory(nodes, spoiled)
    nodes.commit_many(leader, 70)
    nodes.cluster.wait_for(lambda: not nodes.cluster[spoiled].is_up, within_ms=3_000)
    assert_stopped_as_the_minority(nodes, spoiled, "state")


def test_a_leader_whose_projection_differs_stops() -> None:
    nodes = ThreeNodes(12, num_shards=1)
    leader = nodes.leader
    nodes.commit_many(leader, 3)
    nodes.world.run_for(100)
    flip_in_memory(nodes, leader)
    assert nodes.commit(leader, 5, partition=1) == 0
    nodes.cluster.wait_for(lambda: not nodes.cluster[leader].is_up, within_ms=3_000)
    assert_stopped_as_the_minority(nodes, leader, "state")


def test_another_entry_on_one_disk_stops_its_node() -> None:
    nodes = ThreeNodes(13, num_shards=1)
    leader = nodes.leader
    nodes.commit_many(leader, 70)
    machine = nodes.cluster[nodes.cluster.others(leader)[0]]
    machine.kill()
    forge_a_frame(machine, 20)
    machine.boot()
    nodes.cluster.wait_for(lambda: not machine.is_up, within_ms=5_000)
    assert_stopped_as_the_minority(nodes, machine.node_id, "committed entries")


def test_without_a_majority_that_agrees_the_shard_is_halted_and_says_so() -> None:
    nodes = ThreeNodes(14, num_shards=1)
    cluster, leader = nodes.cluster, nodes.leader
    away, spoiled = cluster.others(leader)
    nodes.commit_many(leader, 3)
    cluster[away].lose_power(Crash.LOST)
    fault("power failure")
    nodes.world.run_for(3_000)  # the links to it are closed: it is out of contact
    flip_in_memory(nodes, spoiled)
    assert nodes.commit(leader, 5, partition=1) == 0
    nodes.world.run_for(5_000)
    for node_id in (leader, spoiled):
        assert cluster[node_id].is_up
        status = next(one for one in cluster[node_id].node.status()["shards"] if one["shard"] == nodes.shard)
        assert status["log"]["state"] == "Halted"
        assert "no majority agrees on the hashes up to entry" in status["halted_reason"]
        assert nodes.runtime(node_id).state is ShardState.DOWN
        assert nodes.read(node_id) is None
    assert cluster.leader_of(-1) is not None, "other shards are served"


def test_a_damaged_entry_stops_its_node_with_file_and_offset() -> None:
    """A bit of an early entry is flipped; later entries prove that it was once whole."""
    nodes = ThreeNodes(6, num_shards=1)
    machine = nodes.cluster[nodes.leader]
    damaged = machine.disk.size(ACTIVE) + 50
    while machine.disk.size(ACTIVE) < damaged + 2 * LAGGING_GROUP_BYTES:
        nodes.commit_many(machine.node_id, 200)
    machine.kill()
    machine.disk.damage(ACTIVE, damaged)
    fault("flipped bit")
    machine.boot()
    nodes.world.run_for(3_000)
    message = machine.host.fatal_message or ""
    assert not machine.is_up
    named = re.search(rf"{ACTIVE}: byte (\d+)", message)
    assert named is not None, message
    assert 0 <= damaged - int(named[1]) < 400, "the beginning of the entry that has it"
    assert "no complete frame where entry" in message
    assert nodes.leader != machine.node_id


def test_a_damaged_entry_that_was_acknowledged_last_stops_its_node_too() -> None:
    """No later entry could prove that it was whole; the mark of what was synced does."""
    nodes = ThreeNodes(16, num_shards=1)
    leader = nodes.leader
    nodes.commit_many(leader, 20)
    assert nodes.commit(leader, 55) == 0
    nodes.world.run_for(100)
    hurt = nodes.cluster[nodes.cluster.others(leader)[0]]
    hurt.kill()
    hurt.disk.damage(ACTIVE, hurt.disk.size(ACTIVE) - 30)
    fault("flipped bit")
    hurt.boot()
    nodes.world.run_for(3_000)
    message = hurt.host.fatal_message or ""
    assert not hurt.is_up
    assert re.search(rf"{ACTIVE}: byte \d+: no complete frame where entry \d+ should be, though", message), (
        message
    )
    assert "were synced here" in message
    assert "quorate node format --replace" in message
    assert nodes.read(nodes.leader) == 55
    assert nodes.commit(nodes.leader, 56) == 0
    hurt.replace_disk()
    hurt.boot()
    nodes.world.run_for(5_000)
    assert hurt.is_up
    nodes.cluster[leader].kill()
    assert nodes.read(nodes.leader) == 56
