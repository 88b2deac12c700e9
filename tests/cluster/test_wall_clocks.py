"""Wrong wall clocks in whole clusters: acknowledged offsets stay for their retention; time never stops."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.simulator import Network, SimCluster, WireClient, World
from raftlog.replica.clock import LOOK_MS, STAMPS_DELAY_MS
from records import METADATA_SHARD
from tests.report import count_fault
from tests.support.requests import commit_request
from tests.support.sim_node import SimNode
from wire.apis import ApiKey
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
RETENTION_MS = 10 * MINUTE_MS
CHECKED_MS = 20_000
DELAY_MS = 4 * MINUTE_MS
"""A step of most clocks must last this long before anything expires by it; a day would take minutes."""

SETTINGS: dict[str, Any] = {
    "offsets_retention_minutes": RETENTION_MS // MINUTE_MS,
    "offsets_retention_check_interval_ms": CHECKED_MS,
    "leader_balance_delay_ms": 10**9,
    "raft_min_timeout_ms": 6_000,
    "raft_max_timeout_ms": 9_000,
    "raft_heartbeat_ms": 2_000,
}


@pytest.fixture(autouse=True)
def _delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlog.replica.clock.RETENTION_DELAY_MS", float(DELAY_MS))


class Trio:
    """Three nodes, a topic, and commits of groups without members."""

    def __init__(self) -> None:
        self.world = World(7)
        self.nodes = SimCluster(self.world, Network(self.world), num_shards=1, settings=SETTINGS)
        self.nodes.boot()
        self.nodes.settle(within_ms=60_000)
        topic = CreatableTopic(name="orders", num_partitions=4, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
        self._ask(METADATA_SHARD, ApiKey.CREATE_TOPICS, 7, request)

    def _ask(self, shard: int, api: ApiKey, version: int, request: object) -> Any:
        leader = self.nodes.wait_for_leader(shard)
        client = WireClient(
            self.world, self.nodes.network, f"c{self.world.events_run}", address=self.nodes[leader].address
        )
        answer = client.ask(api, version, request)
        client.close()
        return answer

    @property
    def leader(self) -> int:
        return self.nodes.wait_for_leader(0)

    def set_clock(self, node_id: int, wrong_by_ms: int) -> None:
        count_fault("cluster", "clock set")
        self.nodes[node_id].host.wall_skew_ms = wrong_by_ms
        self.nodes[node_id].host_options["wall_skew_ms"] = wrong_by_ms

    def commit(self, group_id: str) -> None:
        answer = self._ask(0, ApiKey.OFFSET_COMMIT, 8, commit_request(group_id, {0: 42}))
        assert [part.error_code for topic in answer.topics for part in topic.partitions] == [0]

    def has(self, group_id: str) -> bool:
        groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None)]
        return bool(self._ask(0, ApiKey.OFFSET_FETCH, 9, OffsetFetchRequest(groups=groups)).groups[0].topics)

    def wait(self, ms: float) -> None:
        self.world.run_for(ms)

    def log_ahead_ms(self) -> int:
        """Return how far the newest entry's time is ahead of the true time."""
        last_ms = self.nodes.runtime(self.leader, 0).replica.last_timestamp_ms
        right = next(one.host for one in self.nodes.machines.values() if not one.host.wall_skew_ms)
        return last_ms - right.wall_ms()

    def hand_over(self, to: int) -> None:
        told: list[str | None] = []
        self.nodes.runtime(self.leader, 0).replica.leadership.transfer(to, told.append)
        self.nodes.wait_for(lambda: self.nodes.leader_of(0) == to)

    def lasts(self, group_id: str) -> float:
        """Wait until the group's offsets expire, and return how long that took in ms."""
        began_ms = self.world.now_ms
        while self.has(group_id):
            assert self.world.now_ms - began_ms < 2 * RETENTION_MS, "it never expires"
            self.wait(5_000)
        return self.world.now_ms - began_ms


def test_a_leader_whose_clock_is_wrong_for_a_moment() -> None:
    trio = Trio()
    trio.commit("billing")
    trio.set_clock(trio.leader, 8 * DAY_MS)
    trio.commit("other")
    trio.set_clock(trio.leader, 0)
    assert abs(trio.log_ahead_ms()) < 1_000
    committed_ago_ms = trio.lasts("billing")
    assert RETENTION_MS <= committed_ago_ms + 100 <= RETENTION_MS + 2 * CHECKED_MS


@pytest.mark.parametrize("wrong_by_ms", [8 * DAY_MS, -5 * HOUR_MS], ids=["ahead", "behind"])
def test_a_node_whose_clock_is_always_wrong_leads(wrong_by_ms: int) -> None:
    trio = Trio()
    wrong = trio.nodes.others(trio.leader)[0]
    trio.set_clock(wrong, wrong_by_ms)
    trio.commit("billing")
    trio.wait(2 * LOOK_MS)
    trio.hand_over(wrong)
    trio.commit("other")
    assert abs(trio.log_ahead_ms()) < 1_000
    assert RETENTION_MS <= trio.lasts("billing") + 3 * LOOK_MS <= RETENTION_MS + 2 * CHECKED_MS + 3 * LOOK_MS


