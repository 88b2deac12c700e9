"""The simulator's own test: with one safeguard switched off, chaos must find a violation within a few seeds.

A safeguard is switched off in the real code, as a defect would switch it off; everything else stays. Nodes
that notice and stop themselves count as a finding too: with the safeguard they would not have to. Safeguards
that need one certain message at one certain moment are switched off in `tests/raftdefects`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from cluster.shard_runtime import ShardRuntime
from cluster.simulator import Network, SimCluster, WireClient, World
from cluster.simulator.machine import address_of
from raftlog.progress import Progress
from raftlog.raft import Raft
from raftlog.segments import LAGGING_GROUP_BYTES
from tests.cluster.lab import commit_request
from tests.report import count_fault
from tests.simulated.run import MACHINE, Run
from wire.apis import ApiKey
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

SEEDS_MAX = 6
ABLATED_MS = 12_000.0
PERIOD_MS = 400.0

Switch = Callable[[pytest.MonkeyPatch], None]


def commit_alone(patch: pytest.MonkeyPatch) -> None:
    """Override 4: the leader's own disk is enough."""
    patch.setattr(Progress, "commit_index", lambda self, durable_index: durable_index)


def count_what_is_in_memory(patch: pytest.MonkeyPatch) -> None:
    """Override 4: acknowledged before it is synced, on leader and followers."""
    patch.setattr(Raft, "acknowledged", lambda self, matched_index: matched_index)
    commit_index = Progress.commit_index
    patch.setattr(Raft, "committable", lambda self: commit_index(self.progress, self._log.last_index))


SWITCHES: list[tuple[Switch, tuple[str, ...], float]] = [
    (commit_alone, ("isolated node", "kill -9 of a leader", "cut"), 0.2),
    (count_what_is_in_memory, ("power failure everywhere",), 20.0),
]
"""What is switched off, the faults that are enough to notice, and how long a sync takes, in ms."""


def found_by_chaos(seed: int, kinds: tuple[str, ...], sync_ms: float) -> list[str]:
    disk = {"sync_ms": sync_ms}
    try:
        run = Run(seed, duration_ms=ABLATED_MS, period_ms=PERIOD_MS, kinds=kinds, host_options=disk)
        return run.play().violations
    except Exception as error:  # the run could not even go on
        return [f"{type(error).__name__}: {error}"]


@pytest.mark.parametrize(
    ("switch_off", "kinds", "sync_ms"), SWITCHES, ids=[switch.__name__ for switch, _, _ in SWITCHES]
)
def test_chaos_finds_what_is_switched_off(
    switch_off: Switch, kinds: tuple[str, ...], sync_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off(monkeypatch)
    for seed in range(1, SEEDS_MAX + 1):
        if found := found_by_chaos(seed, kinds, sync_ms):
            print(f"seed {seed}: {len(found)} findings, the first: {found[0][:200]}")
            count_fault("simulated", "safeguard switched off")
            return
    raise AssertionError(f"{SEEDS_MAX} seeds found nothing wrong without it: {switch_off.__doc__}")


def create_topic(cluster: SimCluster) -> None:
    address = address_of(cluster.wait_for_leader(-1))
    topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    WireClient(cluster.world, cluster.network, "admin", address=address).ask(ApiKey.CREATE_TOPICS, 7, request)


def read_at_a_leader_that_slept() -> int | None:
    """What a leader answers that was stopped while another took over: an offset, None when it refuses."""
    world = World(5)
    network = Network(world)
    cluster = SimCluster(world, network, **(MACHINE | {"num_shards": 1})).boot_until_ready()

    def client(name: str, node_id: int) -> WireClient:
        return WireClient(world, network, name, address=address_of(node_id))

    def commit(node_id: int, offset: int) -> None:
        answer = client(f"tool-{offset}", node_id).ask(
            ApiKey.OFFSET_COMMIT, 9, commit_request("billing", {0: offset})
        )
        assert answer.topics[0].partitions[0].error_code == 0

    create_topic(cluster)
    old = cluster.wait_for_leader(0)
    commit(old, 10)
    reader = client("reader", old)
    reader.connect()
    cluster[old].host.pause()
    cluster.isolate(old)
    new = cluster.wait_for_leader(0, other_than=old)
    commit(new, 11)
    wanted = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="billing", topics=None)])
    call = reader.send(ApiKey.OFFSET_FETCH, 9, wanted)
    world.run_for(5)
    cluster[old].host.resume()
    count_fault("simulated", "pause")
    world.run_until(lambda: call.response is not None or call.is_lost, within_ms=10_000)
    if call.response is None or call.response.groups[0].error_code:
        return None
    return int(call.response.groups[0].topics[0].partitions[0].committed_offset)


def test_a_read_without_proof_of_leadership_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_at_a_leader_that_slept() in (None, 11)
    proven_for_ever = property(lambda self: math.inf, lambda self, proven_ms: None)
    monkeypatch.setattr(ShardRuntime, "_proven_ms", proven_for_ever, raising=False)
    assert read_at_a_leader_that_slept() == 10


def test_a_damaged_log_stops_its_node_and_only_that() -> None:
    """The detector with injected damage: a flipped bit in an early entry of one disk."""
    world = World(6)
    cluster = SimCluster(world, Network(world), num_shards=1).boot_until_ready()
    create_topic(cluster)
    leader = cluster.wait_for_leader(0)
    machine = cluster[leader]
    tool = WireClient(world, cluster.network, "tool", address=machine.address)
    path = "/data/shard-0/00000000000000000001.log"
    damaged = machine.disk.size(path) + 50
    while machine.disk.size(path) < damaged + 2 * LAGGING_GROUP_BYTES:
        calls = [tool.send(ApiKey.OFFSET_COMMIT, 9, commit_request("billing", {0: n})) for n in range(200)]
        world.run_until(lambda calls=calls: calls[-1].response is not None, within_ms=1_000)  # type: ignore[misc]
    machine.kill()
    machine.disk.damage(path, damaged)
    count_fault("simulated", "flipped bit")
    machine.boot()
    world.run_for(3_000)
    assert not machine.is_up
    assert "shows it was committed" in (machine.host.fatal_message or "")
    assert cluster.leader_of(0) not in (None, leader)
