"""C.8 Only a revocation that was sent can be acknowledged: late replies, heartbeats with older
assignments."""

from __future__ import annotations

from typing import Any

import pytest

from records import MemberState, Trigger
from tests.support.world import FIRST_TOPIC, World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from wire.messages.extended_consumer_group_heartbeat import ExtendedConsumerGroupHeartbeatRequest

ALL, KEPT, TAKEN = set(range(12)), set(range(6)), set(range(6, 12))
UNREVOKED, STABLE = MemberState.UNREVOKED_PARTITIONS, MemberState.STABLE


def says(
    world: World, owned: set[int], epoch: int = 1, *, is_full: bool = True, who: str = "a"
) -> tuple[int, set[int] | None]:
    """Send a heartbeat with owned partitions; return the reply's epoch and partitions (None: unchanged)."""
    fields: dict[str, Any] = {"owned": {FIRST_TOPIC: owned}}
    if is_full:
        fields |= {"subscribed_topic_names": ["orders"], "rebalance_timeout_ms": 60_000}
    return heard(world.heartbeat(who, epoch, **fields))


def heard(answer: Any) -> tuple[int, set[int] | None]:
    assert answer.error_code == 0
    if answer.assignment is None:
        return answer.member_epoch, None
    return answer.member_epoch, {
        one for part in answer.assignment.topic_partitions for one in part.partitions
    }


def given_to_b(world: World) -> set[int] | None:
    """Return the partitions that b's next heartbeat brings."""
    return heard(world.heartbeat("b", 2))[1]


def state(world: World) -> tuple[MemberState, int]:
    current = world.group().members["a"].current
    return current.state, current.epoch


@pytest.fixture
def joined(world: World) -> World:
    """`a` was assigned everything and has not reported it yet; the target gives half to `b`."""
    assert heard(world.join("a")) == (1, ALL)
    assert heard(world.join("b")) == (2, set())
    return world


def test_a_report_from_before_the_reply_was_taken_up_gives_nothing_away(joined: World) -> None:
    """A report acknowledges only a revocation that was sent; this costs one more heartbeat."""
    assert says(joined, set()) == (1, ALL)
    assert state(joined) == (UNREVOKED, 1)
    assert given_to_b(joined) is None
    assert says(joined, ALL, is_full=False) == (1, KEPT)  # now it has adopted the assignment of its join
    assert given_to_b(joined) is None
    assert says(joined, KEPT, is_full=False) == (2, None)
    assert given_to_b(joined) == TAKEN


def test_a_member_that_never_took_them_up_acknowledges_with_what_it_keeps(joined: World) -> None:
    """The newest reply replaced the one before, as in Kafka's Java client. Or the member never received it,
    reports an older assignment and is about to adopt ALL, so the reply says once more what it keeps."""
    assert heard(joined.heartbeat("a", 1)) == (1, KEPT)
    assert says(joined, KEPT, is_full=False) == (2, KEPT)
    assert given_to_b(joined) == TAKEN


def test_a_member_that_takes_up_what_it_should_revoke_is_told_again(joined: World) -> None:
    """The reply that said so was lost. What the member reports is not what that reply said."""
    assert heard(joined.heartbeat("a", 1)) == (1, KEPT)
    assert says(joined, ALL, is_full=False) == (1, None)
    joined.sleep(1_000)
    assert heard(joined.heartbeat("a", 1)) == (1, KEPT)
    assert says(joined, KEPT, is_full=False) == (2, None)
    assert given_to_b(joined) == TAKEN


def test_a_report_of_an_older_assignment_acknowledges_nothing(joined: World) -> None:
    """Clients adopt one assignment after another. This one reports the previous one and is about to adopt the
    last. Until it is sent a revocation, no smaller report is an acknowledgement."""
    assert says(joined, set()) == (1, ALL)
    for older in ({0}, KEPT, {0, 1}):
        assert says(joined, older, is_full=False) == (1, ALL)
        assert given_to_b(joined) is None
    assert says(joined, ALL, is_full=False) == (1, KEPT)
    assert says(joined, KEPT, is_full=False) == (2, None)
    assert given_to_b(joined) == TAKEN


