"""The application side alone: what poll does, the order of callbacks, positions, commits and the end."""

from __future__ import annotations

from typing import Any

import pytest

from client.core.application import CALLBACKS_MAX
from client.core.effects import CallAnswer, Effect, NewsWait
from client.core.errors import (
    ConsumerError,
    DeserializationError,
    FencedError,
    IllegalState,
    NoOffset,
    TimedOut,
)
from client.core.events import (
    AckPartitionAssignedEvent,
    AckPartitionRevokedEvent,
    ApplicationEventType,
    AssignEvent,
    BackgroundEventType,
    CloseEvent,
    CommitEvent,
    ErrorEvent,
    FetchCommittedEvent,
    LeaveGroupEvent,
    ListOffsetsEvent,
    PauseEvent,
    PollEvent,
    SeekEvent,
    SubscribeEvent,
)
from client.core.rebalance import RebalanceCallbacks
from client.core.types import OffsetAndMetadata
from client.core.unraised import ERRORS_MAX

from .background_script import FOREVER_MS, BackgroundScript, part


@pytest.fixture
def script() -> BackgroundScript:
    return BackgroundScript(enable_auto_commit=False)


def completes(script: BackgroundScript, result: Any = None) -> None:
    """Let the background side answer each call that waits."""

    def answer(effect: Effect) -> None:
        if isinstance(effect, CallAnswer) and not effect.future.done():
            if isinstance(result, Exception):
                effect.future.set_exception(result)
            else:
                effect.future.set_result(result)

    script.on_wait = answer


