"""A member's life with a coordinator that a test plays: joining, reconciling, fencing, leaving, ending."""

from __future__ import annotations

import pytest

from client.core.errors import FatalError
from client.core.events import AckPartitionAssignedEvent, AckPartitionRevokedEvent
from client.core.member.drawings import group_state
from client.core.member.membership import UNJOINED_LEAVE_MS
from client.core.member.states import FATAL_ERRORS, UNKNOWN_ERROR
from client.core.requests import RequestFailure
from client.core.types import TopicPartition
from tests.client.heartbeat_script import BILLS, ORDERS, HeartbeatScript, named_as_owned
from tests.client.member_host import built
from wire.errors import ErrorCode

FENCING = [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND]


def told(script: HeartbeatScript) -> list[str]:
    return script.member.application.told


def with_callbacks_held(given: dict[bytes, list[int]]) -> HeartbeatScript:
    """A stable member whose next callbacks end only when a test says so."""
    script = HeartbeatScript()
    script.settle(given)
    told(script).clear()
    script.member.application.holds_callbacks = True
    script.agenda.run(5_000)
    return script


# Joining and reconciling.


def test_the_nine_steps_of_a_new_group() -> None:
    """The rebalance flow of the design of the consumer's threads, by its names of the group's state."""
    script = HeartbeatScript()
    script.member.application.holds_callbacks = True
    membership = script.member.membership
    story = [f"[1] {group_state(membership.state).name}"]
    script.member.subscribe("orders")
    story.append(f"[2] {group_state(membership.state).name}")
    story.append(f"[3] heartbeat, epoch {script.next().member_epoch}")
    script.answer(1, {ORDERS: [0, 1]})
    story.append(f"[4] {group_state(membership.state).name}, epoch {membership.member_epoch}")
    story.append(f"[5] waits for {script.member.member.explain().waits_for}")
    script.agenda.run(0)
    story.append(f"[6] application: {told(script)[-1]}")
    membership.acknowledge(AckPartitionAssignedEvent(round=1, version=1), script.agenda.now_ms)
    story.append(f"[7] {group_state(membership.state).name}")
    script.member.run()
    story.append(f"[8] heartbeat, owns {named_as_owned(script.next())}")
    story.append(f"[9] {group_state(membership.state).name}")
    assert story == [
        "[1] UNJOINED",
        "[2] PREPARE",
        "[3] heartbeat, epoch 0",
        "[4] ASSIGN, epoch 1",
        "[5] waits for on_assign of 2 partitions",
        "[6] application: assigned orders:0 orders:1",
        "[7] COMPLETE",
        f"[8] heartbeat, owns {{{ORDERS!r}: [0, 1]}}",
        "[9] STABLE",
    ]


def test_a_join_that_gets_nothing_is_stable_without_a_callback() -> None:
    script = HeartbeatScript()
    script.member.subscribe("orders")
    script.answer(1, {})
    script.agenda.run(0)
    assert script.member.states == ["UNSUBSCRIBED", "JOINING", "STABLE"]
    assert told(script) == []


def test_an_equal_assignment_changes_nothing() -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0, 1]})
    script.agenda.run(5_000)
    script.answer(4, {ORDERS: [1, 0]})
    script.agenda.run(0)
    assert script.member.states[-1] == "STABLE"
    assert len(told(script)) == 1
    assert script.member.membership.member_epoch == 4, "the epoch is taken all the same"
    assert script.asked == []


def test_partitions_are_given_up_before_others_are_taken() -> None:
    script = with_callbacks_held({ORDERS: [0, 1]})
    application = script.member.application
    script.answer(2, {ORDERS: [1], BILLS: [0]})
    assert script.member.membership.member_epoch == 2, "the epoch is taken first"
    script.agenda.run(0)
    assert told(script) == ["revoking orders:0"]
    assert script.member.positions.fetched == {("orders", 1)}
    assert BILLS not in {part.topic_id for part in script.member.membership.owned}
    application.end_callback()
    script.agenda.run(0)
    assert told(script)[1:] == ["revoked orders:0", "assigned bills:0"]
    assert script.member.positions.fetched == {("orders", 1)}, "not before the callback has ended"
    application.end_callback()
    assert script.member.positions.fetched == {("orders", 1), ("bills", 0)}
    assert script.member.states[-3:] == ["RECONCILING", "ACKNOWLEDGING", "STABLE"]


