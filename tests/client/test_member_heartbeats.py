"""A member's heartbeats with a coordinator that a test plays: when they leave, and with which fields."""

from __future__ import annotations

import pytest

from client.core.member.heartbeat import HEARTBEAT_INTERVAL_MS_MAX, HEARTBEAT_INTERVAL_MS_MIN
from client.core.requests import RequestFailure
from tests.client.heartbeat_script import BILLS, ORDERS, HeartbeatScript, named_as_owned
from wire.errors import ErrorCode


def test_the_join_has_an_id_of_its_own_and_every_conditional_field() -> None:
    script = HeartbeatScript(
        group_instance_id="i1", client_rack="r1", group_remote_assignor="range", max_poll_interval_ms=60_000
    )
    script.member.subscribe("orders", "bills")
    body = script.next()
    assert (body.group_id, body.member_id, body.member_epoch) == ("g", "m1", 0)
    assert (body.instance_id, body.rack_id, body.server_assignor) == ("i1", "r1", "range")
    assert body.rebalance_timeout_ms == 60_000
    assert body.subscribed_topic_names == ["bills", "orders"]
    assert body.subscribed_topic_regex == ""
    assert body.topic_partitions == []


def test_in_version_0_the_coordinator_gives_the_member_its_id() -> None:
    script = HeartbeatScript(version=0)
    script.member.subscribe("orders")
    assert script.next().member_id == ""
    script.answer(3, {}, member_id="given")
    assert script.member.membership.member_id == "given"
    script.agenda.run(5_000)
    assert script.next().member_id == "given"
    script.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    body = script.next()
    assert (body.member_id, body.member_epoch) == ("given", 0)


def test_a_steady_heartbeat_has_ids_and_the_epoch_only() -> None:
    script = HeartbeatScript(group_instance_id="i1", client_rack="r1")
    script.settle({ORDERS: [0]})
    assert script.asked == []
    script.agenda.run(4_999)
    assert script.asked == []
    script.agenda.run(1)
    body = script.next()
    assert (body.member_id, body.member_epoch, body.instance_id) == ("m1", 1, "i1")
    assert (body.rack_id, body.rebalance_timeout_ms, body.subscribed_topic_names) == (None, -1, None)
    assert (body.subscribed_topic_regex, body.server_assignor, body.topic_partitions) == (None, None, None)


@pytest.mark.parametrize(
    "failure", [RequestFailure.DISCONNECTED, RequestFailure.TIMED_OUT, RequestFailure.MALFORMED]
)
def test_after_a_heartbeat_without_an_answer_the_next_has_all_fields_again(failure: RequestFailure) -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0, 2]})
    script.agenda.run(5_000)
    script.fail(failure)
    assert script.asked == [], "the back-off comes first"
    script.agenda.run(100)
    body = script.next()
    assert body.member_epoch == 1
    assert body.subscribed_topic_names == ["orders"]
    assert body.rebalance_timeout_ms == 300_000
    assert named_as_owned(body) == {ORDERS: [0, 2]}
    script.fail(failure)
    script.agenda.run(199)
    assert script.asked == [], "the back-off doubles"
    script.agenda.run(1)
    script.answer(1)
    script.agenda.run(5_000)
    assert script.next().subscribed_topic_names is None


def test_a_heartbeat_names_what_is_assigned_and_not_taken_yet() -> None:
    """A partition left out would count as given up for the coordinator, while the member begins to use it."""
    script = HeartbeatScript()
    script.settle({ORDERS: [0]})
    script.member.application.holds_callbacks = True
    script.agenda.run(5_000)
    script.answer(1, {ORDERS: [0, 1]})
    script.agenda.run(5_000)
    script.answer(1, {ORDERS: [0, 1, 2]})
    script.member.application.end_callback()
    assert named_as_owned(script.next()) == {ORDERS: [0, 1, 2]}
    assert script.member.application.told[-1] == "assigned orders:1", "orders:2 is assigned next"


def test_a_changed_subscription_is_sent_at_once_and_names_only_what_changed() -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0]})
    script.agenda.run(1_000)
    script.member.subscribe("orders", "bills")
    body = script.next()
    assert body.subscribed_topic_names == ["bills", "orders"]
    assert (body.rebalance_timeout_ms, body.topic_partitions) == (-1, None)


def test_a_subscription_that_changes_while_a_heartbeat_is_on_its_way_follows_its_answer() -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0]})
    script.agenda.run(5_000)
    script.member.subscribe("bills")
    assert script.next().subscribed_topic_names is None
    script.answer(1)
    assert script.next().subscribed_topic_names == ["bills"]


def test_a_regular_expression_needs_version_1() -> None:
    script = HeartbeatScript()
    script.member.subscribe(regex="orders.*")
    body = script.next()
    assert (body.subscribed_topic_names, body.subscribed_topic_regex) == ([], "orders.*")
    assert script.asked[0].versions == (1, 1)
    script.fail(RequestFailure.UNSUPPORTED_VERSION)
    assert script.member.state == "FATAL"


