"""G.2 Configs of groups, and what their assignment interval does to targets (C.11, KIP-1263)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.catalog.shard import CatalogShard
from coordinator.groupconfigs import effective, with_interval
from coordinator.limits import GroupSettings, Limits
from records import GroupConfigKey, Trigger, decode_record
from tests.support.admin_requests import (
    APPEND,
    BROKER,
    DELETE,
    NONE,
    SET,
    SUBTRACT,
    TOPIC,
    Change,
    alter,
    resource,
    set_config,
)
from tests.support.group_client import Client
from tests.support.world import WALL_START_MS, World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
)

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


def own(world: World, group_id: str = "g") -> dict[str, str]:
    return dict(world.catalog.view.configs.of(group_id))


def test_a_config_may_be_set_before_the_group_exists_and_survives_it(world: World) -> None:
    """Kept in cluster metadata, so independent of the group's life."""
    set_config(world, SESSION, 10_000)
    world.join("a")
    assert world.sleep(9_999) == []
    (entry,) = world.sleep(1)
    assert entry.cause.trigger == Trigger.SESSION_EXPIRED

    answer = world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    assert answer.results[0].error_code == NONE
    assert own(world) == {SESSION: "10000"}
    world.join("a")
    (entry,) = world.sleep(10_000)
    assert entry.cause.trigger == Trigger.SESSION_EXPIRED


def test_a_change_is_effective_at_the_next_heartbeat(world: World) -> None:
    """Effect at next heartbeat: the session is armed anew with its new timeout, the interval is told."""
    a = Client(world, "a")
    a.beat()
    a.beat()
    set_config(world, SESSION, 50_000)
    set_config(world, HEARTBEAT, 10_000)
    world.sleep(40_000)
    assert a.beat().heartbeat_interval_ms == 10_000
    assert world.sleep(49_999) == []
    (entry,) = world.sleep(1)
    assert entry.cause.expiries[0].timeout_ms == 50_000


def test_a_silent_member_keeps_the_session_that_it_was_told(world: World) -> None:
    """The new timeout holds from the next heartbeat: it must not expire a member that kept to the old one."""
    world.join("a")
    set_config(world, SESSION, 5_000)
    assert world.sleep(44_999) == []
    assert len(world.sleep(1)) == 1


def test_a_cached_reply_ends_for_the_groups_concerned_alone(world: World) -> None:
    """A config change touching a group moves its change counter; other groups keep their fast path."""
    for group_id in ("g", "other"):
        world.heartbeat(
            "a", 0, group_id=group_id, rebalance_timeout_ms=1_000, subscribed_topic_names=["orders"], owned={}
        )
        world.take_up("a", group_id)
    entries = {group_id: world.shard.fast_entry(group_id, "a") for group_id in ("g", "other")}
    set_config(world, HEARTBEAT, 2_000)
    assert [entry is not None and entry.is_valid() for entry in entries.values()] == [False, True]