def test_a_newer_assignment_is_taken_without_the_one_before_it() -> None:
    script = with_callbacks_held({ORDERS: [0, 1, 2]})
    script.answer(2, {ORDERS: [1, 2], BILLS: [0]})
    script.agenda.run(5_000)
    script.answer(3, {ORDERS: [1], BILLS: [1]})
    script.member.application.end_callback()
    script.agenda.run(0)
    script.member.application.end_callback()
    script.agenda.run(0)
    script.member.application.end_callback()
    assert told(script) == [
        "revoking orders:0", "revoked orders:0", "revoking orders:2", "revoked orders:2", "assigned bills:1",
    ]  # fmt: skip
    assert named_as_owned(script.next()) == {BILLS: [1], ORDERS: [1]}


def test_an_assignment_that_is_taken_back_before_it_was_begun_is_acknowledged() -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0]})
    script.member.names.known = {}
    script.agenda.run(5_000)
    script.answer(1, {ORDERS: [0], BILLS: [0]})
    script.agenda.run(5_000)
    script.answer(1, {ORDERS: [0]})
    script.agenda.run(0)
    assert named_as_owned(script.next()) == {ORDERS: [0]}
    assert script.member.state == "STABLE"


def test_topics_without_a_name_are_asked_for_and_the_others_do_not_wait() -> None:
    script = HeartbeatScript()
    script.member.names.known = {ORDERS: "orders"}
    script.member.subscribe("orders", "bills")
    script.answer(1, {ORDERS: [0], BILLS: [0]})
    script.agenda.run(0)
    assert told(script) == ["assigned orders:0"]
    assert named_as_owned(script.next()) == {BILLS: [0], ORDERS: [0]}
    script.answer(1)
    assert script.member.names.wanted == {BILLS}
    assert script.member.state == "RECONCILING"
    assert script.member.member.explain().waits_for == "the names of 1 topic"
    assert script.asked == [], "nothing is to be acknowledged until the name is known"
    script.member.names.known[BILLS] = "bills"
    script.member.run()
    script.agenda.run(0)
    assert told(script)[-1] == "assigned bills:0"
    assert named_as_owned(script.next()) == {BILLS: [0], ORDERS: [0]}


def test_a_topic_that_was_made_again_under_its_name_is_given_up_and_taken() -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0]})
    script.member.names.known = {b"orders again" + bytes(4): "orders"}
    script.agenda.run(5_000)
    script.answer(2, {b"orders again" + bytes(4): [0]})
    script.agenda.run(0)
    assert told(script)[1:] == ["revoking orders:0", "revoked orders:0", "assigned orders:0"]
    assert named_as_owned(script.next()) == {b"orders again" + bytes(4): [0]}


# Fencing.


@pytest.mark.parametrize("code", FENCING)
def test_a_fenced_member_loses_all_it_has_and_joins_again_with_its_id(code: ErrorCode) -> None:
    script = with_callbacks_held({ORDERS: [0, 1]})
    script.refuse(code)
    assert script.member.state == "FENCED"
    assert (script.member.membership.member_epoch, script.member.membership.owned) == (0, {})
    assert script.member.positions.fetched == set()
    assert script.asked == [], "it joins when on_lost has ended"
    script.agenda.run(0)
    script.member.application.end_callback()
    assert told(script) == ["lost orders:0 orders:1"]
    body = script.next()
    assert (body.member_id, body.member_epoch, body.topic_partitions) == ("m1", 0, [])
    assert body.subscribed_topic_names == ["orders"]
    script.answer(7, {ORDERS: [0]})
    script.agenda.run(0)
    script.member.application.end_callback()
    assert script.member.state == "STABLE"


def test_fencing_cancels_a_reconciliation_by_its_round_number() -> None:
    script = with_callbacks_held({ORDERS: [0, 1]})
    script.answer(2, {ORDERS: [1], BILLS: [0]})
    script.agenda.run(5_000)
    assert told(script) == ["revoking orders:0"]
    script.refuse(ErrorCode.FENCED_MEMBER_EPOCH)
    assert script.member.state == "FENCED"
    script.member.application.end_callback()
    assert script.member.state == "FENCED", "the late acknowledgement matches no round"
    assert told(script) == ["revoking orders:0", "revoked orders:0"]
    script.agenda.run(0)
    script.member.application.end_callback()
    assert told(script)[-1] == "lost orders:1", "orders:0 was given up by then"
    assert script.next().member_epoch == 0


def test_a_late_acknowledgement_of_a_member_that_joined_again_changes_nothing() -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0]})
    script.agenda.run(5_000)
    script.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    script.agenda.run(0)
    script.answer(3, {ORDERS: [0]})
    assert script.member.state == "RECONCILING"
    for number in range(3):
        script.member.tell(AckPartitionRevokedEvent(round=number))
        script.member.tell(AckPartitionAssignedEvent(round=number, version=9))
    assert script.member.state == "RECONCILING"
    assert script.member.positions.fetched == set()


