"""Counterfactuals are exact if the records prove them; otherwise nothing is claimed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from history.moments import LogWindow
from history.reading.node import NodeLog
from history.render import UTC_STYLE
from history.telling.explain import explain
from history.telling.filters import Filters
from history.telling.known import Counterfactual
from history.telling.prose import explanation_text
from records import Cause, Expiry, MemberState, Reason, ReasonKind, Trigger
from records.ids import topic_id_text
from tests.support.memory_log import (
    GROUP,
    NOON_MS,
    ORDERS,
    Writer,
    current,
    gone,
    group_epoch,
    group_topics,
    member,
    target,
    target_epoch,
)
from tests.support.payments_log import joined

HEARTBEAT, FENCED, UNKNOWN_MEMBER = 68, 110, 25
MINUTE_MS = 60_000


def what_if(log: Writer, *notes: Mapping[str, Any]) -> list[Counterfactual]:
    log.log.notes = [dict(note) for note in notes]
    told = explain(NodeLog("node-1", {0: log.log}, 1), GROUP, style=UTC_STYLE)
    assert [words for step in told.epochs for words in step.what_if] == [
        one.words for one in told.counterfactuals
    ]
    return list(told.counterfactuals)


def refused(member_id: str, at_ms: int, error: int = UNKNOWN_MEMBER, **more: Any) -> dict[str, Any]:
    return {
        "kind": "refused",
        "at_ms": at_ms,
        "api": HEARTBEAT,
        "error": error,
        "reason": "",
        "group": GROUP,
        "member": member_id,
    } | more


def gap(member_id: str, minute_ms: int, gap_ms: float) -> dict[str, Any]:
    return {
        "kind": "heartbeat_gap",
        "at_ms": minute_ms,
        "minute_ms": minute_ms,
        "gap_ms": gap_ms,
        "group": GROUP,
        "member": member_id,
    }


def two_members() -> Writer:
    """ann owns orders 0-2 and bob orders 3-5, at epoch 2 since noon."""
    log = Writer()
    log.append(joined("ann"), member("ann", "app-1"), group_topics(6, 1), group_epoch(1), target_epoch(1))
    log.append(
        joined("bob"),
        member("bob", "app-2"),
        group_epoch(2),
        target("ann", 0, 1, 2),
        target("bob", 3, 4, 5),
        target_epoch(2),
        current("ann", 2, (0, 1, 2)),
        current("bob", 2, (3, 4, 5)),
    )
    return log


def bob_expires(log: Writer, trigger: Trigger, timeout_ms: int, armed_ms: int) -> None:
    """Append bob's expiry to the log, 40 ms after its deadline."""
    kind = ReasonKind.SESSION_EXPIRED if trigger == Trigger.SESSION_EXPIRED else ReasonKind.REBALANCE_EXPIRED
    expiry = Expiry(
        member_id="bob",
        timeout_ms=timeout_ms,
        armed_ms=armed_ms,
        last_heartbeat_ms=armed_ms if trigger == Trigger.SESSION_EXPIRED else -1,
        deadline_ms=armed_ms + timeout_ms,
    )
    log.now_ms = expiry.deadline_ms + 40
    log.append(
        Cause(trigger=trigger, reasons=(Reason(kind=kind, member_id="bob"),), expiries=(expiry,)),
        *gone("bob"),
        group_epoch(3),
        target("ann", 0, 1, 2, 3, 4, 5),
        target_epoch(3),
    )


def session_expired() -> Writer:
    log = two_members()
    bob_expires(log, Trigger.SESSION_EXPIRED, 3_000, NOON_MS + 8_200)
    return log


