"""C.14: subscriptions by regular expression, resolved off the request path."""

from __future__ import annotations

import random
import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.api import Job
from coordinator.expressions import (
    AT_ONCE,
    OUT_OF_TIME,
    TOO_COSTLY,
    Budget,
    InvalidExpression,
    check_expression,
    match,
)
from coordinator.limits import GroupSettings, Limits
from coordinator.shard import GroupShard
from records import METADATA_SHARD, ReasonKind, Ref, Trigger
from tests.coordinator.watching import nothing_is_left
from tests.coordinator.world import Client, World, settle
from tests.kip848.test_b_replay import every_window, load
from tests.kip848.test_schedules import Twin, snapshot
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.delete_groups import DeleteGroupsRequest

NOTHING_INLINE = Limits(resolve_inline_cost_max=-1)
"""Every round is a child's."""


def by_regex(world: World, name: str = "a", regex: str = "orders.*", **fields: object) -> Client:
    return Client(world, name, topics=(), regex=regex, **fields)  # type: ignore[arg-type]  # tests name them


def reasons(world: World, place: int = -1) -> list[ReasonKind]:
    return [ReasonKind(reason.kind) for reason in world.log[place].cause.reasons]


def test_a_member_is_accepted_at_once_and_gets_nothing_until_its_expression_is_resolved(world: World) -> None:
    """A new member with an unresolved regex is accepted, epoch bump at join, gets nothing until resolved; at
    completion: records 16, epoch bump if topics changed; next heartbeats compute."""
    a = by_regex(world)
    answer = a.beat()
    assert (answer.error_code, answer.member_epoch) == (0, 1)
    assert answer.assignment is not None
    assert answer.assignment.topic_partitions == []
    assert 16 not in world.log[-1].types
    (resolved,) = world.work()
    assert resolved.types == [16, 4, 3, 7, 6]
    assert resolved.cause.trigger == Trigger.REGEX_RESOLVED
    (reason,) = resolved.cause.reasons
    assert (reason.kind, reason.detail) == (
        ReasonKind.REGEX_RESOLUTION_CHANGED,
        "orders.* now matches orders",
    )
    value = world.group().regexes["orders.*"]
    assert (value.topics, value.version) == (("orders",), world.catalog.view.version)
    assert value.timestamp_ms == resolved.timestamp_ms
    a.beat()
    assert sum(map(len, a.owned.values())) == 12


def test_names_and_expression_together(world: World) -> None:
    """Member may have names **and** regex: union."""
    world.create_topic("bills", 2)
    a = Client(world, "a", topics=("bills",), regex="ord.*")
    a.beat()
    assert sum(map(len, a.owned.values())) == 2, "the names need no resolution"
    world.work()
    a.beat()
    assert sum(map(len, a.owned.values())) == 14


def test_the_match_is_of_the_whole_name(world: World) -> None:
    """RE2/J syntax, full match over topic names."""
    for name in ("orders-1", "my-orders", "order"):
        world.create_topic(name, 1)
    for regex, expected in (
        ("orders", ("orders",)),
        ("orders|ord", ("orders",)),
        ("ord", ()),
        ("^orders-.*", ("orders-1",)),
        (".*orders$", ("my-orders", "orders")),
        ("(?i)ORDERS", ("orders",)),
        (r"\Qorders\E", ("orders",)),
        (r"\pL+", ("order", "orders")),
    ):
        by_regex(world, f"m-{expected}", regex).beat()
        world.sleep(200)
        assert world.group().resolved(regex) == expected, regex


INVALID = {
    "unclosed": ("(orders", "missing )"),
    "lookahead": ("(?=orders).*", "invalid perl operator"),
    "lookbehind": ("(?<!x)orders", "invalid"),
    "backreference": (r"(o)\1", "invalid escape sequence"),
    "unknown escape": (r"\y", "invalid escape sequence"),
    "nested repetition": ("(((a{100}){100}){100})", "invalid repetition size"),
    "repetition of repetition": ("a**", "bad repetition operator"),
    "too large a program": (r"[\pL\pN]{900}", "pattern too large"),
    "too long": ("a" * 65_536, "at most 4096"),
    "too long in bytes": ("é" * 2_049, "4098 bytes"),
    "half a surrogate": ("\udc80", "UTF-8"),
    "bad class": ("[z-a]", "invalid character class range"),
}