@pytest.mark.parametrize("code", FENCING[:2])
def test_a_join_that_is_refused_as_unknown_is_tried_again_with_a_back_off(code: ErrorCode) -> None:
    script = HeartbeatScript()
    script.member.subscribe("orders")
    script.refuse(code)
    assert script.asked == []
    script.agenda.run(100)
    assert script.next().member_epoch == 0


# The application does not poll.


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i1", -2)])
def test_a_member_that_is_not_polled_leaves_loses_and_joins_again_at_the_next_poll(
    instance_id: str | None, epoch: int
) -> None:
    script = HeartbeatScript(max_poll_interval_ms=20_000, group_instance_id=instance_id)
    script.settle({ORDERS: [0]})
    script.agenda.run(5_000)
    script.answer(1)
    script.member.poll()
    script.agenda.run(5_000)
    script.asked.clear()  # one that has no answer yet
    script.agenda.run(15_000)
    assert script.member.state == "STALE"
    assert script.next().member_epoch == epoch
    assert told(script)[-1] == "lost orders:0"
    script.answer(epoch)
    script.agenda.run(60_000)
    assert script.asked == [], "a stale member sends no heartbeats"
    assert script.member.member.explain().waits_for == "poll()"
    script.member.poll()
    assert script.next().member_epoch == 0


def test_a_poll_before_the_callback_has_ended_joins_when_it_has() -> None:
    script = with_callbacks_held({ORDERS: [0]})
    script.answer(1)
    script.agenda.run(300_000)
    assert script.member.state == "STALE"
    script.asked.clear()
    script.member.poll()
    assert script.member.state == "STALE"
    script.member.application.end_callback()
    assert script.next().member_epoch == 0


def test_a_member_is_either_late_or_in_time_at_the_end_of_its_poll_interval() -> None:
    """However the sum of times is rounded: otherwise it would leave and join until the clock goes on."""
    for tenth in range(200):
        script = HeartbeatScript(max_poll_interval_ms=8_000)
        script.agenda.run(tenth / 10)
        script.member.subscribe("orders")
        script.agenda.run(8_000)
        assert script.member.state == "STALE"


def test_fetches_are_no_sign_of_life_and_heartbeats_go_on_while_the_application_works() -> None:
    """Only poll() counts for the poll interval, and only heartbeats for the session."""
    script = HeartbeatScript(max_poll_interval_ms=30_000)
    script.settle({ORDERS: [0]})
    for _ in range(5):
        script.agenda.run(5_000)
        assert named_as_owned(script.next()) is None
        script.answer(1)
    assert script.member.state == "STABLE"
    script.agenda.run(5_000)
    assert script.member.state == "STALE"


# Leaving.


@pytest.mark.parametrize(
    ("instance_id", "closes", "epoch"),
    [(None, False, -1), (None, True, -1), ("i1", False, -1), ("i1", True, -2)],
)
def test_a_leave_revokes_first_and_tells_the_coordinator_then(
    instance_id: str | None, closes: bool, epoch: int
) -> None:
    script = HeartbeatScript(group_instance_id=instance_id)
    script.settle({ORDERS: [0]})
    script.member.application.holds_callbacks = True
    done = script.member.leave(closes=closes)
    assert script.member.state == "PREPARE_LEAVING"
    assert script.asked == []
    script.agenda.run(5_000)
    assert script.next().member_epoch == 1, "it is a member until the callback has ended"
    script.answer(2, {ORDERS: [0, 1]})
    assert script.member.state == "PREPARE_LEAVING", "nothing is taken any more"
    script.member.application.end_callback()
    assert told(script)[1:] == ["revoking orders:0", "revoked orders:0"]
    body = script.next()
    assert (body.member_epoch, body.instance_id, body.topic_partitions) == (epoch, instance_id, None)
    assert not done.done()
    script.answer(epoch)
    assert done.result(0) is None
    assert script.member.state == "UNSUBSCRIBED"
    script.agenda.run(60_000)
    assert script.asked == []


