"""E.5 Expiration: which offsets and groups end by themselves, when, and what it costs."""

from __future__ import annotations

from itertools import pairwise
from struct import pack

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cluster.runtime.slices import finished
from coordinator.leader_state.expiry import CLOCK_LOOK_MS, ExpiryTable
from coordinator.limits import GroupSettings, Limits
from records import (
    OffsetCommitKey,
    OffsetCommitValue,
    Record,
    Trigger,
    encode_record,
)
from tests.kip848.classic_groups import CHECK_MS, MINUTE_MS, classic
from tests.support.group_client import Client, settle
from tests.support.world import WALL_START_MS, Entry, World
from wire.apis import ApiKey
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

DAY_MS = 24 * 60 * MINUTE_MS
WEEK_MS = 7 * DAY_MS
ORDERS_0, ORDERS_1, MORE_0 = ("orders", 0), ("orders", 1), ("more", 0)


def with_topics(**limits: int) -> World:
    world = World(limits=Limits(**limits))
    world.create_topic("orders", 4)
    world.create_topic("more", 4)
    world.work()
    return world


def triggers(entries: list[Entry]) -> list[str]:
    return [Trigger(entry.cause.trigger).name for entry in entries]


def commit_until(world: World, offset: int, retention_ms: int, group_id: str = "g") -> None:
    """A commit of version 4, which names its own retention."""
    part = OffsetCommitRequestPartition(
        partition_index=offset, committed_offset=offset, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group_id,
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[part])],
    )
    assert world.handle(ApiKey.OFFSET_COMMIT, 4, request).topics[0].partitions[0].error_code == 0


def test_an_offset_of_no_subscription_expires_a_week_after_its_commit() -> None:
    """now − commitTimestamp ≥ retention (10 080 minutes), at the next check; a later commit counts anew."""
    world = with_topics()
    world.commit({ORDERS_0: 1, ORDERS_1: 2})
    committed_ms = WALL_START_MS + int(world.now_ms)
    world.sleep(DAY_MS)
    world.commit({ORDERS_1: 3})
    assert world.sleep(WEEK_MS - DAY_MS - 1) == []
    (entry,) = world.sleep(1)
    assert entry.types == [-1]
    assert world.fetch() == {ORDERS_1: 3}
    (expiry,) = entry.cause.expiries
    assert (entry.cause.trigger, expiry.member_id) == (Trigger.OFFSETS_EXPIRED, "")
    assert (expiry.armed_ms, expiry.timeout_ms, expiry.deadline_ms) == (
        committed_ms, WEEK_MS, committed_ms + WEEK_MS,
    )  # fmt: skip
    assert world.sleep(DAY_MS - 1) == []
    assert [entry.types for entry in world.sleep(1)] == [[-1]]
    assert not world.shard.projection.offsets.has_group("g")


def test_a_subscribed_topic_keeps_its_offsets() -> None:
    """Expires only if the topic is not subscribed by the group; unsubscribed, it goes at the next check."""
    world = with_topics()
    a = Client(world, "a", topics=("orders", "more"))
    a.beat()
    world.commit({ORDERS_0: 1, MORE_0: 2}, member_id="a", epoch=a.epoch)
    idle_beats(world, a, 3 * WEEK_MS)
    assert set(world.fetch()) == {ORDERS_0, MORE_0}
    a.subscribe(["more"])
    a.beat()
    entries = idle_beats(world, a, CHECK_MS)
    assert triggers(entries) == ["OFFSETS_EXPIRED"]
    assert set(world.fetch()) == {MORE_0}


def idle_beats(world: World, client: Client, ms: float) -> list[Entry]:
    """Let time pass with a session so long that a heartbeat a day is enough."""
    world.configure(session_timeout_ms=2 * DAY_MS)
    client.beat()
    entries = len(world.log)
    end_ms = world.now_ms + ms
    while world.now_ms < end_ms:
        world.sleep(min(DAY_MS, end_ms - world.now_ms))
        client.beat()
    return world.log[entries:]


def test_a_commit_that_names_its_retention() -> None:
    """expireTimestamp set (versions 2 to 4) → now ≥ expireTimestamp, at the next check, whatever the base."""
    world = with_topics()
    commit_until(world, 0, 2 * WEEK_MS)
    commit_until(world, 1, 30 * MINUTE_MS)
    commit_until(world, 2, 0)
    commit_until(world, 3, -1)
    assert world.sleep(CHECK_MS - 1) == []
    world.sleep(1)
    assert set(world.fetch()) == {("orders", 0), ("orders", 1), ("orders", 3)}
    world.sleep(2 * CHECK_MS)
    assert set(world.fetch()) == {("orders", 0), ("orders", 3)}
    world.sleep(WEEK_MS)
    assert set(world.fetch()) == {("orders", 0)}
    world.sleep(WEEK_MS)
    assert world.fetch() == {}