def test_a_refused_heartbeat_proves_how_late_it_was() -> None:
    (one,) = what_if(session_expired(), refused("bob", NOON_MS + 12_000))
    assert (one.kind, one.member_id, one.epoch, one.is_certain) == ("heartbeat", "bob", 3, True)
    assert (one.deadline_ms, one.late_ms, one.at_ms) == (NOON_MS + 11_200, 800, NOON_MS + 12_000)
    assert one.words == (
        "had the heartbeat of bob that was refused at 12:00:12.000 come before 12:00:11.200 (it was 800 ms"
        " late) it would not have been removed; it came 3.8 s after the last one, and the session timeout"
        " is 3.0 s"
    )


def test_without_one_nothing_is_claimed() -> None:
    """Nothing is certain without a refused heartbeat of bob after its expiry. An earlier one does not count,
    nor one of another member or group, a commit, or another error."""
    (one,) = what_if(session_expired())
    assert (one.is_certain, one.late_ms) == (False, None)
    assert one.words == (
        "had a heartbeat of bob come before 12:00:11.200 it would not have been removed; whether it was"
        " late or gone is not known: there is no evidence of the group"
    )
    (one,) = what_if(
        session_expired(),
        refused("bob", NOON_MS + 5_000),
        refused("ann", NOON_MS + 12_000),
        refused("bob", NOON_MS + 12_000, api=8),
        refused("bob", NOON_MS + 12_100, error=113),
        refused("bob", NOON_MS + 12_100, group="another"),
    )
    assert (one.is_certain, one.late_ms) == (False, None)
    assert one.words.endswith(
        "is not known: the evidence file has no later heartbeat of it that was refused for that"
    )


def test_its_return_bounds_how_late_it_was() -> None:
    log = session_expired()
    log.now_ms = NOON_MS + 12_700
    log.append(joined("bob"), member("bob", "app-2"), group_epoch(4), target_epoch(4))
    (one,) = what_if(log)
    assert (one.is_certain, one.late_ms) == (False, None)
    assert one.words.endswith(
        "it was late and not gone, by 1.5 s at most: it joined again at 12:00:12.700 (index 4)"
    )
    (one,) = what_if(log, refused("bob", NOON_MS + 20_000))
    assert not one.is_certain, "what was refused after its return says nothing of the time before"


def test_a_heartbeat_of_who_owed_partitions_would_only_have_ended_its_silence() -> None:
    """It might have been fenced later all the same, for the partitions that it had not revoked."""
    (one,) = what_if(slow_to_give_up(Trigger.SESSION_EXPIRED, 45_000))
    assert one.words.startswith(
        "had a heartbeat of bob come before 12:00:46.000 it would not have been removed for its silence;"
    )


def slow_to_give_up(trigger: Trigger = Trigger.REBALANCE_EXPIRED, timeout_ms: int = 60_000) -> Writer:
    """bob is told at 12:00:01.000 to revoke orders 5, has a minute to do so, and does not."""
    log = two_members()
    log.after(900).append(
        Cause(trigger=Trigger.CATALOG_CHANGED), group_epoch(2), target("ann", 0, 1, 2, 5), target("bob", 3, 4)
    )
    log.after(100).append(
        Cause(trigger=Trigger.HEARTBEAT, member_id="bob"),
        current("bob", 2, (3, 4), (5,), MemberState.UNREVOKED_PARTITIONS),
    )
    bob_expires(log, trigger, timeout_ms, NOON_MS + 1_000)
    return log


def test_a_refused_acknowledgement_proves_how_late_it_was() -> None:
    owned = {topic_id_text(ORDERS): [3, 4]}
    (one,) = what_if(slow_to_give_up(), refused("bob", NOON_MS + 61_800, FENCED, owned=owned))
    assert (one.kind, one.is_certain, one.late_ms) == ("acknowledgement", True, 800)
    assert one.words == (
        "had bob acknowledged the revocation of orders 5 before 12:01:01.000 it would not have been fenced:"
        " its acknowledgement came at 12:01:01.800, 800 ms late"
    )