def test_a_reply_that_was_lost_is_given_again_until_the_member_has_it(joined: World) -> None:
    """A member that never received its partitions and one that is about to adopt them send the same report.
    Both are given the partitions first and told to revoke them afterwards."""
    for _ in range(20):
        assert says(joined, set()) == (1, ALL)
        assert heard(joined.heartbeat("a", 1)) == (1, None)
        assert given_to_b(joined) is None
    for _ in range(2):
        assert says(joined, ALL) == (1, KEPT)
    assert says(joined, KEPT) == (2, KEPT)
    assert given_to_b(joined) == TAKEN


def test_what_was_given_at_the_same_epoch_in_a_reply_that_was_lost(world: World) -> None:
    """A free partition comes without a new epoch, the reply is lost, and the next target gives the partition
    to another member. If it were not sent again, the member would have nothing to report, and would be fenced
    by its rebalance timeout."""
    world.join("a")
    says(world, ALL, is_full=False)
    world.join("b")
    world.heartbeat("a", 1)
    says(world, KEPT, is_full=False)
    world.heartbeat("b", 2)
    says(world, TAKEN, 2, is_full=False, who="b")
    world.heartbeat("b", -1)
    assert heard(world.heartbeat("a", 2)) == (3, ALL)
    says(world, ALL, 3, is_full=False)
    world.join("c")
    assert heard(world.heartbeat("a", 3)) == (3, KEPT)
    assert heard(world.heartbeat("c", 4)) == (4, None)
    assert says(world, KEPT, 3, is_full=False) == (4, None)
    assert heard(world.heartbeat("c", 4)) == (4, TAKEN)  # lost
    world.join("d")
    given = says(world, set(), 4, who="c")
    assert given == (4, TAKEN)
    epoch, left = says(world, TAKEN, 4, is_full=False, who="c")
    assert (epoch, left) == (4, {6, 7, 8, 9})
    assert says(world, {6, 7, 8, 9}, 4, is_full=False, who="c")[0] == 5


@pytest.mark.parametrize("is_full", [True, False])
@pytest.mark.parametrize("left", [KEPT, {0}, set()], ids=len)
def test_a_member_that_had_them_acknowledges_by_what_it_has_left(
    world: World, left: set[int], is_full: bool
) -> None:
    """The ordinary path: told to revoke, revoked, reported; no more heartbeats than in Kafka."""
    world.join("a")
    says(world, ALL, is_full=False)
    world.join("b")
    assert heard(world.heartbeat("a", 1)) == (1, KEPT)
    assert says(world, left, is_full=is_full)[0] == 2
    assert given_to_b(world) == TAKEN


def test_nothing_left_acknowledges_once_it_was_told(joined: World) -> None:
    """A heartbeat with owned partitions only answers the revocation that was sent."""
    assert heard(joined.heartbeat("a", 1)) == (1, KEPT)
    assert says(joined, set(), is_full=False)[0] == 2
    assert given_to_b(joined) == TAKEN


def test_who_joins_anew_owns_nothing(joined: World) -> None:
    """Epoch 0: the new process does not use what was on its way to the former one."""
    says(joined, set())
    assert heard(joined.join("a")) == (2, KEPT)
    assert given_to_b(joined) == TAKEN


def test_what_came_with_a_reply_that_was_lost_was_never_had(world: World) -> None:
    """At the previous epoch the member has received nothing newer, so nothing newer needs a revocation."""
    world.join("a")
    says(world, ALL, is_full=False)
    world.join("b")
    world.heartbeat("a", 1)
    says(world, KEPT, is_full=False)
    world.heartbeat("b", -1)
    assert heard(world.heartbeat("a", 2)) == (3, ALL)  # lost
    world.join("b")
    assert says(world, KEPT, 2) == (4, KEPT)
    assert state(world) == (STABLE, 4)
    assert heard(world.heartbeat("b", 4))[1] == TAKEN


def test_what_came_with_a_reply_that_arrived_must_be_revoked(world: World) -> None:
    """At the epoch of that reply it has arrived and is about to be adopted."""
    world.join("a")
    says(world, ALL, is_full=False)
    world.join("b")
    world.heartbeat("a", 1)
    says(world, KEPT, is_full=False)
    world.heartbeat("b", -1)
    assert heard(world.heartbeat("a", 2)) == (3, ALL)
    world.join("b")
    for _ in range(2):
        assert says(world, KEPT, 3) == (3, ALL)
        assert state(world) == (UNREVOKED, 3)
    assert says(world, ALL, 3, is_full=False) == (3, KEPT)
    assert says(world, KEPT, 3, is_full=False) == (4, None)


