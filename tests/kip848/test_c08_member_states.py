"""C.8 The member state machine, driven through heartbeats."""

from __future__ import annotations

from records import MemberState
from tests.support.group_client import Client, settle
from tests.support.world import World
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions


def state_of(world: World, member_id: str) -> tuple[str, int]:
    current = world.group().members[member_id].current
    return current.state.name, current.epoch


def test_a_partition_moves_through_all_states_of_both_members(world: World) -> None:
    """STABLE → UNREVOKED at the same epoch → acked → STABLE at the target; the joiner waits in UNRELEASED."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    assert state_of(world, "a") == ("STABLE", 1)
    b.beat()
    assert state_of(world, "b") == ("UNRELEASED_PARTITIONS", 2)
    a.beat()
    assert state_of(world, "a") == ("UNREVOKED_PARTITIONS", 1)
    a.beat()
    assert state_of(world, "a") == ("STABLE", 2)
    b.beat()
    assert state_of(world, "b") == ("STABLE", 2)


def test_an_unacked_revocation_waits(world: World) -> None:
    """UNREVOKED: if owned is null or owned ∩ pending ≠ ∅ → no change, no record."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    entries = len(world.log)
    answer = a.beat(acknowledge=False)
    assert answer.assignment is None
    topic = world.catalog.view.topic("orders").topic_id
    world.heartbeat("a", 1, owned={topic: range(12)})
    assert state_of(world, "a") == ("UNREVOKED_PARTITIONS", 1)
    assert len(world.log) == entries


def test_an_ack_that_leads_to_more_revocations_keeps_the_epoch(world: World) -> None:
    """UNREVOKED, acked, newer target wants more revoked → UNREVOKED, same epoch (KAFKA-19974)."""
    a = Client(world, "a")
    a.beat()
    Client(world, "b").beat()
    a.beat()
    Client(world, "c").beat()
    a.beat()
    assert state_of(world, "a") == ("UNREVOKED_PARTITIONS", 1)
    a.beat()
    assert state_of(world, "a") == ("STABLE", 3)


def test_given_back_before_it_was_taken(world: World) -> None:
    """KAFKA-19449: what only the member's own pending revocation holds is not blocked for it."""
    topic = world.catalog.view.topic("orders").topic_id
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    b.leave()
    a.beat()
    assert state_of(world, "a") == ("STABLE", 3)
    assert a.partitions(topic) == list(range(12))


def test_an_unreleased_member_may_have_to_revoke(world: World) -> None:
    """UNRELEASED, newer target revokes → UNREVOKED, same epoch."""
    world.create_topic("more", 6)
    a = Client(world, "a", topics=("orders", "more"))
    b = Client(world, "b", topics=("orders", "more"))
    a.beat()
    b.beat()
    a.beat()
    a.beat()
    b.beat()
    epoch = b.epoch
    c = Client(world, "c", topics=("orders", "more"))
    c.beat()
    b.beat()
    assert state_of(world, "b")[0] == "UNREVOKED_PARTITIONS"
    assert state_of(world, "b")[1] == epoch


def test_unreleased_to_unrevoked(world: World) -> None:
    """The same from UNRELEASED proper: still waiting for somebody, and then losing something itself."""
    topic = world.catalog.view.topic("orders").topic_id
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    world.grow_topic("orders", 14)
    world.work()
    b.beat()
    assert state_of(world, "b")[0] == "UNRELEASED_PARTITIONS"
    assert b.partitions(topic), "the new partitions were free at once"
    for name in "cdefgh":
        Client(world, name).beat()
    b.beat()
    assert state_of(world, "b") == ("UNREVOKED_PARTITIONS", 3)


def test_unrevoked_to_unreleased(world: World) -> None:
    """UNREVOKED, acked, partitions of the target still owned by others → UNRELEASED at the target epoch."""
    world.create_topic("more", 4)
    a = Client(world, "a", topics=("orders",))
    b = Client(world, "b", topics=("orders", "more"))
    settle([a, b], 4)
    b.subscribe(["more"])
    b.beat()
    a.beat()
    a.subscribe(["more"])
    a.beat()
    a.beat()
    assert state_of(world, "a")[0] == "UNRELEASED_PARTITIONS"
    settle([b, a])
    assert world.group().state.value == "Stable"


def test_revoked_already_means_no_stop(world: World) -> None:
    """If owned, reported now, lacks revoked partitions that the report before had, the UNREVOKED stop is
    skipped."""
    topic = world.catalog.view.topic("orders").topic_id
    world.join("a")
    world.heartbeat("a", 1, owned={topic: range(12)})
    world.join("b")
    target = world.group().target["a"].topic_partitions[0].partitions
    world.heartbeat("a", 1, owned={topic: target})
    assert state_of(world, "a") == ("STABLE", 2)


def test_unsubscribed_topics_go_at_once(world: World) -> None:
    """KAFKA-19431: with a changed subscription, partitions of unsubscribed topics move to pending at once."""
    world.create_topic("more", 4)
    world.turn = 5
    a, b = Client(world, "a", topics=("orders", "more")), Client(world, "b", topics=("orders", "more"))
    a.beat()
    a.subscribe(["orders"])
    a.beat()
    assert world.group().assignment_epoch == 1, "one target per turn: this one is still the old"
    current = world.group().members["a"].current
    assert current.state is MemberState.UNREVOKED_PARTITIONS
    more = world.catalog.view.topic("more").topic_id
    assert list(current.pending) == [more]
    world.turn = 0
    settle([a, b])
    assert sorted(b.owned[more]) == [0, 1, 2, 3]


def test_a_second_change_joins_the_revocation(world: World) -> None:
    """… in STABLE and UNREVOKED."""
    world.create_topic("more", 4)
    a, b = Client(world, "a", topics=("orders", "more")), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    orders, more = (world.catalog.view.topic(name).topic_id for name in ("orders", "more"))
    assert list(world.group().members["a"].current.pending) == [orders]
    world.heartbeat("a", 1, subscribed_topic_names=["orders"])
    assert set(world.group().members["a"].current.pending) == {orders, more}


def test_a_topic_named_twice_is_owned_as_both_say(world: World) -> None:
    """owned ∩ pending ≠ ∅ → no change: also where the pending partitions come first."""
    a = Client(world, "a")
    a.beat()
    Client(world, "b").beat()
    a.beat()
    current = world.group().members["a"].current
    ((topic_id, pending),) = current.pending.items()
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="a", member_epoch=current.epoch,
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(pending)),
            TopicPartitions(topic_id=topic_id, partitions=sorted(current.assigned[topic_id])),
        ],
    )  # fmt: skip
    assert world.handle(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request).error_code == 0
    assert world.group().members["a"].current == current