def test_a_heartbeat_that_still_has_it_or_does_not_say_is_no_acknowledgement() -> None:
    still = {topic_id_text(ORDERS): [3, 4, 5]}
    for note, said in (
        (refused("bob", NOON_MS + 61_800, FENCED, owned=still), "and said that it still had some of it"),
        (refused("bob", NOON_MS + 61_800, FENCED), "and whether that was the acknowledgement is not known"),
    ):
        (one,) = what_if(slow_to_give_up(), note)
        assert (one.is_certain, one.late_ms, one.at_ms) == (False, None, NOON_MS + 61_800)
        assert one.words.endswith(f"a heartbeat of it came 800 ms after that and was refused, {said}")
    (one,) = what_if(slow_to_give_up())
    assert one.words.endswith("late or never would have is not known: there is no evidence of the group")


def three_members_and_a_slow_one(slow_ms: int = 7_700) -> Writer:
    """bob joins ann (0-5) and eve (6, 7) at noon; eve revokes 7 at once, ann takes 8.2 s for 3-5."""
    log = Writer()
    log.append(
        joined("ann"),
        *(member(name, "app", host="") for name in ("ann", "eve")),
        group_topics(8, 1),
        group_epoch(1),
        target("ann", 0, 1, 2, 3, 4, 5),
        target("eve", 6, 7),
        target_epoch(1),
        current("ann", 1, (0, 1, 2, 3, 4, 5)),
        current("eve", 1, (6, 7)),
    )
    unrevoked, unreleased = MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS
    log.append(
        joined("bob"),
        member("bob", "app"),
        group_epoch(2),
        target("ann", 0, 1, 2),
        target("eve", 6),
        target("bob", 3, 4, 5, 7),
        target_epoch(2),
        current("bob", 2, (), state=unreleased),
    )
    beat = Cause(trigger=Trigger.HEARTBEAT)
    log.after(100).append(beat, current("ann", 1, (0, 1, 2), (3, 4, 5), unrevoked))
    log.after(100).append(beat, current("eve", 1, (6,), (7,), unrevoked))
    log.after(100).append(beat, current("eve", 2, (6,)))
    log.after(300).append(beat, current("bob", 2, (7,), state=unreleased))
    log.after(slow_ms).append(beat, current("ann", 2, (0, 1, 2)))
    log.after(200).append(beat, current("bob", 2, (3, 4, 5, 7)))
    return log


def test_how_much_sooner_without_a_slow_revoker() -> None:
    """All else was done at 12:00:00.600; no record says when bob would have taken over the rest."""
    (one,) = what_if(three_members_and_a_slow_one())
    assert (one.kind, one.member_id, one.sooner_ms, one.sooner_ms_min) == ("wait", "ann", 7_900, None)
    assert (one.at_ms, one.is_certain) == (NOON_MS + 600, False)
    assert one.words == (
        "without the 8.3 s wait for ann, the epoch would have been stable up to 7.9 s sooner: all else was "
        "done at 12:00:00.600 (index 6); how soon bob would have taken over its partitions is unknown: "
        "there is no evidence of the group"
    )


def test_how_much_sooner_at_least_follows_from_how_often_the_waiter_was_heard_of() -> None:
    """All was revoked by 12:00:00.300, and bob's heartbeats were 500 ms apart: one came by 12:00:00.800."""
    (one,) = what_if(three_members_and_a_slow_one(), gap("bob", NOON_MS, 500.0))
    assert (one.sooner_ms, one.sooner_ms_min, one.is_certain) == (7_900, 7_700, True)
    assert one.words == (
        "without the 8.3 s wait for ann, the epoch would have been stable between 7.7 s and 7.9 s sooner: "
        "all else was done at 12:00:00.600 (index 6)"
    )
    (one,) = what_if(three_members_and_a_slow_one(), gap("bob", NOON_MS - MINUTE_MS, 500.0))
    assert one.sooner_ms_min is None, "another minute says nothing of this one"
    (one,) = what_if(three_members_and_a_slow_one(), gap("eve", NOON_MS, 500.0))
    assert one.sooner_ms_min is None, "nor does another member"