def test_an_acknowledgement_survives_the_leader_that_told(world: World) -> None:
    """The log shows that the member had reported the partitions that it is to revoke, so any leader may trust
    its full report."""
    world.join("a")
    says(world, ALL, is_full=False)
    world.join("b")
    world.heartbeat("a", 1)
    world.failover()
    assert says(world, KEPT) == (2, KEPT)
    assert given_to_b(world) == TAKEN


@pytest.mark.parametrize("is_full", [True, False])
def test_a_new_leader_gives_again_what_the_member_had_not_reported(joined: World, is_full: bool) -> None:
    """Its report may be an acknowledgement, or come from a program that has not polled since the assignment.
    A new leader cannot know which, nor what the former leader sent last."""
    assert heard(joined.heartbeat("a", 1)) == (1, KEPT)
    joined.failover()
    for _ in range(3):
        assert says(joined, KEPT, is_full=is_full) == (1, ALL)
        assert not given_to_b(joined)
    assert says(joined, ALL, is_full=False) == (1, KEPT)
    joined.failover()  # by now the log shows that it had them
    assert says(joined, KEPT) == (2, KEPT)
    assert given_to_b(joined) == TAKEN


def test_a_new_leader_tells_what_the_one_before_may_not_have_told(joined: World) -> None:
    """The former leader assigned the partitions again; the report that the member has them reaches the new
    one."""
    assert says(joined, set()) == (1, ALL)
    joined.failover()
    assert says(joined, ALL, is_full=False) == (1, KEPT)
    assert says(joined, KEPT, is_full=False) == (2, None)


def test_a_static_member_that_comes_back_had_nothing(world: World) -> None:
    """Its successor joins with epoch 0; partitions pending revocation were released when the member left."""
    world.join("a", instance_id="i")
    world.join("b")
    assert heard(world.heartbeat("a", 1)) == (1, KEPT)
    world.heartbeat("a", -2, instance_id="i")
    assert heard(world.join("a2", instance_id="i")) == (2, KEPT)
    assert given_to_b(world) == TAKEN
    assert says(world, set(), 2, who="a2") == (2, KEPT)  # not adopted yet
    world.join("c")
    assert says(world, set(), 2, who="a2") == (2, KEPT)
    assert heard(world.heartbeat("c", 3))[1] is None


def test_the_extended_heartbeat_knows_the_same_rule(world: World) -> None:
    """Its rule is that of the stock heartbeat."""

    def beats(member_id: str, epoch: int, **fields: Any) -> Any:
        request = ExtendedConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch, **fields
        )
        return world.beat(ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, 0, request)

    def given(answer: Any) -> tuple[int, set[int]]:
        parts = answer.assignment.assigned_topic_partitions
        return answer.member_epoch, {one for part in parts for one in part.partitions}

    full: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"], "topic_partitions": [],
    }  # fmt: skip
    beats("a", 0, **full)
    beats("b", 0, **full)
    assert given(beats("a", 1, **full)) == (1, ALL)
    assert state(world) == (UNREVOKED, 1)
    assert beats("a", 1).assignment is None
    everything = [TopicPartitions(topic_id=FIRST_TOPIC, partitions=sorted(ALL))]
    assert given(beats("a", 1, topic_partitions=everything)) == (1, KEPT)
    kept = [TopicPartitions(topic_id=FIRST_TOPIC, partitions=sorted(KEPT))]
    assert beats("a", 1, topic_partitions=kept).member_epoch == 2


def test_commits_go_by_what_the_member_still_owns(joined: World) -> None:
    """KIP-1251 goes by assignment epochs: nothing is refused until partitions move; then the previous epoch
    commits only the partitions that were kept."""
    says(joined, set())
    taken, kept = {("orders", 6): 1}, {("orders", 0): 1}
    assert set(joined.commit(taken | kept, member_id="a", epoch=1).values()) == {0}
    says(joined, ALL, is_full=False)
    assert set(joined.commit(taken | kept, member_id="a", epoch=1).values()) == {0}
    says(joined, KEPT, is_full=False)
    assert given_to_b(joined) == TAKEN
    assert set(joined.commit(kept, member_id="a", epoch=1).values()) == {0}
    assert set(joined.commit(taken, member_id="a", epoch=1).values()) == {ErrorCode.STALE_MEMBER_EPOCH}


