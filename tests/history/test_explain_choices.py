"""The filters of `explain`: an epoch, a member, a partition, a moment, a window."""

from __future__ import annotations

from typing import Any

import pytest

from history.moments import LogWindow
from history.reading.node import NodeLog
from history.reading.source import NothingToRead
from history.render import UTC_STYLE
from history.telling.explain import Explanation, explain
from history.telling.filters import Filters
from history.telling.prose import explanation_text
from records.ids import METADATA_SHARD
from tests.support.memory_log import GROUP, NOON_MS
from tests.support.payments_log import ANN, BOB, group_log, metadata_log


def asked(filters: Filters | None = None, **window: Any) -> Explanation:
    log = NodeLog("node-1", {METADATA_SHARD: metadata_log().log, 0: group_log().log}, 1)
    return explain(log, GROUP, filters=filters or Filters(), style=UTC_STYLE, window=LogWindow(**window))


def told(explanation: Explanation) -> list[tuple[str, int | None]]:
    return [(step.kind, step.index) for step in explanation.steps]


def test_one_epoch() -> None:
    only = asked(Filters(epoch=2))
    assert told(only) == [("epoch", 4), ("term", 8)]
    assert only.epochs[0] == asked().epochs[1]


def test_an_epoch_that_is_not_there_is_told_which_are() -> None:
    with pytest.raises(
        NothingToRead, match=r"no epoch 9 of group 'payments' in what was read: it has .* 1-5"
    ):
        asked(Filters(epoch=9))


@pytest.mark.parametrize("name", [BOB, "m2", "app-2"])
def test_a_member_is_found_by_each_of_its_names(name: str) -> None:
    bob = asked(Filters(member=name))
    assert [step.epoch for step in bob.epochs] == [2, 3, 4]
    assert bob.said == (
        (
            "m2 (client app-2, 127.0.0.1) came at 2026-03-01 12:00:05.000+00:00 (index 4) and was removed "
            "because its session expired, at index 11, after 38.5 s"
        ),
    )
    third = bob.epochs[1]
    assert [move.words() for move in third.moves] == ["orders 7: nobody -> m2"]
    assert third.progress == ()
    assert [step.member for step in bob.epochs[0].progress] == ["m2", "m2"]
    assert [wait.holder for wait in bob.epochs[0].waits] == ["m1"]


def test_a_member_that_is_not_there_is_told_who_is() -> None:
    with pytest.raises(NothingToRead, match=r"no member 'm7' in the group: it had m[12] \(client app"):
        asked(Filters(member="m7"))
    with pytest.raises(NothingToRead, match=r"no member 'app-3'.*m2 .*app-2.* and m1 .*app-1"):
        asked(Filters(member="app-3"))


def test_a_partition() -> None:
    fifth = asked(Filters(partition="orders-5"))
    assert [step.epoch for step in fifth.epochs] == [1, 2, 4, 5]
    assert fifth.said[1:3] == (
        "orders-5: m1 was told to give it up from 2026-03-01 12:00:05.150+00:00 (index 5) on, for 512 ms",
        "orders-5: nobody had it from 2026-03-01 12:00:05.662+00:00 (index 6) on, for 338 ms",
    )
    assert [wait.words for wait in fifth.epochs[1].waits] == [
        (
            "m2 waited 662 ms for orders 5, held by m1, which was told at 12:00:05.150 (index 5) and gave"
            " it up at index 6"
        )
    ]


@pytest.mark.parametrize("name", ["orders-8", "bills-0", "orders", "orders-x", "-3"])
def test_a_partition_that_is_not_there_is_told_which_are(name: str) -> None:
    with pytest.raises(NothingToRead, match=r"it has orders 0-7 \(orders 0-3 means orders-0 to orders-3\)"):
        asked(Filters(partition=name))


def test_a_moment_of_rest() -> None:
    calm = asked(Filters(at_ms=NOON_MS + 20_000))
    assert [step.epoch for step in calm.epochs] == [2]
    assert calm.said == (
        (
            "at 2026-03-01 12:00:20.000+00:00 epoch 2 was in force, since index 4, and the group at rest"
            " since 2026-03-01 12:00:06.000+00:00 (index 7)"
        ),
    )


def test_a_moment_of_unrest_from_the_last_stable_epoch_to_the_next() -> None:
    """orders grows and bob expires: 3.3 s without rest, from index 9 to index 12."""
    unrest = asked(Filters(at_index=10))
    assert told(unrest) == [("epoch", 4), ("term", 8), ("epoch", 9), ("epoch", 11)]
    assert unrest.said == (
        (
            "at index 10 epoch 3 was in force, since index 9, and the group was not stable; it was again with"
            " epoch 4 at 2026-03-01 12:00:43.800+00:00 (index 12), after 3.3 s of unrest"
        ),
    )
    assert asked(Filters(at_ms=NOON_MS + 43_600)).epochs == unrest.epochs


def test_a_moment_before_the_group() -> None:
    with pytest.raises(NothingToRead, match=r"was not there yet at index 1: its first epoch .* \(index 2\)"):
        asked(Filters(at_index=1))


def test_a_moment_where_the_story_ends_in_unrest() -> None:
    cut = asked(Filters(at_index=10), to_index=10)
    assert cut.said[0].endswith("and the group was not stable; nor was it at the end of what was read")


@pytest.mark.parametrize("window", [{"from_index": 99}, {"to_index": 99}, {"filters": Filters(at_index=99)}])
def test_an_index_behind_the_end_is_told_which_is_the_last(window: dict[str, Any]) -> None:
    with pytest.raises(
        NothingToRead, match=r"index 99 does not exist, the last one is 13 \(shard-0: entries 1"
    ):
        asked(**window)


def test_a_moment_behind_the_end_is_answered_as_of_the_last_entry() -> None:
    later = asked(Filters(at_ms=NOON_MS + 3_600_000))
    assert "the log that was read ends at 2026-03-01 12:00:" in later.said[0]
    assert "before that moment; at its end epoch" in later.said[0]
    assert "the log that was read ends at" not in asked(Filters(at_ms=NOON_MS + 20_000)).said[0]


def test_only_members_that_follow_are_introduced() -> None:
    first = list(explanation_text(asked(Filters(epoch=1)), UTC_STYLE))
    assert [line.split(" ")[0] for line in first if " is " in line and "client" in line] == ["m1"]
    both = list(explanation_text(asked(), UTC_STYLE))
    assert [line.split(" ")[0] for line in both if line[:6] in ("m1 is ", "m2 is ")] == ["m1", "m2"]


def test_windows() -> None:
    assert told(asked(from_index=9)) == [("epoch", 9), ("epoch", 11), ("epoch", 13)]
    assert told(asked(from_index=8)) == [
        ("epoch", 4),
        ("term", 8),
        ("epoch", 9),
        ("epoch", 11),
        ("epoch", 13),
    ]
    assert told(asked(to_ms=NOON_MS + 6_000)) == [("term", 1), ("epoch", 2), ("epoch", 4)]
    assert told(asked(from_ms=NOON_MS + 50_000)) == [("epoch", 11), ("epoch", 13)]


def test_choices_narrow_each_other() -> None:
    assert [step.epoch for step in asked(Filters(member=ANN, partition="orders-6")).epochs] == [3, 5]
    nothing = asked(Filters(epoch=1, member=BOB))
    assert nothing.steps == ()
    assert list(explanation_text(nothing))[-1] == "nothing that matches was found in what was read"