def test_an_epoch_that_was_overtaken_may_never_have_been_stable() -> None:
    log = three_members_and_a_slow_one()
    del log.log.written[6:]
    log.now_ms = NOON_MS + 5_000
    log.append(joined("zoe"), member("zoe", "app"), group_epoch(3))
    log.after(1_000).append(Cause(trigger=Trigger.HEARTBEAT), current("ann", 2, (0, 1, 2)))
    (one, *_) = what_if(log)
    assert (one.epoch, one.is_certain, one.sooner_ms) == (2, False, None)
    assert one.words == (
        "others waited 6.0 s for ann; whether the epoch would have been stable without is not known, as"
        " epoch 3 overtook it"
    )


def test_a_quick_rebalance_is_no_matter() -> None:
    log = three_members_and_a_slow_one()
    del log.log.written[6:]
    log.now_ms = NOON_MS + 700
    log.append(Cause(trigger=Trigger.HEARTBEAT), current("ann", 2, (0, 1, 2)))
    log.after(200).append(Cause(trigger=Trigger.HEARTBEAT), current("bob", 2, (3, 4, 5, 7)))
    assert what_if(log) == []


def test_a_slow_revoker_stands_out_first_and_at_its_epoch() -> None:
    log = three_members_and_a_slow_one(slow_ms=20_000)
    node = NodeLog("node-1", {0: log.log}, 1)
    told = explain(node, GROUP, style=UTC_STYLE)
    (finding,) = told.findings
    assert (finding.kind, finding.members, finding.epochs) == (
        "SLOW_REVOKER",
        ("ann", "bob"),
        (2,),
    )
    assert [step.stands_out for step in told.epochs] == [
        (),
        ("SLOW_REVOKER: a member gave up partitions slowly",),
    ]
    lines = list(explanation_text(told, UTC_STYLE))
    at = lines.index("findings:")
    assert lines[at + 1].startswith("  warning SLOW_REVOKER  2026-03-01 12:00:00.")
    assert "ann (client app)" in lines[at + 1]
    assert at < next(number for number, line in enumerate(lines) if "epoch 0 -> 1" in line)
    for filters, found in (
        (Filters(epoch=1), 0),
        (Filters(epoch=2), 1),
        (Filters(member="ann"), 1),
        (Filters(member="eve"), 0),
        (Filters(partition="orders-4"), 1),
        (Filters(partition="orders-7"), 0),
        (Filters(at_ms=NOON_MS + 5_000), 1),
    ):
        narrowed = explain(node, GROUP, filters=filters)
        assert len(narrowed.findings) == found, filters
    assert explain(node, GROUP, window=LogWindow(from_ms=NOON_MS + 60_000)).findings == ()


def test_no_lower_bound_is_claimed_where_the_slow_member_also_had_to_take_partitions() -> None:
    log = three_members_and_a_slow_one()
    last = log.log.written.pop()
    log.now_ms = last.timestamp_ms - 100
    log.append(Cause(trigger=Trigger.HEARTBEAT), current("ann", 2, (0, 1, 2, 8)))
    log.now_ms = last.timestamp_ms
    log.append(Cause(trigger=Trigger.HEARTBEAT), current("bob", 2, (3, 4, 5, 7)))
    (one,) = what_if(log, gap("bob", NOON_MS, 500.0))
    assert (one.sooner_ms, one.sooner_ms_min, one.is_certain) == (7_900, None, False)
    assert one.words.endswith("is unknown: it also had partitions to take over")


def test_a_waiter_that_was_heard_of_as_seldom_as_that_proves_nothing() -> None:
    (one,) = what_if(three_members_and_a_slow_one(), gap("bob", NOON_MS, 9_000.0))
    assert (one.sooner_ms, one.sooner_ms_min, one.is_certain) == (7_900, None, False)
    assert one.words.endswith("is unknown: the gaps between their heartbeats were as long as that")