def test_an_acknowledgement_is_named_as_such_and_nothing_else_is(joined: World) -> None:
    """The cause in the log is an acknowledgement only if a revocation was sent."""
    says(joined, set())
    entries = len(joined.log)
    says(joined, set())
    assert len(joined.log) == entries
    for _ in range(2):
        says(joined, ALL, is_full=False)
        assert len(joined.log) == entries + 1  # that it has them now is noted, once
    assert {entry.cause.trigger for entry in joined.log[entries - 1 :]} == {Trigger.HEARTBEAT}
    says(joined, KEPT, is_full=False)
    assert joined.log[-1].cause.trigger == Trigger.MEMBER_ACKED


def test_a_topic_without_partitions_says_nothing_else_than_no_topic(joined: World) -> None:
    """Reports are compared by their partitions."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="a", member_epoch=1, rebalance_timeout_ms=60_000,
        subscribed_topic_names=["orders"], topic_partitions=[],
    )  # fmt: skip
    assert heard(joined.beat(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)) == (1, ALL)
    request.topic_partitions = [TopicPartitions(topic_id=FIRST_TOPIC, partitions=[])]
    assert heard(joined.beat(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)) == (1, ALL)
    assert state(joined) == (UNREVOKED, 1)


def test_what_a_member_never_had_is_not_kept_in_memory(joined: World) -> None:
    """A report may be as large as a request; no more of it is kept than the member owns."""
    strange = {FIRST_TOPIC: range(100_000), b"?" * 16: range(1_000)}
    joined.heartbeat("a", 1, owned=strange)
    (kept,) = (owned for key, owned in joined.shard.groups.reports.last.items() if key == ("g", "a"))
    assert {topic_id: set(numbers) for topic_id, numbers in kept.items()} == {FIRST_TOPIC: ALL}
    joined.heartbeat("a", -1)
    assert ("g", "a") not in joined.shard.groups.reports.last


EIGHT = set(range(8))


@pytest.fixture
def grown() -> World:
    """`a` has not yet adopted {0-3}, which came with its join. {4-7} came next, and are to go to `b`; the
    reply that says so is lost."""
    world = World()
    world.create_topic("orders", 4)
    assert heard(world.join("a")) == (1, set(range(4)))
    world.grow_topic("orders", 8)
    assert heard(world.heartbeat("a", 1)) == (2, EIGHT)
    world.join("b")
    assert heard(world.heartbeat("a", 2)) == (2, set(range(4)))
    return world


def given_in_vain(world: World) -> set[int] | None:
    return heard(world.heartbeat("b", 3))[1]


def test_a_full_report_of_an_older_assignment_acknowledges_nothing(grown: World) -> None:
    """The report differs from the one before. The member, like Kafka's Java client, adopts the next
    assignment as soon as its request is sent."""
    assert says(grown, set(range(4)), 2) == (2, EIGHT)
    assert given_in_vain(grown) is None


def test_a_leader_that_the_member_did_not_notice_does_not_believe_an_older_assignment(grown: World) -> None:
    """The former leader assigned all of them again, unknown to the new one; the member has yet to adopt
    them."""
    assert says(grown, set(), 2) == (2, EIGHT)
    grown.lead_again()
    assert says(grown, set(range(4)), 2, is_full=False) == (2, EIGHT)
    assert not given_in_vain(grown)


def test_a_leader_that_the_member_did_not_notice_tells_it_what_to_give_up(grown: World) -> None:
    """The former leader assigned all of them again; the report that the member has them reaches the new
    one."""
    assert says(grown, set(), 2) == (2, EIGHT)
    grown.lead_again()
    assert says(grown, EIGHT, 2, is_full=False) == (2, set(range(4)))
    assert says(grown, set(range(4)), 2, is_full=False) == (3, None)


def test_what_is_left_of_a_deleted_topic_is_not_given_again(world: World) -> None:
    """No client can adopt it, as its name cannot be looked up, and no other member subscribes to it."""
    world.create_topic("events", 2)
    world.join("a", topics=["orders", "events"])
    world.delete_topic("events")
    fields: dict[str, Any] = {
        "subscribed_topic_names": ["orders", "events"], "rebalance_timeout_ms": 60_000, "owned": {},
    }  # fmt: skip
    given = world.heartbeat("a", 1, **fields).assignment
    assert given is not None
    assert [part.topic_id for part in given.topic_partitions] == [FIRST_TOPIC]
    says(world, ALL, is_full=False)
    assert state(world)[0] is STABLE
