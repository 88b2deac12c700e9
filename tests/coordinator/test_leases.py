"""Fencing tokens: equal for a holder while it holds, higher for every later one, whatever happens between."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from records import LEASES_SINCE, RecordType
from tests.support.embedded_member import EmbeddedConsumer
from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import TopicPartitions
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.extended_consumer_group_heartbeat import (
    ExtendedConsumerGroupHeartbeatRequest,
    ExtendedConsumerGroupHeartbeatResponse,
)

Leases = dict[int, int]
"""Partition → token."""


@pytest.fixture
def world() -> World:
    world = World()
    world.catalog.view.format_level = LEASES_SINCE
    world.create_topic("orders", 4)
    return world


class HeartbeatRefused(Exception):
    """A heartbeat was answered with an error."""


@dataclass
class Holder:
    """A member that asks for tokens and takes up what it is given."""

    world: World
    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    leases: Leases = field(default_factory=dict)

    def beat(self, *, asks: bool = True) -> Leases:
        topic = self.world.catalog.view.topic("orders")
        assert topic is not None
        joins = not self.epoch
        owned = [TopicPartitions(topic_id=topic.topic_id, partitions=sorted(self.leases))]
        answer = self.ask(
            self.epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=["orders"] if joins else None,
            topic_partitions=owned if self.leases else [],
            fencing_tokens=asks,
        )
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.leases = {
                number: token
                for one in answer.assignment.assigned_topic_partitions
                for number, token in zip(one.partitions, one.fencing_tokens, strict=True)
            }
        return self.leases

    def settle(self, *others: Holder) -> Leases:
        for _ in range(4):
            for one in (self, *others):
                one.beat()
        return self.leases

    def leave(self, *, for_good: bool = True) -> None:
        self.ask(-1 if for_good else -2)

    def ask(self, epoch: int, **fields: Any) -> ExtendedConsumerGroupHeartbeatResponse:
        request = ExtendedConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id, **fields
        )
        answer = self.world.beat(ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert isinstance(answer, ExtendedConsumerGroupHeartbeatResponse)
        if answer.error_code:
            raise HeartbeatRefused(ErrorCode(answer.error_code), answer.error_message)
        return answer


def test_a_token_is_the_index_of_the_entry_that_gave_the_partition(world: World) -> None:
    ann = Holder(world, "ann")
    ann.beat()
    given = [entry for entry in world.log if RecordType.MEMBER_LEASES in entry.types]
    assert ann.leases == dict.fromkeys(range(4), given[-1].index)
    assert RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT in given[-1].types


def test_a_holder_keeps_its_tokens_and_another_gets_higher_ones(world: World) -> None:
    ann, bob = Holder(world, "ann"), Holder(world, "bob")
    before = dict(ann.settle())
    bob.settle(ann)
    assert set(ann.leases) | set(bob.leases) == set(before)
    assert not set(ann.leases) & set(bob.leases)
    assert all(ann.leases[number] == before[number] for number in ann.leases)
    assert all(bob.leases[number] > before[number] for number in bob.leases)
    entries = len(world.log)
    ann.settle(bob)
    assert len(world.log) == entries


def test_the_successor_of_a_static_member_gets_higher_tokens_for_the_same_partitions(world: World) -> None:
    ann = Holder(world, "ann-1", instance_id="ann")
    before = dict(ann.settle())
    ann.leave(for_good=False)
    successor = Holder(world, "ann-2", instance_id="ann")
    after = successor.settle()
    assert after.keys() == before.keys()
    assert min(after.values()) > max(before.values())


def test_a_member_that_joins_again_gets_higher_tokens(world: World) -> None:
    ann = Holder(world, "ann")
    before = dict(ann.settle())
    ann.epoch, ann.leases = 0, {}
    assert min(ann.settle().values()) > max(before.values())


def test_a_group_that_is_deleted_and_made_again_gives_higher_tokens(world: World) -> None:
    ann = Holder(world, "ann")
    before = dict(ann.settle())
    ann.leave()
    assert world.log[-1].types[:1] == [-RecordType.MEMBER_LEASES]
    world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    again = Holder(world, "ann")
    assert min(again.settle().values()) > max(before.values())


def test_tokens_survive_a_failover(world: World) -> None:
    ann = Holder(world, "ann")
    before = dict(ann.settle())
    world.failover()
    assert ann.settle() == before
    ann.epoch, ann.leases = 0, {}
    assert min(ann.settle().values()) > max(before.values())


def test_a_heartbeat_that_does_not_ask_ends_the_leases(world: World) -> None:
    """Otherwise a partition that was lost and given back meanwhile would have its old token."""
    ann = Holder(world, "ann")
    before = dict(ann.settle())
    ann.beat(asks=False)
    assert world.log[-1].types == [-RecordType.MEMBER_LEASES]
    world.heartbeat("ann", ann.epoch)  # the stock heartbeat
    ann.beat()
    tokens = world.group().members["ann"].tokens
    assert min(token for of_topic in tokens.values() for token in of_topic.values()) > max(before.values())


def test_a_member_that_begins_to_ask_is_told_its_tokens_at_once(world: World) -> None:
    ann = Holder(world, "ann")
    ann.settle()
    ann.beat(asks=False)
    told = ann.ask(ann.epoch, fencing_tokens=True).assignment
    assert told is not None
    (topic,) = told.assigned_topic_partitions
    assert topic.fencing_tokens == [world.log[-1].index] * 4
    assert ann.ask(ann.epoch, fencing_tokens=True).assignment is None


def test_a_member_that_was_a_classic_one_meanwhile_gets_higher_tokens(world: World) -> None:
    """It may come back with its epoch, without a join, after others had its partitions."""
    ann, bob = Holder(world, "ann"), Holder(world, "bob")
    before = dict(ann.settle())
    world.join("stock", topics=["another"])  # so that the group keeps its protocol
    classic = EmbeddedConsumer(world, "ann")
    classic.member_id = "ann"
    others: Leases = {}
    for number in range(18):
        if number == 12:
            bob.leave()
        classic.poll()
        if 4 <= number < 12:
            others |= bob.beat()
        world.work()
    ann.epoch = classic.generation
    answer = ann.ask(ann.epoch, fencing_tokens=True, topic_partitions=[])
    assert answer.assignment is not None
    (topic,) = answer.assignment.assigned_topic_partitions
    after = dict(zip(topic.partitions, topic.fencing_tokens, strict=True))
    assert before.keys() & after.keys() & others.keys()
    assert all(token > others.get(number, 0) for number, token in after.items())


def test_stock_members_cost_nothing(world: World) -> None:
    world.join("bob")
    assert all(RecordType.MEMBER_LEASES not in entry.types for entry in world.log)


def test_before_all_nodes_can_read_them_tokens_are_refused(world: World) -> None:
    world.catalog.view.format_level = LEASES_SINCE - 1
    with pytest.raises(HeartbeatRefused, match="quorate cluster upgrade") as refused:
        Holder(world, "ann").beat()
    assert refused.value.args[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not world.log


@pytest.mark.parametrize("seed", range(40))
def test_tokens_only_rise_in_any_order_of_events(seed: int) -> None:
    """Members leave, expire, are replaced and join again, and leaders change."""
    rng = random.Random(seed)
    world = World()
    world.catalog.view.format_level = LEASES_SINCE
    world.create_topic("orders", 6)
    highest: dict[tuple[bytes, int], tuple[int, str]] = {}
    holders = [Holder(world, f"h{number}", instance_id="s" if number == 0 else None) for number in range(4)]
    lives = len(holders)
    for _ in range(120):
        holder = rng.choice(holders)
        act = rng.random()
        if act < 0.75:
            held = dict(holder.leases)
            try:
                holder.beat()
            except HeartbeatRefused:
                holder.epoch, holder.leases = 0, {}
                continue
            topic = world.catalog.view.topic("orders")
            assert topic is not None
            for number, token in holder.leases.items():
                seen, by = highest.get((topic.topic_id, number), (0, ""))
                assert token > seen or (token == seen and by == holder.member_id and number in held)
                highest[topic.topic_id, number] = token, holder.member_id
        elif act < 0.85 and holder.epoch > 0:
            with suppress(HeartbeatRefused):  # its session has expired
                holder.leave(for_good=holder.instance_id is None or rng.random() < 0.5)
            lives += 1
            place = holders.index(holder)
            holders[place] = Holder(world, f"h{lives}", holder.instance_id)
        elif act < 0.92:
            world.failover()
        elif act < 0.96:
            world.sleep(60_000)
        else:
            holder.epoch, holder.leases = 0, {}
