"""C.14: members that share an expression, change it, and leave.

Whatever they do, what one of them had and no longer asks for goes to others, though nothing else moves the
epoch.
"""

from __future__ import annotations

from coordinator.limits import Limits
from records import ReasonKind
from tests.kip848.expressions import by_regex, held, reasons
from tests.support.group_client import Client, settle
from tests.support.world import World
from wire.apis import ApiKey
from wire.messages.delete_groups import DeleteGroupsRequest


def test_an_expression_that_members_share_is_resolved_once(world: World) -> None:
    """Same regex shared by members: resolved once."""
    a, b = by_regex(world, "a"), by_regex(world, "b")
    a.beat()
    b.beat()
    world.work()
    assert sum(entry.types.count(16) for entry in world.log) == 1
    by_regex(world, "c").beat()
    assert world.sleep(1_000) == []
    settle([a, b])
    assert sorted(sum(map(len, m.owned.values())) for m in (a, b)) == [4, 4]


def test_the_last_subscriber_takes_the_resolution_with_it(world: World) -> None:
    """Last subscriber gone: `~16`. B.2: `~8 ~7 ~5`, [`~16`], [`4`], `3(epoch+1)`."""
    a, b = by_regex(world, "a"), by_regex(world, "b")
    world.join("c", [])
    settle([a, b], 1)
    world.work()
    settle([a, b])
    b.leave()
    assert -16 not in world.log[-1].types
    a.leave()
    assert world.log[-1].types == [-8, -7, -5, -16, 4, 3, 6]
    assert world.group().regexes == {}
    assert world.group().subscriptions == {}


def test_an_expiry_and_the_deletion_of_the_group_leave_no_resolution(world: World) -> None:
    """B.2: delete group: all `~8`, all `~7`, `~6`, all `~5`, [all `~16`], `~4`, `~3`."""
    by_regex(world).beat()
    world.work()
    expired = world.sleep(60_000)
    assert [-16 in entry.types for entry in expired] == [True]
    assert world.group().regexes == {}
    world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    assert world.shard.projection.groups == {}
    assert world.sleep(3_600_000) == []
    assert world.shard.next_deadline_ms() is None


def test_an_expression_in_the_write_order_of_a_heartbeat(world: World) -> None:
    """B.2, update by heartbeat: `5(m)`, [`~16(r)` if the last subscriber moved away], `4`, `3`, `7`, `6`,
    `8(m)`. C.6: regex changed to one already resolved bumps at once."""
    world.create_topic("bills", 2)
    a, b = by_regex(world, "a"), by_regex(world, "b", "bills")
    settle([a, b], 1)
    world.sleep(1_000)
    settle([a, b])
    b.subscribe((), "orders.*")
    epoch = world.group().epoch
    b.beat()
    assert world.log[-1].types == [5, -16, 4, 3, 7, 7, 6, 8]
    assert world.group().epoch == epoch + 1
    assert reasons(world) == [ReasonKind.REGEX_CHANGED]
    settle([a, b])
    assert sorted(sum(map(len, m.owned.values())) for m in (a, b)) == [6, 6]


def test_a_change_to_an_unresolved_expression_bumps_when_it_is_resolved(world: World) -> None:
    """C.6: unresolved: at resolution. C.8: an unresolved regex matches nothing, so what the member has is
    asked back at once."""
    world.create_topic("bills", 2)
    a = by_regex(world)
    a.beat()
    world.work()
    a.beat()
    epoch = world.group().epoch
    a.subscribe((), "bills")
    world.now_ms += 1_000
    answer = a.beat()
    assert world.group().epoch == epoch
    assert answer.assignment is not None
    assert answer.assignment.topic_partitions == []
    world.work()
    assert world.group().epoch == epoch + 1
    settle([a])
    assert sum(map(len, a.owned.values())) == 2


def test_no_regex_any_more(world: World) -> None:
    """Empty regex string = "no regex"; null = unchanged."""
    a = Client(world, "a", topics=("orders",), regex="nothing")
    a.beat()
    world.work()
    entries = len(world.log)
    assert world.heartbeat("a", a.epoch, subscribed_topic_regex=None).error_code == 0
    assert len(world.log) <= entries + 1
    assert world.group().regex_subscribers == {"nothing": 1}
    a.subscribe(("orders",))
    a.beat()
    assert world.log[-1].types[:2] == [5, -16]
    assert reasons(world) == [ReasonKind.REGEX_CHANGED]
    assert world.group().members["a"].metadata.subscribed_topic_regex is None  # type: ignore[union-attr]


