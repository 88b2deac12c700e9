"""The simulator's own test: with one safeguard switched off, chaos must find a violation within a few seeds,
and with it on the same seeds find none.

A safeguard is switched off in the real code, as a defect would; everything else stays. A node that notices
and stops itself counts as a finding too, as with the safeguard it would not have to. Safeguards that need a
certain message at a certain moment have scripted tests: `test_safeguards` on whole nodes, and
`tests/raftdefects` and `tests/raftlog` on replicas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from cluster.runtime.pending_replies import NO_PROOF, PendingReplies, PendingReply
from cluster.runtime.shard_runtime import ShardRuntime
from coordinator.state.reconcile import Report
from raftlog.consensus.core import RaftCore
from raftlog.consensus.election import Election
from raftlog.consensus.messages import Vote, VoteRequest
from raftlog.consensus.progress import ReplicationProgress
from tests.report import count_fault
from tests.simulated.chaos import repeat_messages
from tests.simulated.consumers import SimulatedConsumer
from tests.simulated.run import Run
from tests.simulated.slow import Slow
from tests.support.three_nodes import FETCH, ThreeNodes
from wire.apis import ApiKey

SEEDS_MAX = 6
PERIOD_MS = 300.0


def commit_alone(patch: pytest.MonkeyPatch) -> None:
    """Override 4 off: the leader's own disk is enough to commit."""
    patch.setattr(ReplicationProgress, "commit_index", lambda self, durable_index: durable_index)


def count_what_is_in_memory(patch: pytest.MonkeyPatch) -> None:
    """Override 4 off: entries are acknowledged before they are synced, on leader and followers."""
    patch.setattr(RaftCore, "acknowledged", lambda self, matched_index: matched_index)
    commit_index = ReplicationProgress.commit_index
    patch.setattr(RaftCore, "committable", lambda self: commit_index(self.progress, self._log.last_index))


def truncate_behind_every_message(patch: pytest.MonkeyPatch) -> None:
    """Override 1 off: a follower removes all entries after a message's previous index, equal or not."""
    patch.setattr(RaftCore, "first_new", lambda self, frames, prev: (0, prev))


def serve_at_once(patch: pytest.MonkeyPatch) -> None:
    """Override 6 off: a leader serves before it has applied the entries acknowledged before its term."""
    patch.setattr(RaftCore, "is_serving", lambda self, applied_index: self.is_leader)


def answer_at_once(patch: pytest.MonkeyPatch) -> None:
    """The runtime: replies do not wait for the commit of the entries that they report."""

    def hold(
        self: PendingReplies,
        index: int,
        now_ms: float,
        pending: PendingReply,
        response: object,
        proof_ms: float = NO_PROOF,
    ) -> None:
        pending.answer(response)

    patch.setattr(PendingReplies, "hold", hold)


def vote_for_shorter_logs(patch: pytest.MonkeyPatch) -> None:
    """Raft 5.4.1 off: a vote goes to the first candidate, whatever its log lacks."""
    grant, answer = RaftCore.grant_or_count, Election.answer

    def grant_or_count(self: RaftCore, peer: int, message: VoteRequest | Vote, now_ms: float) -> None:
        if isinstance(message, VoteRequest):
            message = VoteRequest(message.term, 1 << 60, 1 << 40, message.is_transfer)
        grant(self, peer, message, now_ms)

    def would_vote(self: Election, now_ms: float, candidate: int, **_: bool) -> tuple[bool, float]:
        return answer(self, now_ms, candidate, is_behind=False, is_equal=True)

    patch.setattr(RaftCore, "grant_or_count", grant_or_count)
    patch.setattr(Election, "answer", would_vote)


def vote_during_a_lease(patch: pytest.MonkeyPatch) -> None:
    """The pre-vote off: a node votes while its leader may still answer from its lease."""
    patch.setattr(Election, "vote_wait_ms", lambda self, now_ms: 0.0)


def believe_every_report(patch: pytest.MonkeyPatch) -> None:
    """Reconciliation, as in Kafka: a partition missing from a report counts as revoked, even if its member
    was never told to revoke it."""
    patch.setattr(
        Report,
        "acknowledges",
        lambda self, current, topics: self.owned is not None and not self.has_any(current.pending),
    )
    patch.setattr(
        Report,
        "is_rid_of",
        lambda self, partitions, topics: self.owned is not None and not self.has_any(partitions),
    )


@dataclass(frozen=True)
class Ablation:
    """A safeguard to switch off, and the faults that suffice to notice. With `repeats` a peer's message
    sometimes comes a second time, later, which links never do. `members` is the kind of members."""

    switch_off: Callable[[pytest.MonkeyPatch], None]
    kinds: tuple[str, ...]
    repeats: bool = False
    sync_ms: float = 0.2
    duration_ms: float = 5_000.0
    members: type[SimulatedConsumer] = SimulatedConsumer


ABLATIONS = [
    Ablation(commit_alone, ("isolated node", "kill -9 of a leader", "cut")),
    Ablation(count_what_is_in_memory, ("power failure everywhere",), sync_ms=20.0),
    Ablation(truncate_behind_every_message, ("kill -9", "cut", "reset connections"), repeats=True),
    Ablation(serve_at_once, ("kill -9 of a leader", "power failure everywhere"), sync_ms=5.0),
    Ablation(answer_at_once, ("isolated node", "kill -9 of a leader", "cut")),
    Ablation(vote_for_shorter_logs, ("isolated node", "kill -9 of a leader", "cut")),
    Ablation(vote_during_a_lease, ("reset heard late",)),
    Ablation(believe_every_report, ("member leaves",), sync_ms=50.0, members=Slow),
]


def violations(seed: int, ablation: Ablation) -> list[str]:
    options: dict[str, Any] = {"host_options": {"sync_ms": ablation.sync_ms}}
    options |= {"kinds": ablation.kinds, "plain": ablation.members}
    run = Run(seed, duration_ms=ablation.duration_ms, period_ms=PERIOD_MS, **options)
    try:
        return run.play().violations
    except Exception as error:  # the run could not even go on
        return [f"{type(error).__name__}: {error}"]


@pytest.mark.thorough
@pytest.mark.parametrize("ablation", ABLATIONS, ids=[one.switch_off.__name__ for one in ABLATIONS])
def test_chaos_finds_what_is_switched_off(ablation: Ablation, monkeypatch: pytest.MonkeyPatch) -> None:
    if ablation.repeats:
        repeat_messages(monkeypatch)
    for seed in range(1, SEEDS_MAX + 1):
        with monkeypatch.context() as patch:
            ablation.switch_off(patch)
            found = violations(seed, ablation)
        if found:
            print(f"seed {seed}: {len(found)} findings, the first: {found[0][:200]}")
            count_fault("simulated", "safeguard switched off")
            break
    else:
        raise AssertionError(f"{SEEDS_MAX} seeds found nothing wrong without it")
    assert violations(seed, ablation) == []


def read_at_a_leader_that_slept() -> int | None:
    """Return the offset that a paused leader answers after another took over; None if it refuses."""
    nodes = ThreeNodes(5, num_shards=1)
    cluster, world, old = nodes.cluster, nodes.world, nodes.leader
    assert nodes.commit(old, 10) == 0
    reader = nodes.client(old)
    reader.connect()
    cluster[old].host.pause()
    cluster.isolate(old)
    assert nodes.commit(cluster.wait_for_leader(nodes.shard, other_than=old), 11) == 0
    call = reader.send(ApiKey.OFFSET_FETCH, 9, FETCH)
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