def offset(at: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(at, "", 3)


# Consuming.


def test_records_are_handed_out_and_positions_follow(script: BackgroundScript) -> None:
    script.own(0, 1, offset=5)
    script.fetch(0, 5, 6, 7)
    assert script.poll(most=2) == [5, 6]
    assert script.run(script.app.position(part(0), 0.0)) == 7
    assert script.poll(most=2) == [7]
    assert script.run(script.app.position(part(1), 0.0)) == 5


def test_a_poll_does_no_metadata_work(script: BackgroundScript) -> None:
    script.own(0)
    script.kinds()
    script.fetch(0, 0)
    script.poll()
    script.poll(timeout_ms=100)
    assert script.kinds() == []


def test_events_have_the_names_of_the_threading_design_first() -> None:
    names = [kind.name for kind in ApplicationEventType]
    assert names[:6] == [
        "NOOP", "COMMIT", "ACK_PARTITION_REVOKED", "ACK_PARTITION_ASSIGNED", "UPDATE_METADATA", "LEAVE_GROUP",
    ]  # fmt: skip
    names = [kind.name for kind in BackgroundEventType]
    assert names[:4] == ["ERROR", "REVOKE_PARTITIONS", "ASSIGN_PARTITIONS", "FETCH_RESPONSE"]
    assert all(kind.value for kind in (*ApplicationEventType, *BackgroundEventType)), "each has its reason"


def test_poll_waits_for_records_until_its_time_limit(script: BackgroundScript) -> None:
    script.own(0)
    assert script.poll(1_000.0) == []
    assert script.now_ms == 1_000.0
    script.on_wait = lambda effect: script.fetch(0, 0)
    assert script.poll(1_000.0) == [0]


def test_a_long_poll_keeps_the_member_alive() -> None:
    script = BackgroundScript(max_poll_interval_ms=3_000, enable_auto_commit=False)
    script.poll(6_000.0)
    assert len(script.take_sent(PollEvent)) >= 6


def test_records_are_handed_out_one_by_one_until_an_event_arrives(
    script: BackgroundScript,
) -> None:
    script.own(0)
    script.fetch(0, 0, 1, 2, 3)
    assert script.poll(most=1) == [0]
    one = script.app.take_one()
    assert one is not None
    assert one.offset == 1
    assert script.run(script.app.position(part(0), 0.0)) == 2
    script.revoke(0)
    assert script.app.take_one() is None
    assert script.poll() == []


def test_errors_are_raised_once_and_fatal_ones_each_time(script: BackgroundScript) -> None:
    script.events.append(ErrorEvent(error=ConsumerError("passes")))
    with pytest.raises(ConsumerError, match="passes"):
        script.poll()
    script.poll()
    script.events.append(ErrorEvent(error=ConsumerError("stays"), is_fatal=True))
    for _ in range(2):
        with pytest.raises(ConsumerError, match="stays"):
            script.poll()


def test_errors_are_bounded_while_other_calls_take_the_news(
    script: BackgroundScript, caplog: pytest.LogCaptureFixture
) -> None:
    script.own(0)
    for _ in range(ERRORS_MAX + 1):
        script.events.append(ErrorEvent(error=ConsumerError("passes")))
        script.app.lag(part(0))
    assert "not raised: passes" in caplog.text
    for _ in range(ERRORS_MAX):
        with pytest.raises(ConsumerError, match="passes"):
            script.poll()
    script.poll()


def test_on_lost_runs_before_a_fatal_error_is_raised(script: BackgroundScript) -> None:
    script.own(0)
    script.lose(0)
    script.events.append(ErrorEvent(error=ConsumerError("stays"), is_fatal=True))
    with pytest.raises(ConsumerError, match="stays"):
        script.poll()
    assert script.calls == [("lost", [0])]


def test_position_raises_what_keeps_it_from_being_known(script: BackgroundScript) -> None:
    script.subscribe()
    script.assign(0)
    script.poll()
    script.events.append(ErrorEvent(error=NoOffset("there is none")))
    with pytest.raises(NoOffset):
        script.run(script.app.position(part(0), 1_000.0))


def test_two_polls_at_once_are_refused(script: BackgroundScript) -> None:
    first = script.app.poll(1, 1_000.0)
    assert isinstance(next(first), NewsWait)
    with pytest.raises(IllegalState, match="runs already"):
        script.poll()
    first.close()
    script.poll()


def test_paused_partitions_hand_out_nothing_and_lose_nothing(script: BackgroundScript) -> None:
    script.own(0, 1)
    script.fetch(0, 0, 1)
    script.fetch(1, 0)
    assert script.poll(most=1) == [0]
    script.app.pause([part(0)])
    assert [record.partition for record in script.run(script.app.poll(500, 0.0))] == [1]
    assert script.poll() == []
    assert script.run(script.app.position(part(0), 0.0)) == 1
    script.app.resume([part(0)])
    assert script.poll() == [1]
    assert [event.resumes for event in script.take_sent(PauseEvent)] == [False, True]


def test_seek_drops_what_was_decoded_and_late_positions(script: BackgroundScript) -> None:
    script.own(0)
    script.fetch(0, 0, 1, 2)
    script.poll(most=1)
    script.app.seek({part(0): 40})
    assert script.poll() == []
    script.begin(0, offset=2, version=1)
    script.poll()
    with pytest.raises(TimedOut):
        script.run(script.app.position(part(0), 10.0))
    script.begin(0, offset=40)
    assert script.run(script.app.position(part(0), 10.0)) == 40
    assert script.take_sent(SeekEvent)[0].positions == {part(0): 40}


def test_what_is_not_assigned_cannot_be_sought_paused_or_asked_for(script: BackgroundScript) -> None:
    script.own(0)
    for call in (
        lambda: script.app.seek({part(1): 0}),
        lambda: script.app.pause([part(1)]),
        lambda: script.app.lag(part(1)),
        lambda: script.run(script.app.position(part(1), 0.0)),
    ):
        with pytest.raises(IllegalState, match="orders-1 is not assigned"):
            call()


def test_lag_counts_records_that_were_not_handed_out(script: BackgroundScript) -> None:
    script.own(0)
    script.fetch(0, 0, 1, 2)
    assert script.poll(most=1) == [0]
    assert script.app.lag(part(0)) == 2


# Deserialisers.


def test_a_deserialiser_that_raises_leaves_the_position_until_a_seek() -> None:
    script = BackgroundScript(enable_auto_commit=False, value_deserializer=int, key_deserializer=bytes.decode)
    script.own(0)
    script.fetch(0, 0, value=b"7")
    script.fetch(0, 1, value=b"seven")
    script.fetch(0, 2, value=b"8")
    (record,) = script.run(script.app.poll(500, 0.0))
    assert (record.key, record.value) == ("k", 7)
    for _ in range(2):
        with pytest.raises(DeserializationError, match="value of orders-0 at offset 1 cannot") as caught:
            script.poll()
        assert caught.value.offset == 1
        assert isinstance(caught.value.__cause__, ValueError)
        assert script.run(script.app.position(part(0), 0.0)) == 1
    script.app.seek({part(0): 2})
    script.begin(0, offset=2)
    script.fetch(0, 2, value=b"8")
    assert script.poll() == [2]


# Rebalances.


def test_partitions_are_shown_by_on_assign_and_acknowledged(script: BackgroundScript) -> None:
    script.subscribe()
    number = script.assign(0, 1)
    script.poll()
    assert script.calls == [("assign", [0, 1])]
    assert script.app.assignment == {part(0), part(1)}
    assert [event.round for event in script.take_sent(AckPartitionAssignedEvent)] == [number]


def test_an_assignment_of_nothing_is_told_too(script: BackgroundScript) -> None:
    script.subscribe()
    script.assign()
    script.poll()
    assert script.calls == [("assign", [])]


def test_partitions_are_out_of_the_set_before_the_commit_and_the_callback() -> None:
    script = BackgroundScript()
    script.own(0, 1)
    script.fetch(0, 0, 1, 2)
    script.poll(most=2)
    steps: list[Any] = []

    def revoked(partitions: object) -> None:
        steps.append(("revoke", partitions, set(script.app.assignment)))
        steps.append(("position", script.run(script.app.position(part(0), 0.0))))

    def committed(effect: Effect) -> None:
        assert isinstance(effect, CallAnswer)
        event = script.take_sent(CommitEvent)[-1]
        assert event.releases
        steps.append(("commit", event.offsets, set(script.app.assignment)))
        effect.future.set_result(None)

    script.app.rounds.callbacks = RebalanceCallbacks(on_revoke=revoked)
    script.on_wait = committed
    script.sent.clear()
    number = script.revoke(0)
    assert script.poll() == []
    assert steps == [
        ("commit", {part(0): offset(2)}, {part(1)}),
        ("revoke", [part(0)], {part(1)}),
        ("position", 2),
    ]
    assert [event.round for event in script.take_sent(AckPartitionRevokedEvent)] == [number]


def test_a_commit_in_on_revoke_has_the_positions_of_what_goes(script: BackgroundScript) -> None:
    script.own(0)
    script.fetch(0, 0, 1)
    script.poll()
    completes(script)
    script.app.rounds.callbacks = RebalanceCallbacks(
        on_revoke=lambda _: script.run(script.app.commit(None, None))
    )
    script.revoke(0)
    script.poll()
    assert [event.offsets for event in script.take_sent(CommitEvent)] == [{part(0): offset(2)}]


def test_lost_partitions_are_not_committed() -> None:
    script = BackgroundScript()
    script.own(0)
    script.fetch(0, 0)
    script.poll()
    script.sent.clear()
    number = script.lose(0)
    script.poll()
    assert script.calls == [("lost", [0])]
    assert not script.take_sent(CommitEvent)
    assert [event.round for event in script.take_sent(AckPartitionRevokedEvent)] == [number]


def test_a_commit_after_a_loss_that_was_not_told_yet_fails(script: BackgroundScript) -> None:
    script.own(0)
    script.fetch(0, 0)
    script.poll()
    script.lose(0)
    with pytest.raises(FencedError, match="orders-0 were lost, and are not committed"):
        script.run(script.app.commit(None, 0.0))
    script.poll()
    assert script.run(script.app.commit(None, 0.0)) == {}


def test_without_on_lost_on_revoke_is_told(script: BackgroundScript) -> None:
    script.own(0)
    script.app.rounds.callbacks = script.callbacks()._replace(on_lost=None)
    script.lose(0)
    script.poll()
    assert script.calls == [("revoke", [0])]


def test_partitions_that_are_taken_back_before_they_were_shown_are_never_shown(
    script: BackgroundScript,
) -> None:
    script.subscribe()
    script.assign(0, 1)
    script.lose(0, 1)
    script.assign(1)
    script.poll()
    assert script.calls == [("assign", [1])]
    assert script.app.assignment == {part(1)}
    assert len(script.take_sent(AckPartitionAssignedEvent)) == 2


def test_a_callback_that_raises_is_acknowledged_and_its_error_is_raised(script: BackgroundScript) -> None:
    def raises(partitions: object) -> None:
        raise KeyError("mine")

    script.own(0)
    script.app.rounds.callbacks = RebalanceCallbacks(on_revoke=raises, on_assign=raises)
    script.revoke(0)
    script.assign(1)
    for kind in (AckPartitionRevokedEvent, AckPartitionAssignedEvent):
        with pytest.raises(KeyError, match="mine"):
            script.poll()
        assert len(script.take_sent(kind)) == 1
    assert script.app.assignment == {part(1)}


def test_a_revocation_that_is_cancelled_while_it_commits_runs_again() -> None:
    script = BackgroundScript()
    script.own(0)
    script.revoke(0)
    steps = script.app.poll(1, 0.0)
    assert isinstance(next(steps), CallAnswer)
    steps.close()
    assert not script.calls
    completes(script)
    script.poll()
    assert script.calls == [("revoke", [0])]
    assert len(script.take_sent(AckPartitionRevokedEvent)) == 1


def test_seek_and_pause_in_on_assign_are_sent_after_the_acknowledgement(script: BackgroundScript) -> None:
    def assigned(partitions: object) -> None:
        script.app.seek({part(0): 9})
        script.app.pause([part(0)])
        with pytest.raises(IllegalState, match="when on_assign has ended"):
            script.run(script.app.position(part(0), 0.0))

    script.run(script.app.subscribe(["orders"], None, RebalanceCallbacks(on_assign=assigned)))
    script.kinds()
    script.assign(0)
    script.poll()
    version = script.take_sent(SeekEvent)[0].version
    assert script.kinds() == ["ACK_PARTITION_ASSIGNED", "PAUSE"]
    script.begin(0, offset=9, version=version)
    assert script.run(script.app.position(part(0), 0.0)) == 9


@pytest.mark.parametrize("call", ["poll", "unsubscribe", "close"])
def test_callbacks_cannot_call_what_runs_callbacks(script: BackgroundScript, call: str) -> None:
    calls = {
        "poll": lambda: script.app.poll(1, 0.0),
        "unsubscribe": lambda: script.app.unsubscribe(None),
        "close": lambda: script.app.close(None),
    }

    def assigned(partitions: object) -> None:
        script.run(calls[call]())

    script.run(script.app.subscribe(["orders"], None, RebalanceCallbacks(on_assign=assigned)))
    script.assign(0)
    with pytest.raises(IllegalState, match=f"{call}\\(\\) cannot be called by a rebalance callback"):
        script.poll()


# What is consumed.


def test_subscribing_asks_for_metadata_and_fetches_again_what_was_buffered(script: BackgroundScript) -> None:
    script.own(0)
    script.fetch(0, 0, 1)
    script.poll(most=1)
    script.subscribe()
    assert script.take_sent(SeekEvent)[0].positions == {part(0): 1}
    assert script.kinds() == ["UPDATE_METADATA", "SUBSCRIBE"]
    assert script.poll() == []


def test_assigning_by_hand_commits_first_and_asks_for_metadata() -> None:
    script = BackgroundScript()
    script.run(script.app.assign({part(0): None}))
    script.begin(0, offset=4)
    script.fetch(0, 4)
    assert script.poll() == [4]
    script.sent.clear()
    script.run(script.app.assign({part(1): 7}))
    assert script.kinds() == ["COMMIT", "UPDATE_METADATA", "ASSIGN"]
    assert script.app.assignment == {part(1)}


def test_nothing_is_unsubscribe(script: BackgroundScript) -> None:
    script.run(script.app.assign({part(0): None}))
    script.run(script.app.assign({}))
    assert script.take_sent(AssignEvent)[-1].partitions == {}
    script.subscribe()
    leaves(script)
    script.run(script.app.subscribe([], None, RebalanceCallbacks()))
    assert not script.app.subscription.is_on
    assert not script.app.assignment


def test_subscribe_and_assign_exclude_each_other(script: BackgroundScript) -> None:
    script.run(script.app.assign({part(0): None}))
    with pytest.raises(IllegalState, match="assigned by hand"):
        script.subscribe()
    other = BackgroundScript()
    other.subscribe()
    with pytest.raises(IllegalState, match="subscribed to"):
        other.run(other.app.assign({part(0): None}))


def test_wrong_topics_are_refused(script: BackgroundScript) -> None:
    for topics in ("orders", [""], [7]):
        with pytest.raises(IllegalState):
            script.run(script.app.subscribe(topics, None, RebalanceCallbacks()))


def test_a_consumer_without_a_group_assigns_only() -> None:
    script = BackgroundScript(group_id=None)
    for steps in (
        script.app.subscribe(["orders"], None, RebalanceCallbacks()),
        script.app.commit(None, None),
    ):
        with pytest.raises(IllegalState, match=r"needs group.id"):
            script.run(steps)
    script.run(script.app.assign({part(0): 0}))
    script.poll(10_000.0)
    assert "COMMIT" not in script.kinds()


# Commits.


def test_positions_are_committed_each_interval_and_what_fails_is_tried_again() -> None:
    script = BackgroundScript(auto_commit_interval_ms=1_000)
    script.own(0)
    script.fetch(0, 0, 1)
    script.poll(most=1)
    script.now_ms = 1_000.0
    assert script.poll(most=1) == [1]
    (first,) = script.take_sent(CommitEvent)
    assert (first.offsets, first.retries) == ({part(0): offset(1)}, False)
    script.now_ms = 2_000.0
    script.poll()
    assert not script.take_sent(CommitEvent), "one is under way"
    assert first.future is not None
    first.future.set_exception(ConsumerError("too bad"))
    script.now_ms = 3_000.0
    script.poll()
    assert script.take_sent(CommitEvent)[0].offsets == {part(0): offset(2)}


def test_a_commit_with_every_poll_leaves_time_for_the_background_side() -> None:
    script = BackgroundScript(auto_commit_interval_ms=0)
    script.own(0)
    waits: list[float] = []
    script.on_wait = lambda effect: waits.append(script.now_ms)
    script.poll(1_000.0)
    assert len(waits) <= 12


def test_an_asynchronous_commit_calls_its_callback_in_a_later_poll(script: BackgroundScript) -> None:
    ends: list[Any] = []
    script.own(0)
    script.app.commit_async({part(0): OffsetAndMetadata(1)}, lambda *ended: ends.append(ended))
    (event,) = script.take_sent(CommitEvent)
    assert event.future is not None
    event.future.set_result(None)
    assert not ends
    script.poll()
    assert ends == [(None, {part(0): OffsetAndMetadata(1)})]


def test_commits_are_refused_when_many_callbacks_wait_for_a_poll(script: BackgroundScript) -> None:
    script.own(0)
    told: list[Any] = []
    for _ in range(CALLBACKS_MAX):
        script.app.commit_async({part(0): offset(1)}, lambda *end: told.append(end))
        (event,) = script.take_sent(CommitEvent)
        assert event.future is not None
        event.future.set_result(None)
    with pytest.raises(IllegalState, match=r"10,000 callbacks of commits wait for poll\(\)"):
        script.app.commit_async({part(0): offset(1)}, None)
    script.poll()
    assert len(told) == CALLBACKS_MAX
    script.app.commit_async({part(0): offset(1)}, None)


def test_on_commit_is_told_of_failures_and_without_it_they_are_logged(
    script: BackgroundScript, caplog: pytest.LogCaptureFixture
) -> None:
    ends: list[Any] = []
    for on_commit in (lambda error, _: ends.append(str(error)), None):
        script.app.commits.on_commit = on_commit
        script.app.commit_async({part(0): OffsetAndMetadata(1)}, None)
        (event,) = script.take_sent(CommitEvent)
        assert event.future is not None
        event.future.set_exception(ConsumerError("too bad"))
        script.poll()
    assert ends == ["too bad"]
    assert "commit of orders-0 failed: too bad" in caplog.text


def test_commit_raises_what_the_broker_says(script: BackgroundScript) -> None:
    script.own(0)
    completes(script, FencedError("not a member"))
    with pytest.raises(FencedError):
        script.run(script.app.commit(None, None))
    script.on_wait = lambda effect: None
    with pytest.raises(TimedOut):
        script.run(script.app.commit({part(0): OffsetAndMetadata(1)}, 100.0))


def test_stored_offsets_are_what_is_committed() -> None:
    script = BackgroundScript(enable_auto_offset_store=False)
    script.own(0)
    script.fetch(0, 0, 1)
    script.poll()
    completes(script)
    assert script.run(script.app.commit(None, None)) == {}
    script.app.store_offsets({part(0): OffsetAndMetadata(1)})
    assert script.run(script.app.commit(None, None)) == {part(0): OffsetAndMetadata(1)}
    with pytest.raises(IllegalState, match=r"enable.auto.offset.store=false"):
        BackgroundScript().app.store_offsets({})


def test_inquiries_carry_their_time_limit(script: BackgroundScript) -> None:
    completes(script, {part(0): None})
    assert script.run(script.app.inquiries.committed([part(0)], None)) == {part(0): None}
    assert script.run(script.app.inquiries.list_offsets({part(0): 5}, 100.0)) == {part(0): None}
    assert script.take_sent(FetchCommittedEvent)[0].deadline_ms == 60_000.0
    assert script.take_sent(ListOffsetsEvent)[0].deadline_ms == 100.0


# The end.


def leaves(script: BackgroundScript) -> None:
    """Let the background side revoke everything, then leave, and end what is left."""

    def background(effect: Effect) -> None:
        for event in script.take_sent(LeaveGroupEvent):
            script.leaving = event
            script.revoke(0)
            return
        if script.take_sent(AckPartitionRevokedEvent):
            script.leaving.future.set_result(None)
        if isinstance(effect, CallAnswer) and not effect.future.done():
            effect.future.set_result(None)

    script.on_wait = background


def test_close_commits_revokes_and_leaves() -> None:
    script = BackgroundScript()
    script.own(0)
    script.fetch(0, 0)
    script.poll()
    leaves(script)
    script.run(script.app.close(None))
    assert script.calls == [("revoke", [0])]
    assert script.kinds() == ["COMMIT", "CLOSE"]
    assert script.leaving.closes
    with pytest.raises(IllegalState, match="closed"):
        script.poll()
    script.run(script.app.close(None))
    assert not script.sent


def test_unsubscribe_leaves_and_can_be_followed_by_a_subscription(script: BackgroundScript) -> None:
    script.own(0)
    leaves(script)
    script.run(script.app.unsubscribe(None))
    assert script.calls == [("revoke", [0])]
    assert not script.app.assignment
    script.subscribe()
    assert len(script.take_sent(SubscribeEvent)) == 1


def test_unsubscribe_that_raises_can_be_followed_by_a_subscription(script: BackgroundScript) -> None:
    script.own(0)
    with pytest.raises(TimedOut):
        script.run(script.app.unsubscribe(100.0))
    assert not script.app.assignment
    script.subscribe()


def test_close_waits_for_commits_in_the_order_in_which_they_were_made(script: BackgroundScript) -> None:
    script.own(0)
    for at in range(50):
        script.app.commit_async({part(0): offset(at)}, None)
    made = [event.future for event in script.take_sent(CommitEvent)]
    waited: list[Any] = []

    def answer(effect: Effect) -> None:
        if isinstance(effect, CallAnswer):
            waited.append(effect.future)
            effect.future.set_result(None)

    script.on_wait = answer
    script.run(script.app.close(None))
    assert [one for one in waited if one in made] == made


def test_close_ends_in_time_when_nothing_answers(caplog: pytest.LogCaptureFixture) -> None:
    script = BackgroundScript()
    script.own(0)
    begun_ms = script.now_ms
    script.run(script.app.close(1_000.0))
    assert script.now_ms <= begun_ms + 1_000.0
    assert "close() did not wait any longer" in caplog.text
    assert script.take_sent(CloseEvent)


def test_close_ends_when_its_callback_raises() -> None:
    def raises(partitions: object) -> None:
        raise KeyError("mine")

    script = BackgroundScript(enable_auto_commit=False)
    script.own(0)
    script.app.rounds.callbacks = RebalanceCallbacks(on_revoke=raises)
    leaves(script)
    with pytest.raises(KeyError, match="mine"):
        script.run(script.app.close(None))
    assert script.take_sent(CloseEvent)
    assert script.app.is_closed


def test_callbacks_of_close_may_commit_and_ask_for_positions() -> None:
    script = BackgroundScript(enable_auto_commit=False)
    script.own(0, offset=6)
    found: list[int] = []

    def revoked(partitions: object) -> None:
        found.append(script.run(script.app.position(part(0), 0.0)))
        found.append(script.run(script.app.commit(None, None))[part(0)].offset)

    script.app.rounds.callbacks = RebalanceCallbacks(on_revoke=revoked)
    leaves(script)
    script.run(script.app.close(FOREVER_MS))
    assert found == [6, 6]