def test_a_leave_ends_at_its_deadline_although_the_callback_does_not() -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0]})
    script.member.application.holds_callbacks = True
    done = script.member.leave(timeout_ms=3_000)
    script.agenda.run(2_999)
    assert not done.done()
    script.agenda.run(1)
    assert done.done()
    assert script.next().member_epoch == -1, "the coordinator is told all the same"
    script.member.application.end_callback()
    assert script.member.state == "UNSUBSCRIBED"


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_leave_ends_when_the_coordinator_refuses_it_or_does_not_answer(is_answered: bool) -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0]})
    done = script.member.leave()
    script.agenda.run(0)
    if is_answered:
        script.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    else:
        script.fail(RequestFailure.TIMED_OUT)
    assert done.done()
    assert script.member.state == "UNSUBSCRIBED"


def test_a_leave_does_not_wait_for_the_heartbeat_on_its_way() -> None:
    script = HeartbeatScript()
    script.member.subscribe("orders")
    done = script.member.leave()
    join, leave = script.asked
    assert (built(join, 1).member_epoch, built(leave, 1).member_epoch) == (0, -1)
    script.answer(5, {ORDERS: [0]})
    assert script.member.state == "LEAVING", "the join's answer means nothing any more"
    script.answer(-1)
    assert done.done()
    assert told(script) == []


@pytest.mark.parametrize("finds_coordinator", [True, False])
def test_a_leave_of_a_member_whose_join_was_not_answered_waits_for_a_moment_only(
    finds_coordinator: bool,
) -> None:
    """It may be a member, if only the answer was lost; so it says that it leaves."""
    script = HeartbeatScript()
    script.member.subscribe("orders")
    if finds_coordinator:
        script.fail()
    done = script.member.leave(closes=True)
    assert built(script.asked[-1], 1).member_epoch == -1
    assert script.asked[-1].timeout_ms == UNJOINED_LEAVE_MS
    script.agenda.run(UNJOINED_LEAVE_MS - 1)
    assert not done.done()
    script.agenda.run(1)
    assert done.done()


def test_a_leave_of_a_member_that_is_not_in_the_group_ends_at_once() -> None:
    script = HeartbeatScript()
    assert script.member.leave().done()
    script.member.coordinator.fatal = FatalError(30, "no")
    script.member.subscribe("orders")
    assert script.member.state == "FATAL"
    assert script.member.leave().done()
    assert script.asked == []


def test_a_leave_while_partitions_are_lost_waits_for_that_callback() -> None:
    script = with_callbacks_held({ORDERS: [0]})
    script.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    done = script.member.leave()
    script.agenda.run(0)
    assert not done.done()
    script.member.application.end_callback()
    assert done.done()
    assert script.asked == [], "the coordinator does not know it"


def test_a_leave_during_a_revocation_gives_up_what_is_left() -> None:
    script = with_callbacks_held({ORDERS: [0, 1]})
    script.answer(2, {ORDERS: [1]})
    script.agenda.run(0)
    script.member.leave()
    script.agenda.run(0)
    script.member.application.end_callback()
    assert script.asked == [], "one callback is left"
    script.member.application.end_callback()
    assert told(script) == ["revoking orders:0", "revoked orders:0", "revoking orders:1", "revoked orders:1"]
    assert script.next().member_epoch == -1


def test_a_member_that_is_fenced_while_it_leaves_does_not_join_again() -> None:
    script = with_callbacks_held({ORDERS: [0]})
    done = script.member.leave()
    script.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    assert script.member.state == "PREPARE_LEAVING"
    script.agenda.run(10_000)
    assert script.asked == []
    script.member.application.end_callback()
    assert done.done()
    assert script.asked == []


def test_a_subscription_while_it_leaves_joins_afterwards() -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0]})
    script.member.leave()
    script.agenda.run(0)
    script.member.subscribe("bills")
    assert script.next().member_epoch == -1
    script.answer(-1)
    body = script.next()
    assert (body.member_epoch, body.subscribed_topic_names) == (0, ["bills"])


# Errors that end it.


@pytest.mark.parametrize("code", [*FATAL_ERRORS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 31_000])
def test_a_fatal_error_loses_all_partitions_and_is_raised_with_its_sentence(code: int) -> None:
    script = HeartbeatScript()
    if code == ErrorCode.GROUP_ID_NOT_FOUND:  # of a join
        script.member.subscribe("orders")
        script.refuse(ErrorCode.GROUP_ID_NOT_FOUND, "it is a share group")
    else:
        script.settle({ORDERS: [0]})
        script.agenda.run(5_000)
        script.refuse(code, "says the coordinator")
    script.agenda.run(0)
    assert script.member.state == "FATAL"
    assert told(script)[1:] == (["lost orders:0"] if code != ErrorCode.GROUP_ID_NOT_FOUND else [])
    (error,) = script.member.application.errors
    assert isinstance(error, FatalError)
    assert error.code == code
    assert str(error).startswith(FATAL_ERRORS.get(code, UNKNOWN_ERROR))
    script.member.subscribe("bills")
    script.member.poll()
    script.agenda.run(600_000)
    assert script.asked == []
    assert script.member.state == "FATAL"