def test_heartbeats_from_the_cache_keep_the_session_that_changed(world: World) -> None:
    """The heartbeat that hears of another session starts another timer. What a listener took before it, to
    cache its reply, would go on to restart the former one, and a member that lives would expire."""
    world.join("a")
    world.take_up("a")
    set_config(world, SESSION, 12_000)
    for _ in range(6):
        before = world.shard.fast_entry("g", "a")
        assert before is not None, "the member has expired"
        assert world.heartbeat("a", 1).error_code == 0
        world.sleep(3_000)
        if before.is_valid():
            before.touch(world.now_ms, WALL_START_MS + int(world.now_ms))
            world.sleep(9_000)
    assert world.group().num_members == 1


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        ((SESSION, SET, "999"), ErrorCode.INVALID_CONFIG, "from 1000 "),
        ((SESSION, SET, "1800001"), ErrorCode.INVALID_CONFIG, "to 1800000 "),
        ((HEARTBEAT, SET, "499"), ErrorCode.INVALID_CONFIG, "group.consumer.min.heartbeat.interval.ms"),
        ((HEARTBEAT, SET, "15001"), ErrorCode.INVALID_CONFIG, "group.consumer.max.heartbeat.interval.ms"),
        ((ASSIGNMENT, SET, "-1"), ErrorCode.INVALID_CONFIG, "group.consumer.min.assignment.interval.ms"),
        ((ASSIGNMENT, SET, "15001"), ErrorCode.INVALID_CONFIG, "group.consumer.max.assignment.interval.ms"),
        ((SESSION, SET, "soon"), ErrorCode.INVALID_CONFIG, "'soon'"),
        ((SESSION, SET, ""), ErrorCode.INVALID_CONFIG, "not a 32-bit number"),
        ((SESSION, SET, "1e4"), ErrorCode.INVALID_CONFIG, "'1e4'"),
        ((SESSION, SET, "٥٠٠٠٠"), ErrorCode.INVALID_CONFIG, "not a 32-bit number"),
        ((SESSION, SET, "9" * 5_000), ErrorCode.INVALID_CONFIG, "not a 32-bit number"),
        ((SESSION, SET, None), ErrorCode.INVALID_REQUEST, "needs a value"),
        ((SESSION, APPEND, "50000"), ErrorCode.INVALID_CONFIG, "APPEND"),
        ((SESSION, SUBTRACT, "50000"), ErrorCode.INVALID_CONFIG, "SUBTRACT"),
        ((SESSION, 7, "50000"), ErrorCode.INVALID_REQUEST, "Operation 7"),
        (("consumer.unknown.ms", SET, "1"), ErrorCode.INVALID_CONFIG, "consumer.unknown.ms"),
        (("share.session.timeout.ms", SET, "45000"), ErrorCode.INVALID_CONFIG, "not a group config"),
    ],
)
def test_what_a_config_cannot_be_is_refused_and_changes_nothing(
    world: World, change: Change, code: ErrorCode, says: str
) -> None:
    """Unknown name or out of [min, max] → INVALID_CONFIG 40."""
    (answer,) = alter(world, resource("g", (ASSIGNMENT, SET, "1000"), change))
    if change[0] == ASSIGNMENT:
        assert answer.error_code == ErrorCode.INVALID_REQUEST  # the same name twice
        (answer,) = alter(world, resource("g", change))
    assert (answer.error_code, says in answer.error_message) == (code, True), answer.error_message
    assert own(world) == {}


@pytest.mark.parametrize("value", ["1000", " 1000 ", "+1000", "01000"])
def test_a_number_is_kept_as_a_number(world: World, value: str) -> None:
    """Kafka trims and parses before it stores."""
    set_config(world, SESSION, "5000")
    set_config(world, ASSIGNMENT, value)
    assert own(world) == {SESSION: "5000", ASSIGNMENT: "1000"}


def test_an_interval_is_below_its_session(world: World) -> None:
    """Heartbeat < session, whichever of the two is set, the broker's value standing in for the other."""
    for changes in (
        [(HEARTBEAT, SET, "5000"), (SESSION, SET, "5000")],
        [(SESSION, SET, "1000")],
    ):
        (answer,) = alter(world, resource("g", *changes))
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert "between two heartbeats" in answer.error_message
    set_config(world, SESSION, 6_000)
    (answer,) = alter(world, resource("g", (HEARTBEAT, SET, "6000")))
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    (answer,) = alter(world, resource("g", (HEARTBEAT, SET, "6000"), (SESSION, SET, "6001")))
    assert answer.error_code == NONE


def test_delete_takes_back_and_is_no_error_where_nothing_was_set(world: World) -> None:
    set_config(world, SESSION, 10_000)
    for _ in range(2):
        (answer,) = alter(world, resource("g", (SESSION, DELETE, None), ("never.heard.of", DELETE, None)))
        assert answer.error_code == NONE
        assert own(world) == {}
    assert len(world.catalog.view.configs) == 0


def test_validate_only_changes_nothing(world: World) -> None:
    good, bad = alter(
        world,
        resource("g", (SESSION, SET, "10000")),
        resource("h", (SESSION, SET, "1")),
        validate_only=True,
    )
    assert (good.error_code, bad.error_code) == (NONE, ErrorCode.INVALID_CONFIG)
    assert own(world) == {}


