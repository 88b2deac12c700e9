"""Messages between replicas: encoded messages decode to the same, and other bytes change nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raftlog.consensus import messages
from raftlog.consensus.messages import (
    Ack,
    Append,
    BadMessage,
    Checkpoint,
    DivergedMessage,
    Message,
    PreVote,
    PreVoteRequest,
    Reject,
    SnapshotAck,
    SnapshotChunk,
    Term,
    TimeoutNow,
    Vote,
    VoteRequest,
    decode,
)
from tests.support.replica_cluster import ReplicaCluster

POINT = Checkpoint(64, bytes(16), 2**64 - 1)
EACH: list[Message] = [
    Append(3, 10, 2, 9, 1234.5, b"frames", 7, POINT),
    Append(3, 10, 2, 9, 1234.5),
    Ack(3, 10, 9, 1234.5, True, POINT),
    Ack(3, 10, 9, 1234.5),
    Ack(3, 10, 9, 1234.5, obstacle=5),
    Reject(3, 10, 5, 8, 4, 1234.5, True),
    VoteRequest(4, 10, 3, True),
    Vote(4),
    PreVoteRequest(4, 10, 3, 17),
    PreVote(3, 17, True, 12.5),
    TimeoutNow(3),
    Term(3),
    Term(3, asks=True),
    SnapshotChunk(3, 9, 1234.5, 64, 2, 5000, 256, b"chunk"),
    SnapshotAck(3, 64, 256, 1234.5, True, True),
    DivergedMessage(3, POINT, True),
]


@pytest.mark.parametrize("message", EACH, ids=lambda message: type(message).__name__)
def test_what_is_said_arrives(message: Message) -> None:
    assert decode(message.encode()) == message


@pytest.mark.parametrize("message", EACH, ids=lambda message: type(message).__name__)
def test_fields_of_a_later_version_are_ignored(message: Message) -> None:
    fields = msgpack.unpackb(message.encode())
    if isinstance(message, Ack) and not message.obstacle:
        fields.append(0)  # it is left out only if no later field follows
    assert decode(msgpack.packb([*fields, "a later field"])) == message


def _others(value: Any) -> list[object]:
    """Return values of wrong types or ranges for a field."""
    found: list[object] = ["text", [1], {"a": 1}, -2]
    if not isinstance(value, bytes):
        found.append(b"bytes")
    if type(value) is int:
        found += [1.5, True, 2**63, None]
    if type(value) is float:
        found += [None, True]
    if type(value) is bool:
        found += [None, 1]
    return found


def test_fields_of_other_types_are_refused() -> None:
    count = 0
    for message in EACH:
        fields = msgpack.unpackb(message.encode())
        for place in range(1, len(fields)):
            if fields[place] is None:
                continue
            for other in _others(fields[place]):
                if isinstance(fields[place], list) and other == [1]:
                    other = [1, 2, 3]  # a checkpoint of other types
                with pytest.raises(BadMessage):
                    decode(msgpack.packb([*fields[:place], other, *fields[place + 1 :]]))
                count += 1
    assert count > 300


@given(st.one_of(st.binary(max_size=200), st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.binary(max_size=9)),
    lambda inner: st.lists(inner, max_size=12), max_leaves=12,
).map(msgpack.packb)))  # fmt: skip
@example(b"")
@example(b"\x93\x01\x02")
def test_bytes_are_a_message_or_refused(payload: bytes) -> None:
    try:
        message = decode(payload)
    except BadMessage:
        return
    assert dataclasses.is_dataclass(message)


# A faulty peer that knows the secret


def _peers() -> ReplicaCluster:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(70)
    cluster.settle()
    return cluster


WORLD = _peers()
LIMIT = st.integers(-1, 200) | st.just(2**63 - 1)


@given(
    st.sampled_from(WORLD.voters),
    st.binary(max_size=120),
    LIMIT,
    LIMIT,
    LIMIT,
    st.sampled_from([0.0, 999.0, 5e14, -1.0]),
)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=150)
def test_impossible_numbers_and_frames_change_nothing(
    number: int, frames: bytes, one: int, other: int, third: int, sent_ms: float
) -> None:
    """They come in the present term, from a follower to the leader and from the leader to followers."""
    cluster = WORLD
    leader = cluster.elect()
    node = cluster.nodes[number]
    term, last = leader.replica.term, node.replica.last_index
    peer = leader.number if node is not leader else cluster.followers()[0].number
    said: list[Message]
    if node is leader:
        said = [
            Ack(term, max(0, one), max(0, other), sent_ms),
            Reject(term, one, other, third, third, sent_ms),
            SnapshotAck(term, one, other, sent_ms, False, bool(third % 2)),
            PreVote(term, 1, True, max(0.0, sent_ms)),
        ]
        if one <= last:  # a plausible acknowledgement is accepted
            said.pop(0)
    else:
        said = [
            Append(term, max(0, one), max(0, other), 0, sent_ms, frames),
            Append(term, last, node.log_terms()[-1], 0, sent_ms, frames or b"x"),
            SnapshotChunk(term, 0, sent_ms, one, max(0, other), third, 0, frames),
        ]
    for message in said:
        node.replica.peer_message(peer, message.encode())
    cluster.advance(5)
    assert all(each.is_up for each in cluster.nodes.values())
    assert node.replica.last_index >= last
    assert not leader.replica.leadership.has_lease(cluster.now_ms + 1000)
    assert messages.decode(Term(term).encode()) == Term(term)
