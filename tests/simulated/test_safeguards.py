"""Safeguards of elections and disks, each with a scenario that needs it, run with the safeguard off and on.

A scenario places its faults at certain moments, so that one run decides; safeguards that chaos alone can test
are in `test_ablations`. A broken safeguard makes the second half of its test fail; a scenario that has become
harmless, the first.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftlog.consensus.election import Due, Election
from raftlog.env.files import join
from raftlog.env.simulated_files import Crash
from raftlog.replica.candidacy import Candidacy
from raftlog.replica.replica import Replica
from raftlog.storage.directory import TERM_FILE, TERM_KIND
from raftlog.storage.metafile import encode_meta
from raftlog.transport import boots
from tests.report import count_fault
from tests.support.sim_node import Consumer
from tests.support.three_nodes import GROUP, ThreeNodes
from wire.apis import ApiKey

SHARD = 0
PREFERRED = 2
"""The node that leads the shard at first."""


def fault(kind: str, count: int = 1) -> None:
    count_fault("simulated", kind, count)


# Term and vote are synced before a vote leaves


def forget_terms(patch: pytest.MonkeyPatch) -> None:
    """Write the group shard's term and vote without a sync."""
    save = Replica._save_term

    def save_term(self: Replica, term: int, vote: str | None) -> None:
        if self.shard != SHARD:
            save(self, term, vote)
            return
        data = encode_meta(TERM_KIND, term, vote)
        file = self._host.files.open(join(self.home, TERM_FILE), "w")
        file.truncate(0)
        file.pwrite(data, 0)
        file.close()
        self.term, self.vote = term, vote

    patch.setattr(Replica, "_save_term", save_term)


def terms_of_two_leaders() -> tuple[int, int]:
    """Let a leader's only voter lose power at once and vote again; return the terms of both leaders."""
    nodes = ThreeNodes(1, num_shards=1, is_booted=False)
    cluster, candidate = nodes.cluster, PREFERRED
    other, voter = cluster.others(candidate)
    cluster.cut(candidate, other)
    cluster.boot()
    cluster.wait_for(lambda: nodes.elected(candidate) is not None)
    first = nodes.runtime(candidate).replica.term
    cluster.isolate(candidate)
    cluster[voter].lose_power(Crash.LOST)
    fault("power failure")
    cluster[voter].boot()
    cluster.wait_for(lambda: nodes.elected(other, voter) is not None)
    second = nodes.elected(other, voter)
    assert second is not None
    return first, nodes.runtime(second).replica.term


def test_a_vote_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        forget_terms(patch)
        first, second = terms_of_two_leaders()
        assert first == second, "two leaders of one term"
    first, second = terms_of_two_leaders()
    assert first < second


# No node votes while the leader may answer from its lease


def vote_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Election, "vote_wait_ms", lambda self, now_ms: 0.0)


def forget_the_start(patch: pytest.MonkeyPatch) -> None:
    """Let a node that has just started assume that it has heard no leader before."""

    def vote_wait_ms(self: Election, now_ms: float) -> float:
        return max(0.0, self._heard_ms + self._lease_ms - now_ms)

    patch.setattr(Election, "vote_wait_ms", vote_wait_ms)


def steady_heartbeat_of_a_member_that_left() -> bool:
    """Return whether an old leader accepts it; its followers see their connections break before it does."""
    nodes = ThreeNodes(2, num_shards=1)
    cluster, old = nodes.cluster, nodes.leader
    member = Consumer(nodes.client(old), GROUP, "one", "orders")
    for _ in range(5):
        member.heartbeat()
    followers = cluster.others(old)
    cluster.isolate(old)
    for follower in followers:
        cluster.reset(follower, old, later_ms=1_000)
    fault("reset heard late", 2)
    replica = nodes.runtime(old).replica
    cluster.wait_for(
        lambda: not replica.leadership.has_lease(nodes.world.now_ms) or nodes.elected(*followers) is not None
    )
    if nodes.elected(*followers) is None:
        return False
    new = cluster.wait_for_leader(nodes.shard, other_than=old)
    again = Consumer(nodes.client(new), GROUP, "one", "orders")
    again.epoch = member.epoch
    assert again.leave().error_code == 0
    call = member.client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, member.next_heartbeat())
    nodes.world.run_until(lambda: call.response is not None or call.is_lost, within_ms=5_000)
    return call.response is not None and call.response.error_code == 0


def test_no_other_leader_is_elected_during_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        vote_at_once(patch)
        assert steady_heartbeat_of_a_member_that_left()
    assert not steady_heartbeat_of_a_member_that_left()


