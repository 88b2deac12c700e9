"""The document of the state machines is rendered from their tables, which satisfy the rules tested here."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.runtime.shard_state import SHARD_STATES, ShardConditions, ShardState, shard_state
from coordinator.state.machines import GroupFacts, GroupState, group_state
from raftlog.replica.replica_state import REPLICA_TRANSITIONS, ReplicaEvent, ReplicaState, ReplicaStatus

from .state_machines import document

DOCUMENT = Path(__file__).parents[1] / "docs" / "proofs" / "state-machines.md"
LEADING = {ReplicaState.CATCH_UP, ReplicaState.READY}


def test_the_document_is_the_rendering() -> None:
    assert DOCUMENT.read_text() == document(), (
        "run: python -m tests.state_machines > docs/proofs/state-machines.md"
    )


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (GroupFacts(False, 5, 4, True), GroupState.EMPTY),
        (GroupFacts(True, 5, 4, True), GroupState.ASSIGNING),
        (GroupFacts(True, 5, 5, False), GroupState.RECONCILING),
        (GroupFacts(True, 5, 5, True), GroupState.STABLE),
    ],
)
def test_group_states(facts: GroupFacts, state: GroupState) -> None:
    assert group_state(facts) is state


@pytest.mark.parametrize("state", ReplicaState)
@pytest.mark.parametrize("event", ReplicaEvent)
def test_a_replica_changes_its_state_by_the_table_only(state: ReplicaState, event: ReplicaEvent) -> None:
    status = ReplicaStatus(lambda: 7)
    status.state = state
    to = REPLICA_TRANSITIONS.get((state, event))
    if to is not None:
        status.on(event)
        assert (status.state, status.entered_ms) == (to, {to: 7})
        return
    with pytest.raises(AssertionError, match=event.name):
        status.on(event)
    assert (status.state, status.entered_ms) == (state, {})


def test_only_an_election_begins_a_lead_and_what_is_halted_only_ends() -> None:
    begins = {(state, event) for (state, event), to in REPLICA_TRANSITIONS.items() if to in LEADING - {state}}
    assert begins == {
        (ReplicaState.CAMPAIGNING, ReplicaEvent.ELECTED),
        (ReplicaState.CATCH_UP, ReplicaEvent.CAUGHT_UP),
    }
    from_halted = {event for state, event in REPLICA_TRANSITIONS if state is ReplicaState.HALTED}
    assert from_halted == {ReplicaEvent.ENDS}


@pytest.mark.parametrize("replica", ReplicaState)
def test_every_state_of_a_replica_gives_one_of_its_shard(replica: ReplicaState) -> None:
    prepared = ShardConditions(replica, is_stopping=False, is_prepared=True, has_known_leader=True)
    expected = {ReplicaState.CATCH_UP: ShardState.CATCH_UP, ReplicaState.READY: ShardState.READY}
    assert shard_state(prepared) is expected.get(replica, ShardState.DOWN)
    begun = ShardConditions(replica, is_stopping=False, is_prepared=False, has_known_leader=False)
    is_over = replica in (ReplicaState.DOWN, ReplicaState.HALTED)
    assert shard_state(begun) is (ShardState.DOWN if is_over else ShardState.CATCH_UP)
    stopping = ShardConditions(replica, is_stopping=True, is_prepared=True, has_known_leader=True)
    assert shard_state(stopping) is ShardState.DOWN


def test_every_row_of_the_shards_states_is_reached() -> None:
    reached = {
        next(row for row in SHARD_STATES if row.holds(facts))
        for facts in (
            ShardConditions(replica, is_stopping, is_prepared, has_known)
            for replica in ReplicaState
            for is_stopping in (False, True)
            for is_prepared in (False, True)
            for has_known in (False, True)
        )
    }
    assert reached == set(SHARD_STATES)