def test_a_shorter_retention_named_later_counts() -> None:
    """The group's check is moved forward when a commit names an earlier end."""
    world = with_topics()
    world.commit({ORDERS_0: 1})
    commit_until(world, 1, 2 * CHECK_MS)
    world.sleep(2 * CHECK_MS)
    assert set(world.fetch()) == {ORDERS_0}


def test_an_empty_group_without_offsets_ends_at_the_next_check() -> None:
    """All offsets gone (or none) and the group Empty → group tombstones; at most ten minutes later."""
    world = with_topics()
    a = Client(world, "a")
    a.beat()
    a.leave()
    assert world.sleep(CHECK_MS - 1) == []
    (entry,) = world.sleep(1)
    assert (entry.cause.trigger, entry.types, entry.cause.expiries) == (
        Trigger.OFFSETS_EXPIRED, [-6, -4, -3], (),
    )  # fmt: skip
    assert "g" not in world.shard.projection.groups
    assert a.beat().member_epoch == 1, "the next one begins anew"


def test_a_group_with_members_or_offsets_stays() -> None:
    """Empty *and* without offsets: a group that somebody came back to, or that has offsets, is not over."""
    world = with_topics()
    a = Client(world, "a")
    a.beat()
    world.commit({ORDERS_0: 1}, member_id="a", epoch=1)
    a.leave()
    world.sleep(CHECK_MS)
    assert "g" in world.shard.projection.groups
    a.beat()
    a.leave()
    world.delete_topic("orders")
    world.work()
    a.topics = ("more",)
    world.sleep(CHECK_MS - 1)
    a.beat()
    world.sleep(1)
    assert "g" in world.shard.projection.groups
    a.leave()
    world.sleep(CHECK_MS)
    assert "g" not in world.shard.projection.groups


def test_the_last_offset_takes_the_empty_group_with_it() -> None:
    """All offsets gone and the group Empty → its tombstones come in the same entry."""
    world = with_topics()
    a = Client(world, "a")
    a.beat()
    world.commit({ORDERS_0: 1}, member_id="a", epoch=1)
    a.leave()
    entries = world.sleep(WEEK_MS + CHECK_MS)
    assert [entry.types for entry in entries] == [[-1, -6, -4, -3]]
    assert world.replayed(len(world.log)).state_hash == world.shard.state_hash
    assert world.shard.next_deadline_ms() is None, "nothing is left to look at"


def load(world: World, *records: Record) -> None:
    for record in records:
        world.shard.apply(encode_record(record), 1)
    world.shard.on_ready(world.ctx())
    world.work()


def committed(topic: str, at_ms: int, expire_ms: int = -1) -> Record:
    value = OffsetCommitValue(
        offset=1, commit_timestamp_ms=at_ms, expire_timestamp_ms=expire_ms, topic_id=bytes(16)
    )
    return Record(OffsetCommitKey(group_id="g", topic=topic, partition=0), value)


def test_an_empty_classic_group_counts_from_when_it_became_empty() -> None:
    """Empty with protocol → currentStateTimestamp (or the commit if absent)."""
    world = with_topics()
    now = WALL_START_MS + int(world.now_ms)
    load(world, classic(now - DAY_MS), committed("orders", now - 3 * WEEK_MS))
    world.sleep(WEEK_MS - DAY_MS - 1)
    assert ("orders", 0) in world.fetch()
    world.sleep(CHECK_MS)
    assert world.fetch() == {}
    assert "g" not in world.shard.projection.groups, "it was empty, and has no offsets left"

    world = with_topics()
    load(world, classic(-1), committed("orders", now - WEEK_MS))
    world.sleep(CHECK_MS)
    assert world.fetch() == {}


def test_a_stable_classic_group_counts_from_each_commit_for_other_topics() -> None:
    """ "consumer" type, Stable with known topics → commitTimestamp."""
    world = with_topics()
    now = WALL_START_MS + int(world.now_ms)
    load(world, classic(now, "orders"), committed("orders", now - WEEK_MS), committed("more", now - WEEK_MS))
    world.sleep(CHECK_MS)
    assert set(world.fetch()) == {("orders", 0)}


