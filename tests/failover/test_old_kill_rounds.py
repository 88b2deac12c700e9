"""Faults of nodes and of consumers under groups of the older protocols, with real processes.

Two groups live through all of them, both in one shard: one of the push protocol and one of seed 000's, in
both variants of each. `tests.failover.old_groups` says what is proven.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.launching.launcher import ClusterProcess
from quorate.client import Client
from tests.failover.old_groups import PARTITIONS, PATIENCE_S, TOPIC, Kind, OldGroup, group_leader
from tests.report import count_fault
from tests.support.real_cluster import group_in, quorate, wait_until_equal
from tests.support.waiting import wait_for

SHARD = 0
CONSUMERS = 4
BACK_S = {"push": 4.0, "rewrite": 4.0}
"""Every consumer is heard again so soon after the leader was killed."""
STOPPED_S = 4.0
"""Longer than each session."""
AMID_S = 0.5
ROUNDS_OF_CHAOS = 8
PAIRS = {
    "first": (Kind("push", "log"), Kind("rewrite", "design")),
    "second": (Kind("push", "wait"), Kind("rewrite", "thread")),
}


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> tuple[Kind, Kind]:
    return PAIRS[request.param]


@pytest.fixture
def settings(pair: tuple[Kind, Kind]) -> dict[str, str]:
    return {
        "lineage.push.port": "0",
        "lineage.rewrite.port": "0",
        "lineage.rewrite.variant": pair[1].variant,
        "leader.balance.delay.ms": "600000",  # only the faults move the shard
    }


@pytest.fixture
def groups(pair: tuple[Kind, Kind], cluster: ClusterProcess, tmp_path: Path) -> Iterator[list[OldGroup]]:
    """Both groups, settled."""
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS)
        client.configure_group(
            group_in(SHARD, "push"),
            {"push.topics": TOPIC, "push.failover": pair[0].variant, "push.reregister.wait.ms": "3000"},
        )
    started = [
        OldGroup(kind, group_in(SHARD, kind.protocol), cluster, tmp_path / kind.protocol) for kind in pair
    ]
    try:
        for one in started:
            one.join(CONSUMERS)
        for one in started:
            one.settle()
        yield started
    finally:
        for one in started:
            one.end()


class Story:
    """The faults, one after the other, and what they cost."""

    def __init__(self, cluster: ClusterProcess, groups: list[OldGroup]) -> None:
        self.cluster = cluster
        self.groups = groups
        self.told: list[str] = []

    def _cost(self, what: str, since_s: float, *, is_measured: bool = True) -> None:
        """Wait until both groups are settled, and note what it cost them."""
        for one in self.groups:
            back = f"all heard {one.wait_heard(since_s):.2f} s later, " if is_measured else ""
            one.settle()
            settled_s = time.monotonic()
            unowned_s = one.unowned_s(since_s, settled_s) / PARTITIONS
            self.told.append(
                f"{what}: {one.kind}: {back}settled {settled_s - since_s:.2f} s later, "
                f"{unowned_s:.2f} s without an owner (mean of the partitions)"
            )

    def kill_leader(self, *, amid_s: float | None = None) -> None:
        """A kill round; `amid_s`: so many seconds after the process of another consumer runs."""
        leader = group_leader(self.cluster, self.groups[0])
        for one in self.groups:
            one.wait_committing()
        if amid_s is not None:
            for one in self.groups:
                one.join()
            wait_for(lambda: all(one.are_awake for one in self.groups), "processes of consumers", 10.0)
            time.sleep(amid_s)
        killed_s = time.monotonic()
        leader.kill(wait=False)
        for one in self.groups:
            one.send(signal.SIGUSR1)
        halted_s = time.monotonic()
        count_fault("failover", "kill -9 of the coordinator of older groups")
        others = [node for node in self.cluster.nodes if node is not leader]
        wait_for(lambda: self._have_halted(killed_s), "consumers to commit nothing more", 5.0)
        wait_for(lambda: group_leader(self.cluster, self.groups[0]) is not leader, "another leader", 10.0)
        assert halted_s - killed_s < 0.15, "another node may have led before the commits ended"
        back_s = {one: one.wait_heard(killed_s) for one in self.groups}
        for one in self.groups:
            one.check_committed(others)
            one.send(signal.SIGUSR2)
        leader.kill()
        leader.start()
        self._cost("kill -9 of the leader", killed_s)
        if amid_s is not None:
            return
        late = {str(one.kind): s for one, s in back_s.items() if s > BACK_S[one.kind.protocol]}
        assert not late, f"seconds until every consumer was heard again: {late}"

    def _have_halted(self, since_s: float) -> bool:
        return all(
            any(event["at_s"] > since_s for event in consumer.diary.of("halted"))
            for one in self.groups
            for consumer in one.live
        )

    def stop_leader(self) -> None:
        """SIGSTOP of the leader: it is deposed, and wakes up later."""
        leader = group_leader(self.cluster, self.groups[0])
        leader.pause()
        stopped_s = time.monotonic()
        count_fault("failover", "SIGSTOP of the coordinator of older groups")
        time.sleep(STOPPED_S)
        leader.resume()
        self._cost("SIGSTOP of the leader", stopped_s)

    def hand_over(self) -> None:
        leader = group_leader(self.cluster, self.groups[0])
        began_s = time.monotonic()
        done = quorate("cluster", "transfer", str(SHARD), "--url", leader.url)
        assert done.returncode == 0, done.stdout + done.stderr
        count_fault("failover", "hand-over of the shard of older groups")
        wait_for(lambda: group_leader(self.cluster, self.groups[0]) is not leader, "another leader", 10.0)
        self._cost("hand-over", began_s)

    def kill_consumers(self) -> None:
        """One consumer of each group dies; another one joins then."""
        for one in self.groups:
            one.live[0].kill()
        killed_s = time.monotonic()
        count_fault("failover", "kill -9 of a consumer of an older group", len(self.groups))
        self._cost("kill -9 of a consumer", killed_s, is_measured=False)
        began_s = time.monotonic()
        for one in self.groups:
            one.join()
        self._cost("a consumer joins", began_s, is_measured=False)

    def stop_consumers(self) -> None:
        """One consumer of each group is stopped for longer than its session, and returns."""
        stopped = {one: one.live[0] for one in self.groups}
        began_s = time.monotonic()
        for consumer in stopped.values():
            consumer.send(signal.SIGSTOP)
        count_fault("failover", "SIGSTOP of a consumer of an older group", len(self.groups))

        def others_have_all(one: OldGroup) -> bool:
            rest = {name for name in (each.name for each in one.live) if name != stopped[one].name}
            return all(rest & set(names) for names in one.owners().values())

        for one in self.groups:
            wait_for(lambda one=one: others_have_all(one), f"{one.kind}: others to take over", 20.0)
        assert time.monotonic() - began_s > 0.5 * min(PATIENCE_S.values())
        for consumer in stopped.values():
            consumer.send(signal.SIGCONT)
        self._cost("SIGSTOP of a consumer", began_s, is_measured=False)

    def restart_nodes(self) -> None:
        killed_s = time.monotonic()
        for node in self.cluster.nodes:
            node.kill(wait=False)
        count_fault("failover", "kill -9 of all nodes under older groups")
        for node in self.cluster.nodes:
            node.kill()
        self.cluster.start()
        self._cost("kill -9 of all nodes", killed_s)

    def check(self) -> None:
        """Stop everything, and look at the diaries and the logs."""
        for one in self.groups:
            one.end()
            assert not one.doubled()
            one.check_starts()
        wait_until_equal(self.cluster.nodes)
        self.cluster.stop()
        for one in self.groups:
            for node in self.cluster.nodes:
                count = one.check_log(node)
            self.told.append(f"{one.kind}: {count} commits of a partition acknowledged, all in the logs")
        for node in self.cluster.nodes:
            text = (node.data / "node.log").read_text(errors="replace")
            assert "Traceback" not in text, text


def run_in_ci(story: Story, pair: tuple[Kind, Kind]) -> None:
    """Each fault under one of the pairs, kill rounds under both."""
    story.kill_leader()
    if pair == PAIRS["first"]:
        story.stop_leader()
        story.kill_consumers()
        story.kill_leader(amid_s=0.1)
    else:
        story.hand_over()
        story.stop_consumers()
        story.restart_nodes()


def run_in_chaos(story: Story, pair: tuple[Kind, Kind]) -> None:
    """All faults, again and again."""
    for number in range(ROUNDS_OF_CHAOS):
        story.kill_leader()
        story.stop_leader()
        story.kill_leader(amid_s=AMID_S * number / ROUNDS_OF_CHAOS)
        story.hand_over()
        story.kill_consumers()
        story.stop_consumers()
        story.restart_nodes()
        for one in story.groups:  # as many as before
            one.live[0].kill()
            one.settle()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("pair", PAIRS, indirect=True)
@pytest.mark.parametrize("run", [run_in_ci, pytest.param(run_in_chaos, marks=pytest.mark.slow)])
def test_old_groups_live_through_faults_of_nodes_and_consumers(
    run: Callable[[Story, tuple[Kind, Kind]], None],
    pair: tuple[Kind, Kind],
    cluster: ClusterProcess,
    groups: list[OldGroup],
    capsys: pytest.CaptureFixture[str],
) -> None:
    story = Story(cluster, groups)
    try:
        run(story, pair)
        story.check()
    finally:
        with capsys.disabled():
            print("\n" + "\n".join(story.told))
