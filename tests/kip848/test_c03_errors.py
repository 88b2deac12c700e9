"""C.3 Errors of a heartbeat that depend on the group."""

from __future__ import annotations

from typing import Any

from cluster.node_info import ClientInfo
from coordinator.limits import GroupSettings, Limits
from records import encode_record
from tests.kip848.classic_groups import classic_group
from tests.support.group_client import Client
from tests.support.requests import commit_request, join_request
from tests.support.sim_node import SimNode
from tests.support.world import TALLY, World
from wire.apis import ApiKey
from wire.errors import ErrorCode


def test_group_id_not_found(world: World) -> None:
    """GROUP_ID_NOT_FOUND 69: epoch ≠ 0 and the group is missing."""
    assert world.heartbeat("a", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.heartbeat("a", -1).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_of_offsets_only_is_no_consumer_group(world: World) -> None:
    """GROUP_ID_NOT_FOUND 69: the group exists with another type."""
    world.commit({("orders", 0): 1})
    assert world.heartbeat("a", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.join("a").member_epoch == 1


def test_a_classic_group_with_members_is_not_taken_over(without_classic: World) -> None:
    """GROUP_ID_NOT_FOUND 69: a non-empty classic group that cannot be upgraded."""
    world = without_classic
    world.shard.apply(encode_record(classic_group(members=1)), 1)
    refused = world.join("a")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "group.coordinator.rebalance.protocols" in (refused.error_message or ""), "the only way out"
    assert world.heartbeat("a", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_classic_group_becomes_a_consumer_group(world: World) -> None:
    """Empty classic → consumer, at the first consumer heartbeat: ~2, then a fresh group."""
    world.shard.apply(encode_record(classic_group(members=0)), 1)
    assert world.join("a").member_epoch == 1
    assert world.log[0].types == [-2, 5, 4, 3, 7, 6, 8]


def test_unknown_member_id(world: World) -> None:
    """UNKNOWN_MEMBER_ID 25: epoch ≠ 0 and the member is missing."""
    world.join("a")
    assert world.heartbeat("b", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("b", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_max_size() -> None:
    """GROUP_MAX_SIZE_REACHED 81: the member is one too many; members that are in are unaffected."""
    world = World(GroupSettings(max_size=2))
    world.create_topic("orders", 4)
    world.join("a")
    world.join("b")
    entries = len(world.log)
    refused = world.join("c")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "2 members" in (refused.error_message or "")
    assert len(world.log) == entries
    assert world.join("b").error_code == 0, "a member joins again whatever the size"


def test_groups_per_shard_are_bounded() -> None:
    """Reaching a limit gives a clear Kafka error, never unbounded memory."""
    world = World(limits=Limits(groups_max=1))
    world.join("a", group_id="g1")
    assert world.join("a", group_id="g2").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join("b", group_id="g1").error_code == 0


def test_a_group_never_decides_on_an_older_catalog(world: World) -> None:
    """COORDINATOR_LOAD_IN_PROGRESS 14: this node's catalog is older than the group's record 4."""
    world.join("a")
    world.catalog.view.version -= 1
    for answer in (world.heartbeat("a", 1), world.join("a"), world.join("b"), world.heartbeat("a", -1)):
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.catalog.view.version += 1
    assert world.heartbeat("a", 1).error_code == 0


def test_a_fenced_member_stays_in_the_group(world: World) -> None:
    """The server does not remove the member on 110: it stays until its session times out or it rejoins."""
    world.join("a")
    assert world.heartbeat("a", 9).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "a" in world.group().members
    assert world.join("a").member_epoch == 1


def test_what_is_left_of_a_downgrade_does_not_take_the_group_with_it(world: World) -> None:
    """KAFKA-21117: a record 2 beside the records of a consumer group. The next heartbeat removes it alone."""
    a = Client(world, "a")
    a.beat()
    world.shard.apply(encode_record(classic_group(members=1)), 1)
    a.beat()
    assert world.log[-1].types == [-2]
    assert (world.group().num_members, world.group().classic, a.epoch) == (1, None, 1)


def heartbeat_answered(sim: SimNode, member_id: str, *, stopping: bool = False) -> ErrorCode:
    """Submit a join to the node of `sim`; its error code, counted in this suite's tally."""
    codes: list[ErrorCode] = []

    def answered(response: Any) -> None:
        codes.append(ErrorCode(response.error_code))

    def submit() -> None:
        request = join_request("billing", member_id, "orders")
        sim.node.submit(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, ClientInfo(), answered)

    sim.machine.host.call_later(0.1, submit)
    if stopping:
        sim.machine.stop()
    sim.world.run_for(6_000)
    (code,) = codes
    TALLY["heartbeat error", code.name] += 1
    return code


def test_a_write_that_takes_too_long() -> None:
    """COORDINATOR_NOT_AVAILABLE 15: not durable within 5 s. The outcome is unknown; the member may retry."""
    sim = SimNode(host_options={"sync_ms": 5.0}, num_shards=1)
    for offset in range(10):  # slow enough for syncs to leave the loop
        assert sim.commit(sim.admin, "audit", {0: offset}) == [0]
    sim.machine.host.sync_ms = 20_000.0
    assert heartbeat_answered(sim, "a") == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_node_that_does_not_lead_the_shard() -> None:
    """NOT_COORDINATOR 16: the shard is Down here, as it is while the node stops and writes its last."""
    sim = SimNode(host_options={"sync_ms": 30.0}, num_shards=1)
    for offset in range(3):
        assert sim.commit(sim.admin, "audit", {0: offset}) == [0]
    sim.admin.send(ApiKey.OFFSET_COMMIT, 9, commit_request("audit", {0: 3}))
    sim.world.run_for(1.0)
    assert heartbeat_answered(sim, "a", stopping=True) == ErrorCode.NOT_COORDINATOR