def lease_after_an_election_of_restarted_nodes() -> bool:
    """Return whether a leader has its lease when the two others, after a power failure, elect another one."""
    nodes = ThreeNodes(3, num_shards=1)
    cluster, old = nodes.cluster, 1
    handed: list[str | None] = []
    first = cluster[nodes.leader]
    first.host.call_soon(first.node.transfer, nodes.shard, old, handed.append)
    cluster.wait_for(lambda: cluster.leader_of(nodes.shard) == old)
    assert nodes.commit(old, 1) == 0
    nodes.world.run_for(500)
    others = cluster.others(old)
    assert PREFERRED in others
    for node_id in others:
        cluster[node_id].lose_power(Crash.LOST)
        fault("power failure")
    cluster.isolate(old)
    for node_id in others:
        cluster[node_id].boot()
    cluster.wait_for(lambda: nodes.elected(*others) is not None)
    return nodes.runtime(old).replica.leadership.has_lease(nodes.world.now_ms)


def test_a_start_counts_as_having_heard_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        forget_the_start(patch)
        assert lease_after_an_election_of_restarted_nodes()
    assert not lease_after_an_election_of_restarted_nodes()


# A pre-vote comes before each election


def campaign_at_once(patch: pytest.MonkeyPatch) -> None:
    due = Election.due

    def without_asking(self: Election, now_ms: float) -> Due:
        if due(self, now_ms) is not Due.ASK:
            return Due.NOTHING
        self.voted(now_ms)
        return Due.CAMPAIGN

    patch.setattr(Election, "due", without_asking)


def terms_before_and_after_a_cut() -> tuple[int, int]:
    """Return the shard's term before and after one follower and the leader were cut off for three seconds."""
    nodes = ThreeNodes(4, num_shards=1)
    cluster, leader = nodes.cluster, nodes.leader
    away = cluster.others(leader)[0]
    before = nodes.runtime(leader).replica.term
    cluster.cut(leader, away)
    cluster.reset(leader, away)
    fault("cut")
    nodes.world.run_for(3_000)
    nodes.network.heal_all()
    nodes.world.run_for(2_000)
    return before, nodes.runtime(nodes.leader).replica.term


def test_a_node_that_comes_back_does_not_depose_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        campaign_at_once(patch)
        before, after = terms_before_and_after_a_cut()
        assert before < after
    before, after = terms_before_and_after_a_cut()
    assert before == after


# A disk that has forgotten what it promised


def trust_empty_disks(patch: pytest.MonkeyPatch) -> None:
    """Let a replaced disk vote and count from the start."""
    patch.setattr(Candidacy, "is_joining", property(lambda _: False, lambda _, value: None), raising=False)


def trust_old_disks(patch: pytest.MonkeyPatch) -> None:
    """Let peers ignore the order of a disk's starts."""
    patch.setattr(boots, "_is_old", lambda previous, known: False)


def acknowledged_and_read(*, is_copied: bool) -> tuple[int, int | None]:
    """Return an offset that two nodes acknowledged, and the offset read after one of them came back with
    another disk and met the third, which lacks the commit, before the other was back."""
    nodes = ThreeNodes(5, num_shards=1)
    cluster, leader = nodes.cluster, nodes.leader
    forgetful, behind = cluster.others(leader)
    assert nodes.commit(leader, 10) == 0
    nodes.world.run_for(500)
    if is_copied:
        copy = cluster[forgetful].copy_disk()
        cluster[forgetful].kill()
        cluster[forgetful].boot()
        cluster.settle()
        nodes.world.run_for(500)
    cluster.isolate(behind)
    nodes.world.run_for(1_000)
    assert nodes.commit(leader, 11) == 0
    cluster[forgetful].kill()
    if is_copied:
        cluster[forgetful].put_disk(copy)
    else:
        cluster[forgetful].replace_disk()
    cluster[leader].lose_power(Crash.LOST)
    fault("disk lost")
    nodes.network.heal_all()
    cluster[forgetful].boot()
    nodes.world.run_for(4_000)
    found = nodes.elected(forgetful, behind)
    if found is None:
        cluster[leader].boot()
        found = cluster.wait_for_leader(nodes.shard)
    return 11, nodes.read(found)


@pytest.mark.parametrize(("switch_off", "is_copied"), [(trust_empty_disks, False), (trust_old_disks, True)])
def test_a_disk_that_forgot_does_not_decide(
    switch_off: Callable[[pytest.MonkeyPatch], None], is_copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        switch_off(patch)
        acknowledged, read = acknowledged_and_read(is_copied=is_copied)
        assert read != acknowledged
    acknowledged, read = acknowledged_and_read(is_copied=is_copied)
    assert read == acknowledged
