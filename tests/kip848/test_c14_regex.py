"""C.14: subscriptions by regular expression: what is a valid one, and when a member gets what it matches."""

from __future__ import annotations

import pytest

from coordinator.limits import Limits
from coordinator.regex.expressions import InvalidExpression, check_expression
from records import ReasonKind, Trigger
from tests.kip848.expressions import by_regex
from tests.support.group_client import Client
from tests.support.world import World
from wire.errors import ErrorCode


def test_a_member_gets_nothing_until_its_expression_is_resolved(world: World) -> None:
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
    "too long": ("a" * 65_536, "the maximum is 4096"),
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