def test_resources_stand_and_fall_alone_and_each_as_a_whole(world: World) -> None:
    """Errors are per resource; one that is named twice is refused both times, as in Kafka."""
    answers = alter(
        world,
        resource("g", (SESSION, SET, "10000"), (HEARTBEAT, SET, "1")),
        resource("h", (SESSION, SET, "10000")),
        resource("twice", (SESSION, SET, "10000")),
        resource("twice", (SESSION, SET, "20000")),
        resource("", (SESSION, SET, "10000")),
        resource("i"),
    )
    assert [answer.error_code for answer in answers] == [40, 0, 42, 42, 42, 0]
    assert list(world.catalog.view.configs) == ["h"]


def test_brokers_and_topics_are_not_changed_by_requests(world: World) -> None:
    """As Kafka: 'cannot update these configs dynamically', INVALID_REQUEST; taking back is a no-op."""
    answers = alter(
        world,
        resource("1", ("group.consumer.session.timeout.ms", SET, "46000"), kind=BROKER),
        resource("2", ("group.consumer.session.timeout.ms", DELETE, None), kind=BROKER),
        resource("absent", ("retention.ms", SET, "1"), kind=TOPIC),
        resource("orders", ("retention.ms", SET, "1"), kind=TOPIC),
        resource("g", kind=9),
    )
    assert [answer.error_code for answer in answers] == [42, 0, 3, 40, 42]
    assert "settings file" in answers[0].error_message


def test_groups_with_configs_are_bounded() -> None:
    world = World(limits=Limits(configured_groups_max=2))
    first, second, third = alter(world, *[resource(name, (SESSION, SET, "10000")) for name in "abc"])
    assert (first.error_code, second.error_code) == (0, 0)
    assert third.error_code == ErrorCode.POLICY_VIOLATION
    set_config(world, SESSION, 20_000, "a")
    alter(world, resource("a", (SESSION, DELETE, None)))
    set_config(world, SESSION, 20_000, "c")
    (answer,) = alter(world, resource("x" * 1_025, (SESSION, SET, "10000")))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_the_entry_says_who_changed_what() -> None:
    """Cause CONFIG_CHANGED with the principal; one record for each config that differs, none for others."""
    catalog, world = CatalogShard(), World()
    request = IncrementalAlterConfigsRequest(
        resources=[resource("g", (SESSION, SET, "10000"), (HEARTBEAT, SET, "2000"))]
    )
    ctx = world.ctx(principal="User:ann", next_index=1)
    decision = catalog.handle(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request, ctx)
    assert decision.cause is not None
    assert (decision.cause.trigger, decision.cause.principal) == (Trigger.CONFIG_CHANGED, "User:ann")
    keys = [decode_record(raw).key for raw in decision.records]
    assert keys == [GroupConfigKey(group_id="g", name=HEARTBEAT), GroupConfigKey(group_id="g", name=SESSION)]
    again = catalog.handle(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request, world.ctx(next_index=2))
    assert (again.records, again.cause) == ([], None)


def test_bounds_that_are_narrowed_clamp_what_was_set() -> None:
    """If broker bounds are later narrowed the stored value is clamped on use; sessions stay longer."""
    stored = {SESSION: "20000", HEARTBEAT: "12000", ASSIGNMENT: "9000", "of.a.later.release": "x"}
    narrow = GroupSettings(session_timeout_max_ms=10_000, assignment_interval_max_ms=500)
    settings = effective(narrow, stored)
    assert settings.session_timeout_ms == 10_000
    assert settings.assignment_interval_ms == 500
    assert settings.heartbeat_interval_ms == 3_333
    assert effective(narrow, {}) is narrow


def test_an_interval_chosen_by_the_node_leaves_room_in_every_session() -> None:
    """A member may miss two heartbeats in a row, as far as the minimum of the interval allows."""
    for session_ms, interval_ms in ((45_000, 15_000), (9_000, 3_000), (1_400, 500)):
        settings = replace(GroupSettings(), session_timeout_ms=session_ms)
        assert with_interval(settings, 15_000).heartbeat_interval_ms == interval_ms


# C.11, KIP-1263


def storm(world: World, members: int, every_ms: float) -> None:
    for number in range(members):
        world.join(f"m{number:03}")
        world.sleep(every_ms)


def targets(world: World) -> list[int]:
    """Wall time of each target that was computed for members."""
    return [entry.timestamp_ms for entry in world.log if 6 in entry.types]