@pytest.mark.parametrize(
    ("protocol_type", "subscription"),
    [
        ("connect", b"x"),
        ("consumer", b"x"),
        ("consumer", pack(">hi", 1, 9)),
        ("consumer", pack(">hih", 1, 1, 9)),
    ],
)
def test_other_classic_groups_with_members_keep_all_offsets(protocol_type: str, subscription: bytes) -> None:
    """Otherwise no expiration: another protocol, or subscriptions that cannot be read."""
    world = with_topics()
    now = WALL_START_MS + int(world.now_ms)
    group = classic(now, protocol_type=protocol_type, subscription=subscription)
    load(world, group, committed("orders", now - WEEK_MS), committed("more", now, now + 1))
    world.sleep(DAY_MS)
    assert len(world.fetch()) == 2


def test_nothing_expires_before_one_check_interval_after_a_failover() -> None:
    """The new leader checks every group once, and so finds what the former leader was to expire."""
    world = with_topics()
    world.commit({ORDERS_0: 1})
    a = Client(world, "a", group_id="empty")
    a.beat()
    a.leave()
    world.sleep(CHECK_MS // 2)
    world.failover()
    world.work()
    assert world.sleep(CHECK_MS - 1) == []
    assert [entry.types for entry in world.sleep(1)] == [[-6, -4, -3]]
    world.sleep(WEEK_MS)
    assert world.fetch() == {}


def test_a_deposed_leader_expires_nothing() -> None:
    world = with_topics()
    world.commit({ORDERS_0: 1})
    list(world.shard.on_deposed())
    assert world.shard.next_deadline_ms() is None
    assert world.sleep(2 * WEEK_MS) == []


def test_a_great_many_offsets_expire_in_slices() -> None:
    """A bounded slice per decision; between two there is a pause, and other work comes first."""
    world = with_topics(expiry_slice_max=3, expiry_pause_ms=10)
    for number in range(3):
        world.commit(
            {(topic, part): 1 for topic in ("orders", "more") for part in range(4)}, group_id=f"g{number}"
        )
    began_ms = world.now_ms
    entries = world.sleep(WEEK_MS + CHECK_MS)
    assert finished(world.shard.counting()).offsets == 0
    assert sum(len(entry.types) for entry in entries) == 24
    assert max(len(entry.types) for entry in entries) <= 3
    stamps = [entry.timestamp_ms for entry in entries]
    assert min(later - earlier for earlier, later in pairwise(stamps)) >= 10
    assert stamps[0] >= WALL_START_MS + began_ms + WEEK_MS


def test_a_group_that_is_used_is_read_once_a_week() -> None:
    """Not a scan: thousands of checks do not read the offsets of a group in which nothing can be over."""
    world = with_topics()
    a = Client(world, "a")
    a.beat()
    world.commit({ORDERS_0: 1}, member_id="a", epoch=1)
    reads: list[str] = []
    keys = world.shard.projection.offsets.keys
    world.shard.projection.offsets.keys = lambda group_id, number=None: (  # type: ignore[method-assign]
        reads.append(group_id), keys(group_id, number)
    )[1]  # fmt: skip
    for _ in range(30):
        world.commit({ORDERS_0: 1}, member_id="a", epoch=a.epoch)
        idle_beats(world, a, DAY_MS)
    assert len(reads) <= 30 / 7 + 1


def test_commits_while_the_group_is_read() -> None:
    """Commits and deletions between two slices of a reading are seen."""
    world = with_topics(expiry_slice_max=3, expiry_pause_ms=10)
    world.commit({("orders", part): 1 for part in range(4)})
    world.sleep(WEEK_MS)
    assert len(world.fetch()) in (2, 3), "the first slice is done"
    commit_until(world, 0, CHECK_MS)  # a partition that was read already
    world.commit({MORE_0: 1})
    world.sleep(100)
    assert set(world.fetch()) == {ORDERS_0, MORE_0}
    world.sleep(CHECK_MS)
    assert set(world.fetch()) == {MORE_0}
    world.sleep(WEEK_MS)
    assert world.fetch() == {}


def jump(world: World, ms: int) -> None:
    """Set the wall clock forward or back; the monotonic clock goes on."""
    ctx = world.ctx
    world.ctx = lambda **changes: ctx(**({"wall_ms": ctx().wall_ms + ms} | changes))  # type: ignore[method-assign]


def test_the_wall_clock_jumps_forward() -> None:
    """Times are the wall clock's, as in Kafka: a jump is noticed within a minute."""
    world = with_topics()
    world.commit({ORDERS_0: 1})
    jump(world, WEEK_MS)
    world.sleep(CLOCK_LOOK_MS)
    assert world.fetch() == {}


def test_the_wall_clock_jumps_back() -> None:
    """Nothing expires early, and no check is less than a minute away."""
    world = with_topics()
    world.commit({ORDERS_0: 1})
    world.sleep(WEEK_MS - 1)
    jump(world, -DAY_MS)
    looks = 0
    end_ms = world.now_ms + DAY_MS
    while (deadline := world.shard.next_deadline_ms()) is not None and deadline < end_ms:
        world.now_ms = max(world.now_ms, deadline)
        assert world.work() == []
        looks += 1
    assert looks <= DAY_MS / CLOCK_LOOK_MS + 1
    world.now_ms = end_ms
    world.sleep(CHECK_MS)
    assert world.fetch() == {}


def test_a_failure_ends_the_reading_of_that_group_alone() -> None:
    """A failure in one group must not keep the others from expiring."""
    world = with_topics()
    world.commit({ORDERS_0: 1}, group_id="bad")
    world.sleep(1)
    world.commit({ORDERS_0: 1}, group_id="good")
    committed_of = world.shard.projection.offsets.committed

    def failing(key: bytes) -> object:
        if b"bad" in key:
            raise RuntimeError("damaged")
        return committed_of(key)

    world.shard.projection.offsets.committed = failing  # type: ignore[method-assign,assignment]
    with pytest.raises(RuntimeError):
        world.sleep(WEEK_MS)
    world.sleep(CHECK_MS - 10)
    assert world.fetch("good") == {}
    with pytest.raises(RuntimeError):
        world.sleep(CHECK_MS)


def test_the_heap_does_not_grow_with_commits() -> None:
    table, world = ExpiryTable(), World()
    for number in range(10_000):
        table.expect("g", 10_000_000 - number, world.ctx())
        table.expect(f"g{number}", 10_000_000, world.ctx())
        table.forget(f"g{number}")
    assert len(table) == 1
    assert table.heap_size <= 100


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["commit", "until", "sleep", "subscribe", "leave", "failover", "delete"]),
            st.integers(0, 3),
            st.integers(0, 4),
        ),
        max_size=25,
    )
)
@example([("until", 0, 0), ("subscribe", 0, 1), ("delete", 0, 1), ("sleep", 0, 0)])
def test_against_a_scan(steps: list[tuple[str, int, int]]) -> None:
    """After any schedule, offsets that were due for more than a check interval are gone, and no others."""
    world = World(GroupSettings(session_timeout_ms=1_800_000), Limits(expiry_slice_max=2))
    for topic in ("orders", "more"):
        world.create_topic(topic, 4)
    model: dict[tuple[str, int], int] = {}  # → expires at (wall clock)
    loose_since: dict[str, float] = {"orders": 0.0, "more": 0.0}  # topics that nobody subscribes to
    a = Client(world, "a")
    last_ready_ms = world.now_ms

    def subscribed(*names: str) -> None:
        for name in names:
            loose_since.pop(name, None)
        for name in {"orders", "more"} - set(names):
            loose_since.setdefault(name, world.now_ms)

    for what, part, number in steps:
        topic = ("orders", "more")[number % 2]
        wall = WALL_START_MS + int(world.now_ms)
        match what:
            case "commit":
                world.commit({(topic, part): 1}, member_id="a" if a.epoch else "", epoch=a.epoch or -1)
                model[topic, part] = wall + WEEK_MS
            case "until" if not a.epoch:
                commit_until(world, part, number * DAY_MS)
                model["orders", part] = wall + number * DAY_MS
            case "sleep":
                for _ in range(100 * (number + 1)):
                    world.sleep(10 * MINUTE_MS)
                    if a.epoch:
                        a.beat()
            case "subscribe":
                a.subscribe(("orders", "more")[: 1 + number % 2])
                settle([a])  # it gives up in time what it no longer subscribes to
                subscribed(*a.topics)
            case "leave" if a.epoch:
                a.leave()
                subscribed()
            case "failover":
                world.failover()
                last_ready_ms = world.now_ms
            case "delete":
                world.delete_topic(topic)
                world.work()
                world.create_topic(topic, 4)
                world.work()
                if a.epoch:
                    settle([a])  # it gives up in time what is no more
                for key in [key for key in model if key[0] == topic]:
                    del model[key]
        wall = WALL_START_MS + int(world.now_ms)
        found = {(o.topic, o.partition) for o in world.shard.projection.offsets.of_group("g")}
        assert found <= model.keys()
        for (name, partition), over_ms in list(model.items()):
            over_since = max(over_ms - WALL_START_MS, loose_since.get(name, float("inf")))
            if over_since > world.now_ms:
                assert (name, partition) in found, "kept until it is over"
            elif world.now_ms >= max(over_since, last_ready_ms) + 2 * CHECK_MS:
                assert (name, partition) not in found, "gone by the next check"
            if (name, partition) not in found:
                del model[name, partition]
    assert world.replayed(len(world.log)).state_hash == world.shard.state_hash
