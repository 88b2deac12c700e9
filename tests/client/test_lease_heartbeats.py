"""The member of a lease: it asks for tokens, takes nothing without one, and keeps each to the end."""

from __future__ import annotations

from typing import Any

import pytest

from client.core.requests import RequestFailure
from client.core.types import TopicPartition
from tests.client.heartbeat_script import ORDERS, HeartbeatScript, named_as_owned
from wire.apis import ApiKey
from wire.messages import extended_consumer_group_heartbeat as extended

NONE = -1
ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


class LeaseScript(HeartbeatScript):
    """A coordinator by hand that gives tokens."""

    def give(self, tokens: dict[int, int] | None, epoch: int = 1) -> None:
        """Answer the heartbeat that waits, with these tokens by partition."""
        given = None
        if tokens is not None:
            topic = extended.AssignedTopicPartitions(
                topic_id=ORDERS, partitions=list(tokens), fencing_tokens=list(tokens.values())
            )
            given = extended.Assignment(assigned_topic_partitions=[topic])
        answer = extended.ExtendedConsumerGroupHeartbeatResponse(
            member_id="m1", member_epoch=epoch, heartbeat_interval_ms=5_000, assignment=given
        )
        self.member.answer(self.asked.pop(0), answer)
        self.agenda.run(0)

    def settled(self, tokens: dict[int, int]) -> LeaseScript:
        self.member.subscribe("orders", leases=True)
        self.give(tokens)
        self.give(None)
        assert self.member.state == "STABLE"
        return self

    def beat(self) -> Any:
        """Let the interval pass. Returns the heartbeat that is sent."""
        self.agenda.run(5_000)
        return self.next()

    @property
    def has(self) -> dict[TopicPartition, int]:
        application = self.member.application
        return {part: application.tokens[part] for part in application.has}


def test_every_heartbeat_asks_for_tokens_in_the_version_that_has_them() -> None:
    script = LeaseScript()
    script.member.subscribe("orders", leases=True)
    for _ in range(2):
        (request,) = script.asked
        assert (request.api, request.versions) == (ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, (1, 1))
        assert script.next().fencing_tokens
        script.give({0: 7, 1: 7} if script.next().member_epoch == 0 else None)
    assert script.has == {ZERO: 7, ONE: 7}
    assert script.beat().fencing_tokens


def test_a_server_without_tokens_ends_the_member_in_one_sentence() -> None:
    script = LeaseScript()
    script.member.subscribe("orders", leases=True)
    script.fail(RequestFailure.UNSUPPORTED_VERSION)
    script.agenda.run(0)
    (error,) = script.member.application.errors
    assert str(error).startswith("The coordinator gives no fencing tokens")
    assert script.member.state == "FATAL"
    assert not script.asked, "it does not fall back to a heartbeat without tokens"


def test_a_partition_whose_token_has_changed_is_taken_back_first() -> None:
    """The answer that took it away was lost; the partition was given again."""
    script = LeaseScript().settled({0: 7, 1: 7})
    script.member.application.holds_callbacks = True
    script.beat()
    script.give({0: 7, 1: 9})
    assert script.member.application.told[-1] == "revoking orders:1"
    assert named_as_owned(script.beat()) in (None, {ORDERS: [0, 1]}), "it is not given up to the coordinator"
    script.give(None)
    script.member.application.end_callback()
    script.agenda.run(0)
    assert script.has == {ZERO: 7, ONE: 9}


def test_a_partition_without_a_token_is_named_and_not_taken() -> None:
    """The coordinator assigns it once more only to hear whether the member had it, and then revokes it."""
    script = LeaseScript().settled({0: 7})
    script.beat()
    script.give({0: 7, 1: NONE})
    assert named_as_owned(script.next()) == {ORDERS: [0, 1]}
    script.give({0: 7})
    assert script.member.state in ("STABLE", "ACKNOWLEDGING")
    assert script.has == {ZERO: 7}
    if script.asked:
        script.give(None)
    assert not script.asked, "and there is no storm of heartbeats"


def test_a_held_partition_that_is_to_be_revoked_keeps_its_token_until_then() -> None:
    script = LeaseScript().settled({0: 7, 1: 7})
    script.beat()
    script.give({0: 7, 1: NONE})
    assert script.has == {ZERO: 7, ONE: 7}
    assert script.member.application.told[-1].startswith("assigned")


@pytest.mark.parametrize("token", [6, 7])
def test_a_token_that_does_not_rise_ends_the_member(token: int) -> None:
    """The cluster's log was replaced by an older copy: stores would refuse the writes, or take old ones."""
    script = LeaseScript().settled({0: 7})
    script.beat()
    script.give({})
    script.give({0: token})
    (error,) = script.member.application.errors
    assert "replaced by an older copy" in str(error)
    assert script.member.state == "FATAL"