def test_a_storm_of_joins_ends_in_two_targets(world: World) -> None:
    """Interval 1 s: 100 joins in 0.5 s → ≤ 2 target computations, the second when due, not at a heartbeat."""
    set_config(world, ASSIGNMENT, 1_000)
    begin_ms = world.now_ms
    storm(world, 100, 5)
    world.sleep(2_000)
    first, second = targets(world)
    assert (first, second) == (WALL_START_MS + begin_ms, WALL_START_MS + begin_ms + 1_000)
    assert world.group().assignment_epoch == world.group().epoch == 100


def test_without_an_interval_each_join_has_its_target(world: World) -> None:
    """Interval 0 → each."""
    storm(world, 20, 5)
    assert len(targets(world)) == 20


def test_who_joins_meanwhile_gets_nothing_at_the_old_epoch(world: World) -> None:
    """The old target is used; the member joining gets an empty assignment at the old epoch."""
    set_config(world, ASSIGNMENT, 1_000)
    world.join("a")
    world.sleep(10)
    answer = world.join("b")
    assert (answer.member_epoch, answer.assignment.topic_partitions) == (1, [])
    assert (world.group().epoch, world.group().assignment_epoch) == (2, 1)
    assert world.heartbeat("a", 1).error_code == NONE
    (entry,) = world.sleep(990)
    assert entry.cause.trigger == Trigger.TARGET_COMPUTED
    assert world.group().assignment_epoch == 2


def test_who_joins_an_empty_group_is_not_delayed(world: World) -> None:
    """An empty group has 6 with timestamp 0, so that the next joiner is not delayed (KAFKA-20442)."""
    set_config(world, ASSIGNMENT, 15_000)
    world.join("a")
    world.heartbeat("a", -1)
    world.sleep(10)
    answer = world.join("b")
    assert answer.member_epoch == world.group().epoch == 3
    assert len(answer.assignment.topic_partitions[0].partitions) == 12


def test_a_leave_waits_for_the_interval_too(world: World) -> None:
    """Freed partitions go to the survivors when the interval is over, without anybody's heartbeat."""
    set_config(world, ASSIGNMENT, 5_000)
    world.join("a")
    world.sleep(5_000)
    world.join("b")
    world.sleep(100)
    world.heartbeat("b", -1)
    assert world.group().assignment_epoch < world.group().epoch
    assert world.sleep(4_899) == []
    assert len(world.sleep(1)) == 1
    assert world.group().assignment_epoch == world.group().epoch


def test_a_shorter_interval_is_looked_at_at_once(world: World) -> None:
    set_config(world, ASSIGNMENT, 15_000)
    world.join("a")
    world.sleep(2_000)
    world.join("b")
    set_config(world, ASSIGNMENT, 3_000)
    world.work()
    assert world.group().assignment_epoch == 1
    world.sleep(1_000)
    assert world.group().assignment_epoch == 2
    world.join("c")
    alter(world, resource("g", (ASSIGNMENT, DELETE, None)))
    world.work()
    assert world.group().assignment_epoch == 3


def test_an_interval_outlives_a_failover(world: World) -> None:
    """The interval counts from the time in record 6."""
    set_config(world, ASSIGNMENT, 5_000)
    world.join("a")
    world.sleep(1_000)
    world.join("b")
    world.failover()
    world.sleep(3_999)
    assert world.group().assignment_epoch == 1
    world.sleep(1)
    assert world.group().assignment_epoch == 2


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_wall_clock_that_jumps_delays_no_target(world: World, jump_ms: int) -> None:
    """A stored time in the future counts as due now; a clock that stands still (one that was ahead) does not
    count at all: the interval ends by the monotonic clock."""
    set_config(world, ASSIGNMENT, 5_000)
    world.join("a")
    timestamp = world.group().target_metadata.assignment_timestamp_ms  # type: ignore[union-attr]
    pacing = world.shard.groups.pacing
    jumped = world.ctx(wall_ms=timestamp + jump_ms)
    assert pacing.interval_left_ms("g", timestamp, 5_000, jumped) == 0
    frozen = world.ctx(wall_ms=timestamp)
    pacing.forget("g")
    assert pacing.interval_left_ms("g", timestamp, 5_000, frozen) == 5_000
    world.now_ms += 4_000
    assert pacing.interval_left_ms("g", timestamp, 5_000, world.ctx(wall_ms=timestamp)) == 1_000