def test_the_acknowledgement_leaves_at_once_names_all_it_owns_and_restarts_the_interval() -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0]})
    script.agenda.run(5_000)
    script.agenda.run(2_000)
    script.answer(2, {ORDERS: [0, 1]})
    assert script.member.state == "RECONCILING"
    script.agenda.run(0)
    assert named_as_owned(script.next()) == {ORDERS: [0, 1]}
    assert script.member.state == "STABLE"
    script.answer(2)
    script.agenda.run(4_999)
    assert script.asked == []
    script.agenda.run(1)
    assert named_as_owned(script.next()) is None


def test_heartbeats_go_on_during_both_steps_and_name_what_a_callback_still_holds() -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0, 1]})
    script.member.application.holds_callbacks = True
    script.agenda.run(5_000)
    script.answer(1, {ORDERS: [1], BILLS: [0]})
    script.agenda.run(5_000)
    names = {ORDERS: [0, 1], BILLS: [0]}
    assert named_as_owned(script.next()) == names, "on_revoke runs"
    script.fail()
    script.agenda.run(100)
    assert named_as_owned(script.next()) == names, "orders:0 is not given up before its callback has ended"
    assert script.member.positions.fetched == {("orders", 1)}, "but it is not fetched any more"
    script.answer(1)
    script.member.application.end_callback()
    script.agenda.run(5_000)
    assert script.member.application.told[-1] == "assigned bills:0"
    assert named_as_owned(script.next()) == {BILLS: [0], ORDERS: [1]}, (
        "a revocation is told when it has ended"
    )
    script.answer(1)
    assert script.member.state == "RECONCILING"
    script.member.application.end_callback()
    assert named_as_owned(script.next()) == {BILLS: [0], ORDERS: [1]}
    assert script.member.positions.fetched == {("orders", 1), ("bills", 0)}


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_looked_for_and_asked_at_once(code: ErrorCode) -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0]})
    script.agenda.run(5_000)
    script.refuse(code)
    assert len(script.member.coordinator.losses) == 1
    assert named_as_owned(script.next()) == {ORDERS: [0]}
    script.refuse(code)
    assert script.asked == [], "the second time it waits"
    script.agenda.run(200)
    script.answer(1)
    assert script.member.state == "STABLE"


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT])
def test_errors_that_pass_are_tried_again_with_a_back_off(code: ErrorCode) -> None:
    script = HeartbeatScript()
    script.member.subscribe("orders")
    script.refuse(code)
    assert script.asked == []
    assert code.name in script.member.member.explain().waits_for
    script.agenda.run(100)
    script.answer(1, {})
    assert script.member.state == "STABLE"
    assert script.member.coordinator.losses == []


@pytest.mark.parametrize(
    ("told_ms", "wait_ms"),
    [
        (-(2**31), HEARTBEAT_INTERVAL_MS_MIN),
        (0, HEARTBEAT_INTERVAL_MS_MIN),
        (2**31 - 1, HEARTBEAT_INTERVAL_MS_MAX),
    ],
)
def test_an_interval_that_makes_no_sense_is_not_followed(told_ms: int, wait_ms: float) -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0]})
    script.agenda.run(5_000)
    script.answer(1, heartbeat_interval_ms=told_ms)
    script.member.poll()
    script.agenda.run(wait_ms - 1)
    assert script.asked == []
    script.agenda.run(1)
    assert len(script.asked) == 1


@pytest.mark.parametrize("fields", [{"epoch": 0}, {"epoch": -1}])
def test_an_answer_without_an_epoch_counts_as_none(fields: dict[str, int]) -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0]})
    script.agenda.run(5_000)
    script.answer(**fields)
    assert script.member.state == "STABLE"
    script.agenda.run(100)
    assert script.next().subscribed_topic_names == ["orders"]


def test_an_answer_is_waited_for_well_within_the_session() -> None:
    script = HeartbeatScript()
    script.settle({ORDERS: [0]})
    script.agenda.run(5_000)
    assert script.asked[0].timeout_ms == 10_000
    script.member.leave(timeout_ms=3_000)
    script.agenda.run(1_000)
    assert script.asked[-1].timeout_ms == 3_000, "the leave ends with its call"


def test_an_interval_of_zero_does_not_cause_a_storm() -> None:
    script = HeartbeatScript()
    script.member.subscribe("orders")
    script.answer(1, {}, heartbeat_interval_ms=0)
    assert script.asked == []
    script.agenda.run(49)
    assert script.asked == []
    script.agenda.run(1)
    assert len(script.asked) == 1


def test_a_topic_that_is_not_allowed_is_raised_once_for_each_poll_and_tried_again() -> None:
    script = HeartbeatScript()
    script.member.subscribe("orders")
    for _ in range(3):
        script.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        script.agenda.run(1_000)
    assert len(script.member.application.errors) == 1
    script.member.poll()
    script.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    script.agenda.run(1_000)
    assert len(script.member.application.errors) == 2
    script.answer(1, {})
    assert script.member.state == "STABLE"
