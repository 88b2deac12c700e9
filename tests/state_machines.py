"""Renders docs/proofs/state-machines.md: `python -m tests.state_machines > docs/proofs/state-machines.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cluster.runtime.shard_state import SHARD_STATES
from coordinator.state.machines import (
    CLASSIC_TRANSITIONS,
    GROUP_STATES,
    JOIN_AGAIN,
    MEMBER_TRANSITIONS,
    TRANSACTION_TRANSITIONS,
    GroupState,
)
from lineage.push.machines import CONSUMER_TRANSITIONS, SELF_TRANSITIONS
from raftlog.replica.replica_state import REPLICA_TRANSITIONS, ReplicaEvent, ReplicaState

_MEMBER_ENDS = ("STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS")

_GROUP_ARROWS = (
    "[*] --> Assigning : first member joins",
    "Empty --> Assigning : member joins",
    "Assigning --> Reconciling : target computed",
    "Reconciling --> Stable : last member settles",
    "Reconciling --> Assigning : epoch bump",
    "Stable --> Assigning : epoch bump",
    "Assigning --> Empty : last member leaves",
    "Reconciling --> Empty : last member leaves",
    "Stable --> Empty : last member leaves",
    "Empty --> [*] : deleted",
)

_SHARD_ARROWS = (
    "[*] --> CatchUp : the node starts",
    "CatchUp --> Down : another node leads, or the lead is lost",
    "Down --> CatchUp : this node is elected",
    "CatchUp --> Ready : caught up and prepared",
    "Ready --> Down : the lead is lost, or the node stops",
)


def document() -> str:
    """Return the whole document."""
    groups = (_member(), _group(), _classic(), _migration())
    sections = (_head(), *groups, _transaction(), _replica(), _shard(), _push())
    return "\n".join(line for section in sections for line in section) + "\n"


def _head() -> Iterator[str]:
    yield "# State machines"
    yield ""
    yield "For contributors: the states of members, groups, transactions, replicas and shards, and those of"
    yield "older protocols. Rendered from `coordinator/state/machines.py`,"
    yield "`raftlog/replica/replica_state.py`, `cluster/runtime/shard_state.py` and"
    yield "`lineage/push/machines.py`. Do not edit; run"
    yield "`python -m tests.state_machines > docs/proofs/state-machines.md`."


def _member() -> Iterator[str]:
    yield from ("", "## Member of a consumer group", "")
    yield "| State | Reconciliation finds | Next state | Member epoch |"
    yield "|---|---|---|---|"
    for (state, finding), step in MEMBER_TRANSITIONS.items():
        yield f"| {state.name} | {finding.value} | {step.to.name} | {step.epoch.value} |"
    steps = MEMBER_TRANSITIONS.items()
    yield from _diagram([
        "[*] --> STABLE : joins, owns nothing yet",
        *(f"{state.name} --> {step.to.name} : {finding.name}" for (state, finding), step in steps),
        *(f"{state} --> [*] : leaves or expires" for state in _MEMBER_ENDS),
    ])  # fmt: skip


def _group() -> Iterator[str]:
    yield from ("", "## Consumer group", "")
    yield "Derived from the group and never stored. The first row that applies gives the state."
    yield from ("", "| State | When |", "|---|---|")
    for row in GROUP_STATES:
        yield f"| {row.state.value} | {row.when} |"
    yield f"| {GroupState.DEAD.value} | only in responses: there is no such group |"
    yield from _diagram(_GROUP_ARROWS)


def _classic() -> Iterator[str]:
    yield from ("", "## Classic group", "")
    yield "Known to the shard's leader alone; a group of the log is Stable, or Empty if it has no members."
    yield from ("", "| State | Next state | When |", "|---|---|---|")
    for (state, to), when in CLASSIC_TRANSITIONS.items():
        yield f"| {state.value} | {to.value} | {when} |"
    yield from _diagram([
        "[*] --> Empty",
        *(f"{state.value} --> {to.value}" for state, to in CLASSIC_TRANSITIONS),
        "Empty --> [*] : deleted",
    ])  # fmt: skip


def _migration() -> Iterator[str]:
    yield from ("", "## Group with members of both protocols", "")
    yield "A consumer group, from the first member of the consumer protocol that joins a classic group until"
    yield "its last one is gone. A classic member has the states of any other; its JoinGroup"
    yield "reports what it owns and takes the next step. Heartbeat answers REBALANCE_IN_PROGRESS in one of"
    yield "these cases, and the member joins again:"
    yield ""
    yield from (f"- {row.when}" for row in JOIN_AGAIN)
    yield from _diagram([
        "Classic --> Mixed : a member of the consumer protocol joins",
        "Mixed --> Consumer : the last classic member is gone",
        "Consumer --> Mixed : a classic member joins",
        "Mixed --> Classic : the last member of the consumer protocol is gone",
        "Classic --> [*] : empty, and a member of the consumer protocol joins",
        "Consumer --> [*] : empty, and a classic member joins",
    ])  # fmt: skip


def _transaction() -> Iterator[str]:
    yield from ("", "## Transactional id", "")
    yield "Each transition is a record of the metadata shard. What is decided is completed, whoever leads."
    yield from ("", "| State | Next state | When |", "|---|---|---|")
    for (state, to), when in TRANSACTION_TRANSITIONS.items():
        yield f"| {state.name} | {to.name} | {when} |"
    yield from _diagram([
        "[*] --> EMPTY : a producer is initialized",
        *(f"{state.name} --> {to.name}" for state, to in TRANSACTION_TRANSITIONS),
        *(f"{state} --> [*] : expires" for state in ("EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT")),
    ])  # fmt: skip


def _replica() -> Iterator[str]:
    yield from ("", "## Replica of a shard on one node", "")
    yield "Every state becomes Down when the node stops or fails. A leader is deposed before it is Halted."
    yield from ("", "| State | Event | Next state |", "|---|---|---|")
    steps = [
        (state, event, to)
        for (state, event), to in REPLICA_TRANSITIONS.items()
        if event is not ReplicaEvent.ENDS
    ]
    for state, event, to in steps:
        yield f"| {state.value} | {event.value} | {to.value} |"
    yield from _diagram([
        f"[*] --> {ReplicaState.DOWN.value}",
        *(f"{state.value} --> {to.value} : {event.name}" for state, event, to in steps),
    ])  # fmt: skip


def _shard() -> Iterator[str]:
    yield from ("", "## Shard on one node", "")
    yield "Derived from its replica's state. The first row that applies gives the state."
    yield from ("", "| State | When |", "|---|---|")
    for row in SHARD_STATES:
        yield f"| {row.state.value} | {row.when} |"
    yield from _diagram(_SHARD_ARROWS)


def _push() -> Iterator[str]:
    yield from ("", "## Consumer of a push group, as its coordinator sees it", "")
    yield "The state of record 1011 ([generations.md](../generations.md#seed-004-push))."
    yield from ("", "| State | What happens | Next state |", "|---|---|---|")
    known = [
        ("–" if state is None else state.name, turn, "–" if to is None else to.name)
        for (state, turn), to in CONSUMER_TRANSITIONS.items()
    ]
    yield from (f"| {state} | {turn.value} | {to} |" for state, turn, to in known)
    yield from _diagram(
        f"{state.replace('–', '[*]')} --> {to.replace('–', '[*]')} : {turn.name}" for state, turn, to in known
    )
    yield from ("", "## Consumer of a push group, as it sees itself", "")
    yield from ("| State | What it meets | Next state |", "|---|---|---|")
    steps = SELF_TRANSITIONS.items()
    yield from (f"| {state.value} | {seen.value} | {to.value} |" for (state, seen), to in steps)
    yield from _diagram([
        "[*] --> Down",
        *(f"{state.value} --> {to.value} : {seen.name}" for (state, seen), to in steps),
    ])  # fmt: skip


def _diagram(arrows: Iterable[str]) -> Iterator[str]:
    yield from ("", "```mermaid", "stateDiagram-v2", *(f"    {arrow}" for arrow in arrows), "```")


if __name__ == "__main__":
    print(document(), end="")