@pytest.mark.parametrize("case", INVALID)
def test_what_re2_does_not_take_is_refused(
    world: World, case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Regex not RE2/J-compilable: INVALID_REGULAR_EXPRESSION 128; nothing changes, RE2 stays silent."""
    regex, words = INVALID[case]
    with pytest.raises(InvalidExpression) as raised:
        check_expression(regex, Limits())
    assert words in str(raised.value)
    a = by_regex(world, regex=regex)
    answer = a.beat()
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "SubscribedTopicRegex" in (answer.error_message or "")
    assert len(answer.error_message or "") < 400
    assert world.log == []
    b = Client(world, "b")
    b.beat()
    b.subscribe(("orders",), regex)
    entries = len(world.log)
    assert b.beat().error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(world.log) == entries
    assert capfd.readouterr() == ("", "")


def test_the_epoch_is_looked_at_before_the_expression(world: World) -> None:
    """C.3: who is fenced learns that first, as in Kafka, and a leave needs no valid expression."""
    a = by_regex(world)
    a.beat()
    assert world.heartbeat("a", 7, subscribed_topic_regex="(").error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.heartbeat("a", -1, subscribed_topic_regex="(").error_code == 0


HOSTILE = ["(a+)+$", "(a|aa)+b", "(.*a){50}", "((((a?){10}){10}){10})", "(a?){300}a{300}", "(.?){500}"]


@pytest.mark.parametrize("regex", HOSTILE)
def test_a_pathological_expression_is_matched_in_linear_time_or_given_up(regex: str) -> None:
    """What backtracks for ever elsewhere is an automaton here."""
    names = ["a" * length for length in range(200, 249)]
    looks = 0

    def stopwatch_ms() -> float:
        nonlocal looks
        looks += 1
        return float(looks)

    (found,) = match([regex], names, Limits(), Budget(1_000.0, 2_000.0), stopwatch_ms)
    assert found == [place for place, name in enumerate(names) if _matches(regex, name)]
    assert looks < 10


def _matches(regex: str, name: str) -> bool:
    """What these expressions mean for a name of letters a only."""
    return {
        "(a+)+$": True,
        "(a|aa)+b": False,
        "(.*a){50}": True,
        "((((a?){10}){10}){10})": True,
        "(a?){300}a{300}": False,
        "(.?){500}": True,
    }[regex]


def test_a_costly_expression_spoils_its_own_resolution_only() -> None:
    """What takes too long together is tried in halves: the others have their answer."""
    now_ms = 0.0

    def stopwatch_ms() -> float:
        nonlocal now_ms
        now_ms += 1.0
        return now_ms

    good = [f"t-{number}" for number in range(AT_ONCE - 1)]
    names = [f"t-{number}" for number in range(40)]
    too_large = r"(\pL|\pN){900}"  # for an automaton
    found = match([*good[:50], too_large, *good[50:]], names, Limits(), Budget(100, 10_000), stopwatch_ms)
    assert found[50] == TOO_COSTLY
    assert [found[number] for number in (0, 39, 49, 51)] == [[0], [39], [], []]
    assert match(["a", "b"], ["a"], Limits(), Budget(-1, 10_000), stopwatch_ms) == [TOO_COSTLY] * 2
    assert match(["a", "b"], ["a"], Limits(), Budget(10, -1), stopwatch_ms) == [OUT_OF_TIME] * 2


def test_what_matches_too_much_says_so() -> None:
    names = [f"t-{number}" for number in range(30)]
    limits = Limits(resolved_topics_max=10, resolved_names_max=12)
    found = match(["t-1.", "t-.*", "t-.", "t-2"], names, limits, Budget(100, 100), lambda: 0.0)
    assert found[0] == list(range(10, 20))
    assert found[1] == "matches 30 topics; at most 10 are allowed"
    assert found[2] == "is not resolved: the group's expressions match more than 12 topics"
    assert found[3] == [2]


pieces = st.one_of(
    st.text(alphabet="abc-_", min_size=1, max_size=3),
    st.sampled_from([".", ".*", "[ab]", "[^a]", "a?", "(ab)*", "(a|b-)", "b+", "c{2}", "[a-c]{1,2}"]),
)
patterns = st.lists(pieces, min_size=1, max_size=4).map("".join)
topic_names = st.lists(st.text(alphabet="abc-_", min_size=1, max_size=6), max_size=20, unique=True)


@settings(max_examples=200, deadline=None)
@given(st.lists(patterns, max_size=8), topic_names)
def test_a_resolution_is_what_an_independent_matcher_says(regexes: list[str], names: list[str]) -> None:
    """For expressions that mean the same to both: one by one by Python, together by RE2."""
    found = match(regexes, names, Limits(), Budget(1e9, 1e9), lambda: 0.0)
    assert found == [
        [place for place, name in enumerate(names) if re.fullmatch(regex, name)] for regex in regexes
    ]


def test_more_expressions_than_fit_into_one_automaton() -> None:
    regexes = [f"t-{number}(-.*)?" for number in range(3 * AT_ONCE + 7)]
    names = [f"t-{number}-x" for number in range(200)]
    found = match(regexes, names, Limits(), Budget(1e9, 1e9), lambda: 0.0)
    assert found == [[number] if number < 200 else [] for number in range(len(regexes))]


# Sharing, changing, leaving.


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
    """The member gave it up at once; as long as nobody knows what it wants instead, it wants nothing."""
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
    """What a child computes is for the subscriptions that it was told; the change moved no epoch."""
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


# Topics that come and go.


def test_a_new_topic_is_found_without_anybodys_heartbeat(world: World) -> None:
    """C.9: new topic matching a regex. The change of the catalog is what starts the round; the cause refers
    to it."""
    a = by_regex(world)
    a.beat()
    world.sleep(1_000)
    a.beat()
    world.create_topic("orders-eu", 2)
    (entry,) = world.work()
    assert entry.types == [16, 4, 3, 7, 6]
    (reason,) = entry.cause.reasons
    assert reason.detail == "orders.* now matches orders-eu"
    assert entry.cause.refs == (Ref(shard=METADATA_SHARD, index=world.catalog.view.version),)
    a.beat()
    assert sum(map(len, a.owned.values())) == 14


def test_a_topic_that_nobody_matches_changes_nothing(world: World) -> None:
    """Neither a record nor an epoch."""
    by_regex(world).beat()
    world.sleep(1_000)
    world.create_topic("bills", 1)
    assert world.sleep(1_000) == []
    world.grow_topic("bills", 3)
    assert world.sleep(1_000) == []


def test_many_topics_in_a_row_share_a_few_rounds(world: World) -> None:
    """A named pause: a thousand creations in a second are about ten rounds."""
    by_regex(world).beat()
    world.sleep(1_000)
    before = len(world.log)
    for number in range(1_000):
        world.create_topic(f"orders-{number}", 1)
        world.sleep(1)
    world.sleep(1_000)
    written = [entry for entry in world.log[before:] if 16 in entry.types]
    assert len(world.group().resolved("orders.*")) == 1_001
    assert 9 <= len(written) <= 12


def test_a_deleted_topic_leaves_the_resolution_and_bumps_once(world: World) -> None:
    a = by_regex(world)
    a.beat()
    world.sleep(1_000)
    world.create_topic("orders-eu", 2)
    world.sleep(1_000)
    a.beat()
    epoch = world.group().epoch
    world.delete_topic("orders-eu")
    entries = world.sleep(1_000)
    assert world.group().resolved("orders.*") == ("orders",)
    assert world.group().epoch == epoch + 1
    assert [ReasonKind(r.kind).name for e in entries for r in e.cause.reasons] == ["TOPIC_DELETED"]
    a.beat()
    assert sum(map(len, a.owned.values())) == 12


def test_a_topic_that_is_made_again_is_another_topic(world: World) -> None:
    a = by_regex(world)
    a.beat()
    world.sleep(1_000)
    a.beat()
    world.delete_topic("orders")
    new_id = world.create_topic("orders", 3)
    world.sleep(1_000)
    settle([a])
    assert a.partitions(new_id) == [0, 1, 2]
    assert list(a.owned) == [new_id]


def test_all_is_resolved_anew_once_in_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Last refresh > `group.consumer.regex.refresh.interval.ms`: every expression against every topic."""
    world = World(GroupSettings(regex_refresh_interval_ms=20_000, session_timeout_ms=10_000_000))
    world.create_topic("orders", 1)
    by_regex(world).beat()
    world.sleep(1_000)
    asked: list[tuple[int, int]] = []

    def counted(regexes: list[str], names: list[str], *rest: object) -> object:
        asked.append((len(regexes), len(names)))
        return match(regexes, names, *rest)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr("coordinator.expressions.match", counted)
    world.sleep(18_000)
    assert asked == []
    world.sleep(42_000)
    assert asked == [(1, 1), (0, 0)] * 3
    assert world.group().regexes["orders.*"].version == world.catalog.view.version


# Rounds that a child process makes.


def held(world: World) -> Job:
    (job,) = world.jobs
    return job


@pytest.fixture
def by_children() -> World:
    world = World(limits=NOTHING_INLINE)
    world.create_topic("orders", 12)
    world.holds_jobs = True
    return world


def test_one_round_of_a_group_is_under_way_at_a_time(by_children: World) -> None:
    """None in flight; what comes meanwhile has the next round."""
    world = by_children
    by_regex(world, "a").beat()
    world.work()
    by_regex(world, "b", "bill.*").beat()
    world.create_topic("orders-eu", 1)
    world.sleep(5_000)
    assert held(world).request["fresh"] == ["orders.*"]  # type: ignore[index]  # a mapping
    world.end_jobs()
    assert world.group().resolved("orders.*") == ("orders",)
    world.sleep(10_000)
    request = held(world).request
    assert isinstance(request, dict)
    assert (request["fresh"], request["stale"], request["changed"]) == (
        ["bill.*"],
        ["orders.*"],
        ["orders-eu"],
    )
    world.end_jobs()
    assert world.group().resolved("orders.*") == ("orders", "orders-eu")


def test_a_result_for_subscribers_who_went_is_dropped(by_children: World) -> None:
    world = by_children
    a = by_regex(world, "a")
    world.join("b", [])
    a.beat()
    world.work()
    a.subscribe((), "bills")
    a.beat()
    world.end_jobs()
    assert world.group().regexes == {}
    world.sleep(10_000)
    world.end_jobs()
    assert list(world.group().regexes) == ["bills"]


def test_a_round_that_nobody_waits_for_is_given_up(by_children: World) -> None:
    """All subscribers went and another one came while a child was at work: it has a round of its own."""
    world = by_children
    a, b = by_regex(world, "a"), by_regex(world, "b", "bill.*")
    a.beat()
    world.work()
    job = held(world)
    b.beat()
    a.leave()
    b.leave()
    world.sleep(1_000)
    c = by_regex(world, "c")
    c.beat()
    world.end_job(job, [[0]])
    world.sleep(1_000)
    world.end_jobs()
    assert world.group().resolved("orders.*") == ("orders",)
    settle([c])
    assert sum(map(len, c.owned.values())) == 12


def test_a_result_for_a_group_that_is_gone_is_nobodys(by_children: World) -> None:
    """Nor is anything kept for it."""
    world = by_children
    a = by_regex(world)
    a.beat()
    world.work()
    job = held(world)
    a.leave()
    world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    assert world.shard.job_ended(job, [[0]], None, world.ctx()) is None
    nothing_is_left(world)


def test_a_delta_for_an_expression_that_came_anew_is_not_taken_for_all_of_it(by_children: World) -> None:
    """Its record went with its subscriber while a child looked at new topics only."""
    world = by_children
    a = by_regex(world, "a")
    world.join("b", [])
    a.beat()
    world.work()
    world.end_jobs()
    world.sleep(1_000)
    world.create_topic("orders-eu", 1)
    world.work()
    a.subscribe(("orders",))
    a.beat()
    a.subscribe((), "orders.*")
    a.beat()
    world.end_jobs()
    assert world.group().resolved("orders.*") == ()
    world.sleep(10_000)
    world.end_jobs()
    assert world.group().resolved("orders.*") == ("orders", "orders-eu")


@pytest.mark.parametrize("result", [None, "nonsense", [], [[7]], [None, None], [[0], [0]]])
def test_a_child_that_fails_is_shown_and_tried_again(by_children: World, result: object) -> None:
    """Failure: logged; retried after a pause. The members stay, and describe says what is wrong."""
    world = by_children
    by_regex(world).beat()
    world.work()
    error = "exited with 9: killed" if result is None else None
    job = held(world)
    outcome = world.shard.job_ended(job, result, error, world.ctx())
    assert outcome is not None
    assert outcome.records == []
    assert "Expressions of group g were not resolved" in (outcome.trouble.words if outcome.trouble else "")
    world.jobs.clear()
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    (described,) = world.handle(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups
    assert "were not resolved" in described.error_message
    assert world.sleep(9_000) == []
    assert world.jobs == []
    world.sleep(1_001)
    again = world.shard.job_ended(held(world), result, error, world.ctx())
    assert again is not None
    assert again.trouble is None, "logged once"
    world.jobs.clear()
    world.sleep(10_001)
    world.end_jobs()
    assert world.group().resolved("orders.*") == ("orders",)
    (described,) = world.handle(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups
    assert described.error_message is None
    assert described.members[0].subscribed_topic_regex == "orders.*"


def test_an_expression_that_matches_too_much_is_an_error_of_its_own(world: World) -> None:
    """It keeps what it had; the others are resolved; describe names it."""
    world = World(limits=Limits(resolved_topics_max=3))
    for number in range(3):
        world.create_topic(f"t-{number}", 1)
    a, b = by_regex(world, "a", "t-.*"), by_regex(world, "b", "t-1")
    settle([a, b], 1)
    world.sleep(1_000)
    for number in range(3, 6):
        world.create_topic(f"t-{number}", 1)
        world.sleep(1_000)
    assert len(world.group().resolved("t-.*")) == 3
    assert world.group().resolved("t-1") == ("t-1",)
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    (described,) = world.handle(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups
    assert described.error_message == "t-.* matches 6 topics; at most 3 are allowed"
    world.delete_topic("t-5")
    world.delete_topic("t-4")
    world.delete_topic("t-0")
    world.sleep(1_000)
    assert world.group().resolved("t-.*") == ("t-1", "t-2", "t-3")


def test_very_much_is_written_a_part_at_a_time() -> None:
    """No decision takes the loop, nor the log, for longer than a named part."""
    world = World(limits=Limits(resolved_names_at_once_max=50))
    for number in range(40):
        world.create_topic(f"t-{number}", 1)
    clients = [by_regex(world, f"m{number}", f"t-.*|{number}") for number in range(5)]
    settle(clients, 1)
    entries = world.sleep(1_000)
    assert [entry.types.count(16) for entry in entries if 16 in entry.types] == [2, 2, 1]
    settle(clients)
    assert sorted(sum(map(len, client.owned.values())) for client in clients) == [8] * 5


def test_what_is_written_in_parts_is_matched_once() -> None:
    """What a child found is kept until the last part of it is in the log."""
    world = World(limits=Limits(resolved_names_at_once_max=50, resolve_inline_cost_max=-1))
    for number in range(40):
        world.create_topic(f"t-{number}", 1)
    clients = [by_regex(world, f"m{number}", f"t-.*|{number}") for number in range(5)]
    settle(clients, 1)
    world.holds_jobs = True
    world.sleep(1_000)
    world.end_jobs()
    entries = world.sleep(20_000)
    assert sum(entry.types.count(16) for entry in entries) == 3
    assert len(world.group().regexes) == 5
    assert world.jobs == []


def test_a_new_leader_finds_what_was_missed(world: World) -> None:
    """At Ready all expressions are compared with the catalog: resolved or not, and topics that came since."""
    a, b = by_regex(world, "a"), by_regex(world, "b", "bill.*")
    a.beat()
    world.sleep(1_000)
    b.beat()  # not resolved when the leader goes
    world.shard.on_deposed()
    world.catalog.handle  # noqa: B018  # the topics below come while nobody leads
    deposed, world.shard = world.shard, GroupShard(0)
    world.create_topic("orders-eu", 1)
    world.create_topic("bills", 1)
    world.shard = deposed
    world.failover()
    world.work()
    assert world.group().resolved("orders.*") == ("orders", "orders-eu")
    assert world.group().resolved("bill.*") == ("bills",)


def test_a_node_whose_catalog_is_behind_resolves_nothing(world: World) -> None:
    by_regex(world).beat()
    world.sleep(1_000)
    world.create_topic("orders-eu", 1)
    world.sleep(1_000)
    fresh = World()
    fresh.create_topic("orders", 12)
    fresh.log, fresh.now_ms = world.log, world.now_ms
    fresh.failover()
    assert fresh.sleep(3_000) == []
    fresh.catalog, fresh.catalog_index = world.catalog, world.catalog_index
    assert fresh.sleep(3_000) == []
    assert fresh.group().resolved("orders.*") == ("orders", "orders-eu")


def test_every_compaction_window_of_a_session_with_expressions_loads_to_the_same_state(world: World) -> None:
    """B.6, with records 16 among them."""
    a, b = by_regex(world, "a"), by_regex(world, "b", "o.*")
    settle([a, b], 1)
    world.sleep(1_000)
    world.create_topic("oranges", 2)
    world.sleep(1_000)
    settle([a, b], 2)
    b.subscribe((), "orders.*")
    b.beat()
    world.sleep(1_000)
    world.delete_topic("orders")
    world.sleep(1_000)
    a.leave()
    b.leave()
    assert {16, -16} <= {kind for entry in world.log for kind in entry.types}
    for window in every_window(world.stamped()):
        assert load(window).state_hash == world.shard.state_hash


REGEXES = ["orders.*", "o.*", ".*s", "bills|news", "(orders|bills)-.*", "nothing", ""]


@pytest.mark.parametrize("seed", range(25))
def test_schedules_of_members_topics_and_failovers_end_where_the_expressions_say(seed: int) -> None:
    """Whatever the order: in the end each expression has what matches, the members have it all, and a replay
    has the same state as the leader at every entry."""
    rng = random.Random(seed)
    world = World(
        GroupSettings(session_timeout_ms=20_000, regex_refresh_interval_ms=rng.choice([10_000, 600_000])),
        limits=Limits(resolve_inline_cost_max=rng.choice([-1, 30, 5_000])),
    )
    world.holds_jobs = rng.random() < 0.5
    world.after_entry.append(Twin(seed))
    clients = [Client(world, name) for name in string.ascii_lowercase[:4]]
    for client in clients:
        client.topics, client.regex = (), rng.choice(REGEXES)
    names = ["orders", "orders-eu", "oranges", "bills", "bills-1", "news"]
    for _ in range(150):
        what = rng.random()
        name = rng.choice(names)
        exists = world.catalog.view.topic(name) is not None
        if what < 0.45:
            rng.choice(clients).beat(lose_reply=rng.random() < 0.1)
        elif what < 0.55:
            rng.choice(clients).subscribe(rng.sample(names, rng.randrange(2)), rng.choice(REGEXES))
        elif what < 0.7:
            world.delete_topic(name) if exists else world.create_topic(name, rng.randrange(1, 5))
        elif what < 0.75:
            rng.choice([client for client in clients if client.epoch] or [None]) and clients[0].leave()  # type: ignore[func-returns-value]
        elif what < 0.8:
            world.failover()
        elif world.jobs and what < 0.9:
            failed = rng.random() < 0.3
            world.end_job(world.jobs[0], error="killed") if failed else world.end_jobs()
        else:
            world.sleep(rng.choice([1, 50, 500, 3_000]))
    world.holds_jobs = False
    world.end_jobs()
    for _ in range(15):
        for client in clients:
            client.beat()
        world.sleep(2_000)
    group = world.group()
    catalog = world.catalog.view
    for regex in group.regex_subscribers:
        assert list(group.resolved(regex)) == [
            t.name for t in catalog.topics() if re.fullmatch(regex, t.name)
        ]
    assert group.regexes.keys() == group.regex_subscribers.keys()
    wanted = {
        (topic.topic_id, partition)
        for topic in catalog
        if topic.name in group.subscriptions
        for partition in range(topic.num_partitions)
    }
    owned = [(t, p) for client in clients for t, numbers in client.owned.items() for p in numbers]
    assert sorted(owned) == sorted(wanted)
    assert snapshot(world.replayed(len(world.log))) == snapshot(world.shard)
