"""The checkers themselves: each must find its own kind of violation, and nothing else."""

from __future__ import annotations

import math

from tests.simulated.chronicle import Chronicle, Key, Ownership

KEY: Key = ("billing", "orders", 0)


def write(chronicle: Chronicle, sent_ms: float, acked_ms: float = math.inf) -> int:
    attempt = chronicle.begin(KEY, sent_ms)
    attempt.acked_ms = acked_ms
    return attempt.offset


def test_an_acknowledged_commit_that_no_log_has_is_lost() -> None:
    chronicle = Chronicle()
    kept, lost = write(chronicle, 0, 5), write(chronicle, 10, 15)
    write(chronicle, 20)  # without an answer it may take effect at any time
    assert chronicle.lost({(KEY, kept), (KEY, lost)}) == []
    assert len(chronicle.lost({(KEY, kept)})) == 1


def test_a_read_may_show_what_is_newer_or_was_never_answered() -> None:
    chronicle = Chronicle()
    unanswered, acked = write(chronicle, 0), write(chronicle, 10, 15)
    under_way = write(chronicle, 18, 30)
    for offset in (unanswered, acked, under_way):
        chronicle.read("billing", 20, 25, {KEY: offset})
    assert chronicle.old_reads() == []


def test_a_read_of_what_was_replaced_before_it_was_sent_is_old() -> None:
    chronicle = Chronicle()
    old, new = write(chronicle, 0, 5), write(chronicle, 10, 15)
    chronicle.read("billing", 14, 25, {KEY: old})  # sent before the newer one was acknowledged
    chronicle.read("billing", 16, 25, {KEY: new})
    assert chronicle.old_reads() == []
    chronicle.read("billing", 16, 25, {KEY: old})
    assert len(chronicle.old_reads()) == 1


def test_a_read_without_an_acknowledged_key_is_old() -> None:
    chronicle = Chronicle()
    write(chronicle, 0, 5)
    chronicle.read("another group", 10, 11, {})
    assert chronicle.old_reads() == []
    chronicle.read("billing", 10, 11, {})
    chronicle.read("billing", 10, 11, {KEY: 77})  # no client ever sent it
    assert len(chronicle.old_reads()) == 2


def test_a_read_from_the_future_is_found() -> None:
    chronicle = Chronicle()
    write(chronicle, 0, 5)
    later = write(chronicle, 50, 55)
    chronicle.read("billing", 10, 11, {KEY: later})
    assert len(chronicle.old_reads()) == 1


def member(chronicle: Chronicle, name: str) -> Ownership:
    return Ownership(chronicle, "billing", name, session_ms=100)


def test_an_orderly_hand_over_is_no_double_ownership() -> None:
    chronicle = Chronicle()
    one, two = member(chronicle, "one"), member(chronicle, "two")
    one.accepted(0, 1)
    one.assigned({(b"t", 0)}, 1)
    one.accepted(40, 41)
    one.assigned(set(), 41)
    two.accepted(45, 46)
    two.assigned({(b"t", 0)}, 46)
    for owner in (one, two):
        owner.finish()
    assert chronicle.double_owners() == []


def test_a_partition_given_away_before_it_was_given_up_has_two_owners() -> None:
    chronicle = Chronicle()
    one, two = member(chronicle, "one"), member(chronicle, "two")
    one.accepted(0, 1)
    one.assigned({(b"t", 0)}, 1)
    two.accepted(45, 46)
    two.assigned({(b"t", 0)}, 46)
    for owner in (one, two):
        owner.finish()
    assert len(chronicle.double_owners()) == 1


def test_a_member_that_hears_nothing_stops_owning_at_the_end_of_its_session() -> None:
    chronicle = Chronicle()
    one, two = member(chronicle, "one"), member(chronicle, "two")
    one.accepted(0, 1)
    one.assigned({(b"t", 0)}, 1)
    two.accepted(99, 101)
    two.assigned({(b"t", 0)}, 101)
    one.accepted(300, 301)  # the node took it back, which is wrong
    for owner in (one, two):
        owner.finish()
    assert [t.begin_ms for t in chronicle.tenures if t.member_id == "one"] == [1, 301]
    assert chronicle.double_owners() == []  # two had stopped at 199 for want of an answer


def test_an_answer_from_before_the_leave_gives_a_member_nothing_back() -> None:
    """Only the answer to a heartbeat that was sent later does, as the member has joined again then."""
    chronicle = Chronicle()
    one, two = member(chronicle, "one"), member(chronicle, "two")
    one.accepted(0, 1)
    one.assigned({(b"t", 0)}, 1)
    one.left(41)  # its program does not poll, and so has not let go
    one.accepted(40, 42)
    two.accepted(45, 46)
    two.assigned({(b"t", 0)}, 46)
    one.accepted(60, 61)
    for owner in (one, two):
        owner.finish()
    assert [(t.begin_ms, t.end_ms) for t in chronicle.tenures if t.member_id == "one"] == [(1, 41), (61, 160)]
    assert len(chronicle.double_owners()) == 1  # from 61 on only