def test_a_coordinator_without_the_protocol_is_fatal() -> None:
    script = HeartbeatScript()
    script.member.subscribe("orders")
    script.fail(RequestFailure.UNSUPPORTED_VERSION)
    script.agenda.run(0)
    assert script.member.state == "FATAL"
    assert "Apache Kafka 4.0" in str(script.member.application.errors[0])


def test_refused_credentials_are_tried_again() -> None:
    """The connection has reported them; a token may be renewed meanwhile."""
    script = HeartbeatScript()
    script.member.subscribe("orders")
    script.fail(RequestFailure.AUTHENTICATION)
    assert script.member.state == "JOINING"
    assert "refused to authenticate" in script.member.member.explain().waits_for
    script.agenda.run(100)
    script.answer(1, {})
    assert script.member.state == "STABLE"


def test_a_group_that_may_not_be_used_ends_the_member_that_lost_its_partitions() -> None:
    """The coordinator can be refused while on_lost runs: RELEASING_ASSIGNMENT to FATAL."""
    script = with_callbacks_held({ORDERS: [0]})
    script.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    script.agenda.run(0)
    script.member.membership.fail(FatalError(30, "no"), script.agenda.now_ms)
    assert script.member.state == "FATAL"
    script.member.application.end_callback()
    assert told(script) == ["lost orders:0"]
    assert script.asked == []


def test_a_static_member_is_not_ended_by_its_own_join_that_had_no_answer() -> None:
    script = HeartbeatScript(group_instance_id="i1")
    script.member.subscribe("orders")
    script.fail(RequestFailure.TIMED_OUT)
    for _ in range(30):
        script.agenda.run(1_000)
        script.refuse(ErrorCode.UNRELEASED_INSTANCE_ID)
    assert script.member.state == "JOINING"
    script.agenda.run(60_000)
    script.refuse(ErrorCode.UNRELEASED_INSTANCE_ID)
    assert script.member.state == "FATAL", "its session must have ended by now: it is another consumer"


def test_a_static_member_that_was_fenced_waits_for_its_own_registration() -> None:
    script = HeartbeatScript(group_instance_id="i1")
    script.settle({ORDERS: [0]})
    script.agenda.run(5_000)
    script.refuse(ErrorCode.FENCED_MEMBER_EPOCH)
    script.agenda.run(0)
    script.refuse(ErrorCode.UNRELEASED_INSTANCE_ID)
    script.agenda.run(100)
    script.answer(3, {})
    assert script.member.state == "STABLE"


def test_a_static_member_whose_name_is_in_use_ends_at_once() -> None:
    script = HeartbeatScript(group_instance_id="i1")
    script.member.subscribe("orders")
    script.refuse(ErrorCode.UNRELEASED_INSTANCE_ID)
    assert script.member.state == "FATAL"


# explain().


def test_explain_says_which_state_why_what_it_waits_for_and_since_when() -> None:
    script = HeartbeatScript()
    explain = script.member.member.explain
    assert explain().state.name == "UNSUBSCRIBED"
    script.member.subscribe("orders")
    assert explain().waits_for == "the coordinator's answer to a heartbeat"
    script.fail()
    said = explain()
    assert said.waits_for.startswith("the next heartbeat, in 100 ms after: the connection ended")
    script.agenda.run(100)
    script.answer(1, {ORDERS: [0, 1]})
    script.agenda.run(5_000)
    script.member.application.holds_callbacks = True
    while script.asked:
        script.answer(1)
    script.agenda.run(5_000)
    script.answer(2, {ORDERS: [1]})
    script.agenda.run(2_500)
    said = explain()
    assert said.state.name == "RECONCILING"
    assert said.group_state.name == "ASSIGN"
    assert said.why == "a new assignment: 0 to take, 1 to give up"
    assert said.waits_for == "the commit and on_revoke of 1 partition"
    assert said.for_ms == 2_500
    assert said.since_unix_ms == script.member.env.wall_ms() - 2_500
    assert said.owned == {TopicPartition("orders", 1)}
    assert str(said) == (
        "RECONCILING for 2.5 s: a new assignment: 0 to take, 1 to give up. Waits for the commit and "
        "on_revoke of 1 partition. Member m1, epoch 2, 1 partition."
    )
