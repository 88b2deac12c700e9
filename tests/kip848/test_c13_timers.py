"""C.13 Session and rebalance timers."""

from __future__ import annotations

from records import Expiry, Trigger
from tests.coordinator.world import WALL_START_MS, Client, World, settle
from wire.errors import ErrorCode


def test_a_silent_member_is_removed_at_its_timeout_and_not_before(world: World) -> None:
    """Session: expiry → tombstones, bump; the client learns by UNKNOWN_MEMBER_ID 25."""
    world.join("a")
    world.join("b")
    world.sleep(30_000)
    world.heartbeat("b", 2)
    assert world.sleep(14_999) == []
    (entry,) = world.sleep(1)
    assert entry.cause.trigger == Trigger.SESSION_EXPIRED
    assert entry.types == [-8, -7, -5, 3, 7, 6]
    assert world.heartbeat("a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_expiry_carries_its_evidence(world: World) -> None:
    """An expiry carries timeout, when it was armed, the last heartbeat and the deadline, as wall times."""
    world.join("a")
    world.sleep(5_000)
    world.heartbeat("a", 1)
    (entry,) = world.sleep(45_000)
    last = WALL_START_MS + 6_000
    assert entry.cause.expiries == (Expiry("a", 45_000, last, last, last + 45_000),)


def test_expiries_of_one_group_are_one_decision(world: World) -> None:
    """Expiries of one group in one turn are one decision: one bump, every member a reason."""
    for member_id in "abc":
        world.join(member_id)
    epoch = world.group().epoch
    (entry,) = world.sleep(45_000)
    assert [reason.member_id for reason in entry.cause.reasons] == ["a", "b", "c"]
    assert world.group().epoch == epoch + 1
    assert entry.types == [-8, -7, -5, -8, -7, -5, -8, -7, -5, 4, 3, 6]


def test_a_member_that_does_not_ack_is_removed(world: World) -> None:
    """Rebalance: armed when the current assignment is written in UNREVOKED; delay = the member's own."""
    a, b = Client(world, "a", rebalance_timeout_ms=10_000), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    for _ in range(3):
        world.sleep(3_000)
        a.beat(acknowledge=False)
        b.beat()
    assert world.sleep(999) == []
    (entry,) = world.sleep(1)
    assert entry.cause.trigger == Trigger.REBALANCE_EXPIRED
    assert entry.cause.expiries[0].timeout_ms == 10_000
    b.beat()
    assert len(b.partitions((1).to_bytes(16, "big"))) == 12


def test_an_ack_one_tick_before_keeps_the_member(world: World) -> None:
    """Cancelled when the member leaves UNREVOKED."""
    a, b = Client(world, "a", rebalance_timeout_ms=10_000), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    world.sleep(9_999)
    a.beat()
    assert world.sleep(10_000) == []
    assert set(world.group().members) == {"a", "b"}


def test_a_heartbeat_that_comes_with_the_deadline_wins(world: World) -> None:
    """Timers re-check their condition when they fire: collected, then heard from, is not expired."""
    world.join("a")
    world.join("b", group_id="h")
    world.now_ms += 45_000
    world.shard.core.collect_expired(world.now_ms)
    world.heartbeat("a", 1)
    entries = world.work()
    assert [entry.typed()[0].key.group_id for entry in entries] == ["h"]
    assert "a" in world.group().members
    assert world.sleep(44_999) == []
    assert len(world.sleep(1)) == 1


def test_after_a_failover_sessions_start_in_full(world: World) -> None:
    """At Ready: sessions restarted in full for every member; the last heartbeat is not known then."""
    world.join("a")
    world.sleep(44_000)
    world.failover()
    assert world.sleep(44_999) == []
    (entry,) = world.sleep(1)
    assert entry.cause.expiries[0].last_heartbeat_ms == -1


def test_after_a_failover_a_revoking_member_has_its_full_rebalance_timeout(world: World) -> None:
    """At Ready: rebalance timers for those revoking."""
    a, b = Client(world, "a", rebalance_timeout_ms=10_000), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    world.sleep(9_000)
    world.failover()
    assert world.sleep(9_999) == []
    assert [entry.cause.trigger for entry in world.sleep(1)] == [Trigger.REBALANCE_EXPIRED]


def test_a_pause_of_the_node_fences_nobody(world: World) -> None:
    """A loop gap moves every deadline by that gap."""
    a, b = Client(world, "a", rebalance_timeout_ms=10_000), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    world.now_ms += 60_000
    world.shard.shift_deadlines(60_000)
    assert world.work() == []
    settle([a, b])
    assert world.group().state.value == "Stable"


def test_a_new_session_timeout_holds_from_the_next_heartbeat(world: World) -> None:
    """Dynamic config change takes effect at the next heartbeat."""
    world.join("a")
    world.configure(session_timeout_ms=3_000)
    assert world.sleep(3_000) == []
    world.heartbeat("a", 1)
    assert world.sleep(2_999) == []
    assert len(world.sleep(1)) == 1


def test_a_deposed_leader_fires_nothing(world: World) -> None:
    """Timers are volatile: after the leadership is lost there is nothing due."""
    world.join("a")
    world.shard.on_deposed()
    assert world.shard.next_deadline_ms() is None
    assert world.shard.next_work(world.ctx(monotonic_ms=1e9)) is None