def test_what_a_member_had_goes_to_others_though_its_new_expression_matches_nothing(world: World) -> None:
    """Nothing else would move the epoch, and the partitions would be nobody's."""
    a, b = by_regex(world, "a"), by_regex(world, "b", "orders")
    settle([a, b], 1)
    world.sleep(1_000)
    settle([a, b])
    a.subscribe((), "nothing")
    a.beat()
    world.sleep(1_000)
    assert "nothing matches nothing" in {r.detail for e in world.log for r in e.cause.reasons}
    settle([a, b])
    assert (sum(map(len, a.owned.values())), sum(map(len, b.owned.values()))) == (0, 12)


def test_what_a_member_had_goes_to_others_though_its_new_expression_matches_too_much() -> None:
    """The member revoked it at once; while its new expression is unresolved, it subscribes to nothing."""
    world = World(limits=Limits(resolved_topics_max=3))
    for name in ("orders", "t-1", "t-2", "t-3", "t-4"):
        world.create_topic(name, 4)
    a, b = by_regex(world, "a", "orders"), Client(world, "b")
    settle([a, b], 1)
    world.sleep(1_000)
    settle([a, b])
    a.subscribe((), "t-.*")
    a.beat()
    world.sleep(1_000)
    settle([a, b])
    assert (sum(map(len, a.owned.values())), sum(map(len, b.owned.values()))) == (0, 4)
    assert "t-.* is not resolved" in {r.detail for e in world.log for r in e.cause.reasons}
    epoch = world.group().epoch
    world.create_topic("t-5", 1)
    for _ in range(20):  # longer than the interval
        world.sleep(40_000)
        settle([a, b], 1)
    assert world.group().epoch == epoch, "said once"


def test_what_a_member_had_goes_to_others_though_no_child_answers(by_children: World) -> None:
    world = by_children
    a, b = by_regex(world, "a", "orders"), Client(world, "b")
    world.holds_jobs = False
    settle([a, b], 1)
    world.sleep(1_000)
    settle([a, b])
    world.holds_jobs = True
    a.subscribe((), "ord.*")
    a.beat()
    world.sleep(1_000)
    world.end_job(held(world), error="killed")
    settle([a, b])
    assert (sum(map(len, a.owned.values())), sum(map(len, b.owned.values()))) == (0, 12)
    world.holds_jobs = False
    world.sleep(11_000)
    settle([a, b])
    assert (sum(map(len, a.owned.values())), sum(map(len, b.owned.values()))) == (6, 6)


def test_a_target_under_way_gives_nothing_to_an_expression_that_matches_nothing_since() -> None:
    """A child process computes for the subscriptions that it was given; the change moved no epoch."""
    world = World(limits=Limits(assign_inline_cost_max=0))
    world.create_topic("orders", 12)
    a, b = by_regex(world, "a", "orders"), by_regex(world, "b", "orders")
    a.beat()
    world.sleep(1_000)
    settle([a])
    world.holds_jobs = True
    b.beat()
    b.subscribe((), "nothing")
    b.beat()
    world.sleep(1_000)
    assert world.group().resolved("nothing") == ()
    world.holds_jobs = False
    world.end_jobs()
    world.sleep(1_000)
    settle([a, b])
    assert (sum(map(len, a.owned.values())), sum(map(len, b.owned.values()))) == (12, 0)


def test_an_expression_of_a_static_member_survives_its_absence(world: World) -> None:
    """C.5: replacement copies everything; the group epoch is not bumped."""
    fields = {"subscribed_topic_regex": "orders.*", "instance_id": "i"}
    world.join("a", [], **fields)
    world.work()
    epoch = world.heartbeat("a", 1).member_epoch
    world.heartbeat("a", -2, instance_id="i")
    before = world.group().epoch
    answer = world.join("b", [], **fields)
    assert (answer.error_code, answer.member_epoch, world.group().epoch) == (0, epoch, before)
    assert world.group().regex_subscribers == {"orders.*": 1}
    assert world.sleep(1_000) == []
