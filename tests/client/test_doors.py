"""`Consumer` and `SyncConsumer` themselves: where callbacks run, what ends them, and what is refused.

No server answers; the tests put events of the background side into its queue.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import pytest

from client.aio.loop import now_ms
from client.background_thread import JOIN_S
from client.core.assembly import EVENTS_MAX, ConsumerAssembly
from client.core.background import Background
from client.core.consumed import ConsumedRecords
from client.core.effects import CallAnswer, NewsWait
from client.core.errors import BackgroundFailed
from client.core.events import (
    AckPartitionAssignedEvent,
    ApplicationEvent,
    AssignPartitionsEvent,
    BackgroundEvent,
    ErrorEvent,
    RevokePartitionsEvent,
)
from client.core.member.membership import MembershipManager
from quorate import (
    Consumer,
    ConsumerError,
    ConsumerRecord,
    IllegalState,
    KafkaError,
    OffsetAndMetadata,
    SyncConsumer,
    TimedOut,
    TopicPartition,
    lease,
)
from quorate.confluent import KafkaException
from tests.support.waiting import wait_for

CLOSE_S = 0.1
NEVER_S = 1e9
NOWHERE: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "group_id": "g", "enable_auto_commit": False}
ZERO = TopicPartition("orders", 0)
FOREVER_MS = 1e12


def assigned(number: int = 1) -> AssignPartitionsEvent:
    return AssignPartitionsEvent(partitions=frozenset({ZERO}), round=number)


def revoked(number: int = 2) -> RevokePartitionsEvent:
    return RevokePartitionsEvent(partitions=frozenset({ZERO}), round=number, deadline_ms=FOREVER_MS)


def acknowledged(monkeypatch: pytest.MonkeyPatch) -> list[ApplicationEvent]:
    """Return the list of acknowledgements that the member will have got."""
    found: list[ApplicationEvent] = []
    monkeypatch.setattr(MembershipManager, "acknowledge", lambda _self, event, _now_ms: found.append(event))
    return found


# asyncio.


@asynccontextmanager
async def closing(consumer: Consumer) -> AsyncIterator[Consumer]:
    """Start a consumer, and close it without waiting for servers for long."""
    async with consumer:
        yield consumer
        await consumer.close(timeout=CLOSE_S)


def put(consumer: Consumer, *events: BackgroundEvent) -> None:
    """Send events as the background side does."""
    assembly = consumer._require()
    assembly.background.background_events.extend(events)
    consumer._wake_waiters()


async def test_coroutine_callbacks_are_waited_for() -> None:
    seen: list[str] = []

    async def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        assert consumer.assignment() == set(partitions)
        seen.append("assign")

    async with closing(Consumer("orders", on_assign=on_assign, **NOWHERE)) as consumer:
        put(consumer, assigned())
        assert await consumer.poll(0) == []
    assert seen == ["assign"]


async def test_a_poll_that_is_cancelled_within_a_callback_has_acknowledged_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acks = acknowledged(monkeypatch)
    began = asyncio.Event()

    async def on_assign(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        began.set()
        await asyncio.Event().wait()

    async with closing(Consumer("orders", on_assign=on_assign, **NOWHERE)) as consumer:
        put(consumer, assigned())
        polling = asyncio.create_task(consumer.poll(10))
        await began.wait()
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        assert await consumer.poll(0.02) == []
    assert [type(event) for event in acks] == [AckPartitionAssignedEvent]


async def test_close_ends_though_a_callback_never_does(caplog: pytest.LogCaptureFixture) -> None:
    async def on_revoke(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        await asyncio.Event().wait()

    consumer = Consumer("orders", on_revoke=on_revoke, **NOWHERE)
    await consumer.subscribe(["orders"])
    put(consumer, assigned())
    await consumer.poll(0)
    put(consumer, revoked())
    begun_s = time.monotonic()
    await consumer.close(timeout=0.2)
    assert time.monotonic() - begun_s < 2
    assert "a callback did not end in time" in caplog.text


@pytest.mark.parametrize("turns", range(1, 8))
async def test_a_poll_that_is_cancelled_takes_no_records(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    """They would count as handed out, and the next automatic commit would pass over them."""
    record = ConsumerRecord("orders", 0, 0, 0, 0, None, b"0", (), 0)
    ready, taken = [record], []

    def take(_self: Any, _most: int) -> list[ConsumerRecord]:
        taken.extend(ready)
        return [ready.pop() for _ in taken]

    monkeypatch.setattr(ConsumedRecords, "take", take)
    async with closing(Consumer(**NOWHERE)) as consumer:
        polling = asyncio.ensure_future(consumer.poll(NEVER_S))
        for _ in range(turns):
            await asyncio.sleep(0)
        polling.cancel()
        await asyncio.wait({polling})
        assert taken == ([] if polling.cancelled() else [record])


async def test_a_second_close_waits_for_the_first() -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    async def on_revoke(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        began.set()
        await may_end.wait()

    consumer = Consumer("orders", on_revoke=on_revoke, **NOWHERE)
    await consumer.poll(0)
    put(consumer, assigned())
    await consumer.poll(0)
    put(consumer, revoked())
    first = asyncio.create_task(consumer.close(timeout=10))
    await began.wait()
    second = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    assert not second.done()
    may_end.set()
    await second
    await first


async def test_errors_are_bounded_while_the_application_does_not_poll(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with closing(Consumer("orders", **NOWHERE)) as consumer:
        put(consumer, *(ErrorEvent(error=ConsumerError("old")) for _ in range(EVENTS_MAX)))
        consumer._require().delegate._emit(ErrorEvent(error=ConsumerError("new")))
        assert len(consumer._require().background.background_events) == EVENTS_MAX
    assert "not raised: new" in caplog.text


async def test_a_callback_may_ask_the_cluster_and_may_not_poll() -> None:
    async def on_assign(consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        with pytest.raises(TimedOut):
            await consumer.committed([ZERO], timeout=0.05)
        with pytest.raises(IllegalState, match="callback"):
            await consumer.poll(0)

    async with closing(Consumer("orders", on_assign=on_assign, **NOWHERE)) as consumer:
        put(consumer, assigned())
        await consumer.poll(0)


async def test_a_failure_of_the_background_side_is_raised_by_each_poll_and_close_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Consumer("orders", **NOWHERE)
    await consumer.poll(0)

    def fails(_now_ms: float) -> float:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(consumer._require().background, "run_once", fails)
    with pytest.raises(ConsumerError, match="a bug"):
        await consumer.poll(1)
    with pytest.raises(ConsumerError, match="a bug"):
        await consumer.poll(1)
    with pytest.raises(BackgroundFailed, match="a bug"):
        await consumer.commit({ZERO: 1}, timeout=NEVER_S)
    await consumer.close(timeout=NEVER_S)


async def test_leases_end_though_their_background_side_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    leases = lease("g", "orders", bootstrap_servers="127.0.0.1:1")

    def fails(_self: Background, _now_ms: float) -> float:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Background, "run_once", fails)
    with pytest.raises(ConsumerError, match="a bug"):
        await asyncio.wait_for(leases.__aenter__(), CLOSE_S)


async def test_what_needs_a_running_consumer_says_so() -> None:
    consumer = Consumer(**NOWHERE)
    for call in (
        consumer.assignment,
        consumer.explain,
        lambda: consumer.seek(ZERO, 1),
        consumer.commit_async,
    ):
        with pytest.raises(IllegalState, match="async with"):
            call()
    await consumer.close()
    with pytest.raises(IllegalState, match="closed"):
        await consumer.poll(0)
    assert [record async for record in consumer] == []


async def test_a_callback_cannot_close_and_the_consumer_goes_on() -> None:
    async with closing(
        Consumer("orders", on_assign=lambda consumer, _: consumer.close(), **NOWHERE)
    ) as consumer:
        put(consumer, assigned())
        with pytest.raises(IllegalState, match="cannot be called by a rebalance callback"):
            await consumer.poll(1.0)
        with pytest.raises(TimedOut, match="metadata of"):
            await consumer.cluster(timeout=0.01)


def test_a_consumer_stays_on_its_event_loop() -> None:
    with asyncio.Runner() as first, asyncio.Runner() as second:
        consumer = Consumer("orders", **NOWHERE)
        first.run(consumer.poll(0.0))
        for call in (consumer.poll(0.0), consumer.close()):
            with pytest.raises(IllegalState, match="another event loop"):
                second.run(call)
        first.run(consumer.close(CLOSE_S))


async def test_an_empty_consumer_does_not_keep_the_loop_from_others() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with closing(Consumer("orders", **NOWHERE)) as consumer:
        task = asyncio.create_task(others())
        for _ in range(10):
            await consumer.poll(0)
        task.cancel()
    assert turns >= 10


# Threads.


@pytest.fixture
def make() -> Iterator[Callable[..., SyncConsumer]]:
    """Makes consumers, which are closed at the end."""
    made: list[SyncConsumer] = []

    def make(**settings: Any) -> SyncConsumer:
        made.append(SyncConsumer(**(NOWHERE | settings)))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close(timeout=CLOSE_S)


def send(consumer: SyncConsumer, *events: BackgroundEvent) -> None:
    assembly: ConsumerAssembly = consumer._thread.assembly
    assembly.background.background_events.extend(events)
    consumer._thread._notify()


def test_callbacks_run_in_the_thread_that_polls(make: Callable[..., SyncConsumer]) -> None:
    threads: list[threading.Thread] = []
    consumer = make(on_assign=lambda *_: threads.append(threading.current_thread()))
    consumer.subscribe(["orders"])
    send(consumer, assigned())
    assert consumer.poll(0) is None
    assert threads == [threading.current_thread()]
    assert [each.partition for each in consumer.assignment()] == [0]


def test_a_coroutine_function_is_no_callback_of_this_flavour(make: Callable[..., SyncConsumer]) -> None:
    async def on_assign(_consumer: SyncConsumer, _partitions: list[Any]) -> None:
        raise AssertionError("it is not run")

    consumer = make(on_assign=on_assign)
    consumer.subscribe(["orders"])
    send(consumer, assigned())
    with pytest.raises(TypeError, match="coroutine function"):
        consumer.poll(0)


def test_a_callback_cannot_end_the_thread(make: Callable[..., SyncConsumer]) -> None:
    consumer = make()
    consumer.subscribe(["orders"], on_assign=lambda consumer, _: consumer.close())
    send(consumer, assigned())
    with pytest.raises(KafkaException, match="cannot be called by a rebalance callback"):
        consumer.poll(1.0)
    with pytest.raises(KafkaException, match="metadata of"):
        consumer.list_topics(timeout=0.01)


def test_what_a_callback_raises_is_raised_and_takes_no_messages_along(
    make: Callable[..., SyncConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = make()
    error = KafkaException("of a call in a callback")
    polls = iter([[ConsumerRecord("orders", 0, 0, 0, 0, None, b"one", (), 0)], error, error])

    def poll(_most: int, _timeout_ms: float) -> Iterator[Any]:
        """Play the steps of a poll that has records, and of two whose callbacks raise."""
        yield NewsWait(0.0)
        if isinstance(found := next(polls), Exception):
            raise found
        return found

    monkeypatch.setattr(consumer._application, "poll", poll)
    assert [message.value() for message in consumer.consume(2, timeout=1)] == [b"one"]
    for call in (consumer.poll, consumer.poll):
        with pytest.raises(KafkaException, match="of a call in a callback"):
            call()


def test_a_forked_process_is_told_to_make_a_consumer_of_its_own(
    make: Callable[..., SyncConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = make()
    monkeypatch.setattr("client.background_thread.getpid", lambda: -1)
    for call in (consumer.poll, consumer.close, consumer.assignment):
        with pytest.raises((IllegalState, KafkaException), match="made before a fork"):
            call()
    monkeypatch.undo()
    assert consumer.poll(0.0) is None


def test_other_threads_may_call_while_one_polls(make: Callable[..., SyncConsumer]) -> None:
    consumer = make()
    consumer.subscribe(["orders"])
    polled: list[Any] = []
    thread = threading.Thread(target=lambda: polled.append(consumer.poll(10)))
    thread.start()
    consumer.commit(offsets=[], asynchronous=True)
    wait_for(lambda: "JOINING" in str(consumer.explain()), "the member to join")
    send(consumer, ErrorEvent(error=KafkaError(29, "no")))
    thread.join(10)
    (message,) = polled
    assert (message.error().code(), message.error().name()) == (29, "TOPIC_AUTHORIZATION_FAILED")
    assert message.error() == message.error().TOPIC_AUTHORIZATION_FAILED
    assert "no" in message.error().str()


@pytest.mark.parametrize("turns", range(5))
async def test_a_call_that_is_cancelled_as_its_answer_arrives_is_cancelled(turns: int) -> None:
    """Otherwise a task that reads for ever could not be ended."""
    future: Future[None] = Future()
    call = CallAnswer(future, now_ms() + 10_000)
    task = asyncio.create_task(Consumer(bootstrap_servers="127.0.0.1:1")._perform(call))
    await asyncio.sleep(0)
    future.set_result(None)
    for _ in range(turns):
        await asyncio.sleep(0)
    was_running = task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() is was_running


def test_calls_raise_what_confluent_kafkas_do(make: Callable[..., SyncConsumer]) -> None:
    consumer = make(default_api_timeout_ms=50)
    with pytest.raises(KafkaException) as caught:
        consumer.committed([], timeout=0.05) or consumer.list_topics(timeout=0.05)
    assert caught.value.args[0].name() == "_TIMED_OUT"
    assert caught.value.args[0].retriable()
    with pytest.raises(ValueError, match="exclude each other"):
        consumer.commit(message=consumer, offsets=[])
    with pytest.raises(ValueError, match="num_messages"):
        consumer.consume(-1)
    consumer.close(timeout=CLOSE_S)
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)
    consumer.close()


def test_on_commit_is_told_of_asynchronous_commits(make: Callable[..., SyncConsumer]) -> None:
    told: list[Any] = []
    consumer = make(on_commit=lambda *ended: told.append(ended), default_api_timeout_ms=50)
    consumer._thread.call(consumer._application.commit_async, {ZERO: OffsetAndMetadata(7)}, None)
    until_s = time.monotonic() + 10
    while not told:
        assert time.monotonic() < until_s
        consumer.poll(0.05)
    ((error, partitions),) = told
    assert error.name() == "_TIMED_OUT"
    assert [(each.topic, each.partition, each.offset) for each in partitions] == [("orders", 0, 7)]


def test_the_thread_ends_with_close(make: Callable[..., SyncConsumer]) -> None:
    consumer = make()
    thread = consumer._thread._thread
    assert thread.is_alive()
    consumer.close(timeout=CLOSE_S)
    assert not thread.is_alive()


def test_a_consumer_that_was_not_closed_is_told_and_its_thread_ends() -> None:
    begun = set(threading.enumerate())

    def drop() -> set[threading.Thread]:
        consumer = SyncConsumer(NOWHERE)
        consumer.subscribe(["orders"], on_assign=print)
        return set(threading.enumerate()) - begun

    with pytest.warns(ResourceWarning, match="unclosed consumer"):
        threads = drop()
    (thread,) = threads
    thread.join(JOIN_S)
    assert not thread.is_alive()


def test_close_ends_while_a_callback_of_another_thread_does_not(
    make: Callable[..., SyncConsumer], caplog: pytest.LogCaptureFixture
) -> None:
    began, ends = threading.Event(), threading.Event()

    def on_assign(_consumer: SyncConsumer, _partitions: list[Any]) -> None:
        began.set()
        ends.wait(30)

    consumer = make(on_assign=on_assign)
    consumer.subscribe(["orders"])
    send(consumer, assigned())
    raised: list[BaseException] = []

    def poll() -> None:
        try:
            consumer.poll(10)
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    assert began.wait(10)
    begun_s = time.monotonic()
    consumer.close(timeout=0.2)
    assert time.monotonic() - begun_s < 5
    ends.set()
    thread.join(10)
    assert not thread.is_alive()
    assert "closed" in str(raised[0])


def test_what_a_commit_callback_raises_is_raised_by_poll_and_the_next_is_told(
    make: Callable[..., SyncConsumer],
) -> None:
    told: list[Any] = []

    def on_commit(error: Any, _partitions: list[Any]) -> None:
        told.append(error)
        raise ArithmeticError("a defect of the program")

    consumer = make(on_commit=on_commit, default_api_timeout_ms=50)
    for number in (1, 2):
        consumer._thread.call(consumer._application.commit_async, {ZERO: OffsetAndMetadata(number)}, None)
    for number in (1, 2):
        with pytest.raises(ArithmeticError, match="a defect"):
            consumer.poll(10)
        assert len(told) == number