@pytest.mark.parametrize("wrong_by_ms", [8 * DAY_MS, -5 * HOUR_MS], ids=["ahead", "behind"])
@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_all_start_again_and_one_of_them_with_a_wrong_clock(wrong: int, wrong_by_ms: int) -> None:
    trio = Trio()
    trio.commit("billing")
    for machine in trio.nodes.machines.values():
        machine.kill()
    trio.set_clock(wrong, wrong_by_ms)
    trio.nodes.boot()
    trio.nodes.settle(within_ms=60_000)
    trio.commit("other")
    assert abs(trio.log_ahead_ms()) < 1_000
    trio.wait(RETENTION_MS // 2)
    assert trio.has("billing")
    assert abs(trio.log_ahead_ms()) < 1_000 + RETENTION_MS  # no entry was written since
    trio.commit("later")
    assert abs(trio.log_ahead_ms()) < 1_000


def test_most_clocks_are_wrong_for_a_while_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trio = Trio()
    trio.commit("billing")
    for node_id in (1, 2):
        trio.set_clock(node_id, 8 * DAY_MS)
    trio.wait(STAMPS_DELAY_MS + 4 * LOOK_MS)
    trio.commit("while wrong")
    assert abs(trio.log_ahead_ms() - 8 * DAY_MS) < 1_000  # as most clocks show
    assert "nothing expires by the difference" in caplog.text
    for node_id in (1, 2):
        trio.set_clock(node_id, 0)
    trio.wait(STAMPS_DELAY_MS + 2 * LOOK_MS)
    trio.commit("right again")
    before_ms, began_ms = trio.log_ahead_ms(), trio.world.now_ms
    trio.wait(MINUTE_MS)
    trio.commit("right for a minute")
    half_ms = (trio.world.now_ms - began_ms) / 2
    assert abs(before_ms - trio.log_ahead_ms() - half_ms) < 100  # stamps advance at half speed
    gone_ago_ms = trio.lasts("billing") + 2 * STAMPS_DELAY_MS + 6 * LOOK_MS + MINUTE_MS
    assert RETENTION_MS <= gone_ago_ms + 1_000 <= RETENTION_MS + 2 * CHECKED_MS + 1_000


@pytest.mark.parametrize("wrong_nodes", [(1, 2), (1, 2, 3)])
def test_a_step_of_most_clocks_that_stands_is_the_time(wrong_nodes: tuple[int, ...]) -> None:
    """The nodes may have started with clocks that were never set; they have no other evidence of the time."""
    trio = Trio()
    trio.commit("billing")
    for node_id in wrong_nodes:
        trio.set_clock(node_id, 8 * DAY_MS)
    assert DELAY_MS <= trio.lasts("billing") <= DELAY_MS + 3 * LOOK_MS + 2 * MINUTE_MS


def test_clocks_that_are_set_back_expire_nothing_early_and_nothing_for_ever() -> None:
    trio = Trio()
    trio.commit("billing")
    for node_id in (1, 2, 3):
        trio.set_clock(node_id, -5 * HOUR_MS)
    trio.wait(MINUTE_MS)
    trio.commit("while behind")
    for node_id in (1, 2, 3):
        trio.set_clock(node_id, 0)
    lasted_ms = MINUTE_MS + trio.lasts("billing")
    assert RETENTION_MS <= lasted_ms + 1_000 <= RETENTION_MS + 2 * CHECKED_MS + LOOK_MS


def test_a_node_alone_does_not_believe_its_clock_at_once_either() -> None:
    sim = SimNode(num_shards=1, settings={k: v for k, v in SETTINGS.items() if k.startswith("offsets")})
    client = sim.client("one")
    assert sim.commit(client, "billing", {0: 1}) == [0]
    sim.machine.host.wall_skew_ms = 8 * DAY_MS
    sim.world.run_for(2 * LOOK_MS)
    sim.machine.host.wall_skew_ms = 0
    sim.world.run_for(RETENTION_MS // 2)
    assert sim.fetch(client, "billing") == {0: 1}
    sim.machine.stop()
    sim.machine.host_options["wall_skew_ms"] = 8 * DAY_MS  # as with an empty clock battery
    sim.reboot()
    client = sim.client("two")
    sim.world.run_for(DELAY_MS - 2 * LOOK_MS)
    assert sim.fetch(client, "billing") == {0: 1}
    status = sim.node.status()["clock"]
    idle_ms = RETENTION_MS // 2 + 3 * LOOK_MS  # after a start time is known up to the newest entry
    assert 0 <= status["not_believed_ms"] - 8 * DAY_MS <= idle_ms
    assert 0 <= status["wall_ms"] - status["past_ms"] - 8 * DAY_MS <= idle_ms
