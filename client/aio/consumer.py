"""`Consumer`: the asyncio flavour. Both sides run on the event loop that the consumer is used on."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from client.aio.loop import BackgroundDriver, answer_of, now_ms, real_environment
from client.aio.transport import AsyncioConnections
from client.core.application import Application
from client.core.assembly import ConsumerAssembly, assemble
from client.core.cluster_view import ClusterView
from client.core.effects import CallAnswer, Effect, NewsWait, Steps, UserCall
from client.core.errors import IllegalState, TimedOut
from client.core.member.member import MemberExplanation
from client.core.offset_commits import CommitCallback
from client.core.rebalance import RebalanceCallback, bound_callbacks
from client.core.settings import read_settings
from client.core.types import (
    FIRST_OFFSET,
    LAST_OFFSET,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from client.tracing import Tracing

ITERATION_S: Final = 60.0
"""The time limit of each poll() of an iteration, which has none itself."""

_T = TypeVar("_T")


class Consumer:
    """A consumer of Kafka's consumer group protocol for asyncio.

        async with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            async for record in consumer:
                ...

    Topics that are named are subscribed to with the first call that waits. Settings have Kafka's names with
    underscores, or with dots in `config`; docs/client.md has all. Times are in seconds, None stands for
    default.api.timeout.ms. Calls raise `ConsumerError`, and `TimedOut` after their time limit.

    Rebalance callbacks are functions or coroutine functions of the consumer and a list of partitions. They
    run within poll(), iteration, unsubscribe() and close(), and what they raise is raised there.
    """

    def __init__(self, *topics: str, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        self._settings = read_settings(config or {}, settings)
        self._tracing = Tracing(self._settings)
        self._topics = topics
        self._assembly: ConsumerAssembly | None = None
        self._is_closed = False
        self._closed: asyncio.Event | None = None
        """Set when the first close() has ended."""

    # Consuming.

    async def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return the next records, of which there are at most max.poll.records; none if none came in time."""
        began_ns = self._tracing.began_ns()
        records = await self._poll(
            timeout, self._settings.max_poll_records if max_records is None else max_records
        )
        self._tracing.polled(began_ns, records)
        return records

    async def _poll(self, timeout: float, most: int) -> list[ConsumerRecord]:
        # The background side gets its turn, however much there is to read. Afterwards would be too late: a
        # cancellation in that moment would lose records that count as handed out.
        await asyncio.sleep(0)
        return await self._run((await self._started()).poll(most, timeout * 1000))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record. Ends when the consumer was closed."""
        if self._assembly is not None and (record := self._assembly.application.take_one()) is not None:
            return record
        try:
            while not (records := await self._poll(ITERATION_S, 1)):
                continue
        except IllegalState:
            if self._is_closed:
                raise StopAsyncIteration from None
            raise
        return records[0]

    def processing(self, *records: ConsumerRecord) -> AbstractContextManager[Any]:
        """Work on records in a span of OpenTelemetry, which continues the trace of their producers.

        Does nothing if the program has set no provider of tracers."""
        return self._tracing.processing(records)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no records of these partitions until resume(), or until they are given up."""
        self._application.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out records of these partitions again."""
        self._application.resume(partitions)

    def paused(self) -> set[TopicPartition]:
        """The partitions that pause() holds back."""
        return set(self._application.paused)

    # Subscription and assignment.

    async def subscribe(
        self,
        topics: Collection[str] = (),
        *,
        regex: str | None = None,
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Join the group with these topics, and those whose whole name matches a regular expression (RE2).

        `on_assign`, `on_revoke` and `on_lost` take the place of the settings' callbacks. Nothing at all is
        unsubscribe()."""
        application = await self._started(subscribes=False)
        callbacks = bound_callbacks(self, self._settings, on_assign, on_revoke, on_lost)
        await self._run(application.subscribe(topics, regex, callbacks))

    async def assign(
        self, partitions: Collection[TopicPartition] | Mapping[TopicPartition, int | None]
    ) -> None:
        """Read these partitions without the group's coordinator, from offsets if a mapping gives them.

        Without an offset, a partition begins at the committed one, or else by auto.offset.reset."""
        offsets = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
        await self._run((await self._started(subscribes=False)).assign(offsets))

    async def unsubscribe(self, timeout: float | None = None) -> None:
        """Give up all partitions and leave the group."""
        await self._run((await self._started(subscribes=False)).unsubscribe(_ms(timeout)))

    def assignment(self) -> set[TopicPartition]:
        """The partitions whose records are handed out."""
        return set(self._application.assignment)

    def subscription(self) -> frozenset[str]:
        """The names of the topics that are subscribed to."""
        return self._application.subscription.topics

    # Offsets.

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from an offset; in on_assign, begin there."""
        self._application.seek({partition: offset})

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on from the first offsets, of all partitions if none are named."""
        self._application.seek(dict.fromkeys(partitions or self.assignment(), FIRST_OFFSET))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on from the ends, of all partitions if none are named."""
        self._application.seek(dict.fromkeys(partitions or self.assignment(), LAST_OFFSET))

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Return the offset of the next record that is handed out."""
        return await self._run((await self._started()).position(partition, _ms(timeout)))

    def lag(self, partition: TopicPartition) -> int | None:
        """The number of records behind the position; None before the partition was fetched from."""
        return self._application.lag(partition)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commit offsets, or the positions of all partitions. Returns what was committed."""
        application = await self._started()
        with self._tracing.committing():
            return await self._run(application.commit(_offsets(offsets), _ms(timeout)))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting. poll() calls the callback with the error, or None, and the offsets."""
        self._application.commit_async(_offsets(offsets), callback)

    def store_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]) -> None:
        """Store offsets for commits that name none; needs enable.auto.offset.store=false."""
        self._application.store_offsets(_offsets(offsets) or {})

    async def committed(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets, None where there is none."""
        application = await self._started()
        application.check_group("committed()")
        return await self._run(application.inquiries.committed(partitions, _ms(timeout)))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offsets whose records are at least as new as these Unix times in ms."""
        application = await self._started()
        return await self._run(application.inquiries.list_offsets(timestamps, _ms(timeout)))

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offsets of partitions."""
        return await self._list_offsets(partitions, FIRST_OFFSET, timeout)

    async def end_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the ends of partitions; under read_committed, their last stable offsets."""
        return await self._list_offsets(partitions, LAST_OFFSET, timeout)

    async def _list_offsets(
        self, partitions: Collection[TopicPartition], which: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        application = await self._started()
        found = await self._run(
            application.inquiries.list_offsets(dict.fromkeys(partitions, which), _ms(timeout))
        )
        return {partition: at.offset for partition, at in found.items() if at is not None}

    # The cluster and the consumer.

    async def cluster(
        self, topics: Collection[str] | None = None, timeout: float | None = None
    ) -> ClusterView:
        """Return nodes, topics and partitions; of all topics if none are named."""
        view: ClusterView = await self._run((await self._started()).inquiries.cluster(topics, _ms(timeout)))
        return view

    def explain(self) -> MemberExplanation:
        """Say which state the member is in, why, what it waits for, and since when."""
        return self._require().explain()

    async def close(self, timeout: float | None = None) -> None:
        """Commit under enable.auto.commit, call on_revoke, leave the group, and end all connections.

        Ends within the time limit, of 30 s by default. Raises what a callback raised, when it is closed."""
        if self._assembly is not None:
            self._check_loop()
            self._assembly.application.check_not_in_callback("close()")
        if self._assembly is None or self._closed is not None:
            self._is_closed = True
            if self._closed is not None:
                await self._closed.wait()
            return
        self._is_closed, self._closed = True, asyncio.Event()
        try:
            await self._run(self._assembly.application.close(_ms(timeout)))
        finally:
            self._closed.set()
            self._wake_waiters()
            await self._connections.stop()

    async def __aenter__(self) -> Self:
        await self._started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # How calls run.

    @property
    def _application(self) -> Application:
        return self._require().application

    def _require(self) -> ConsumerAssembly:
        if self._assembly is None:
            raise IllegalState("use `async with`, or await subscribe() or assign() first")
        return self._assembly

    async def _started(self, *, subscribes: bool = True) -> Application:
        """Return the application side, made in the running loop with the first call that waits."""
        if self._assembly is None:
            if self._is_closed:
                raise IllegalState("the consumer is closed")
            self._assembly = self._assemble()
        self._check_loop()
        application = self._assembly.application
        if subscribes and self._topics:
            topics, self._topics = self._topics, ()
            await self._run(application.subscribe(topics, None, bound_callbacks(self, self._settings)))
        return application

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise IllegalState("the consumer belongs to another event loop; use and close it there")

    def _assemble(self) -> ConsumerAssembly:
        self._loop = asyncio.get_running_loop()
        self._waiters: set[asyncio.Future[None]] = set()
        driver = BackgroundDriver(self._wake_waiters)
        self._connections = AsyncioConnections(self._settings, driver)
        assembly = assemble(self._settings, real_environment(), self._connections, driver.wake)
        self._connections.start(assembly.delegate, assembly.background)
        return assembly

    async def _run(self, steps: Steps[_T]) -> _T:
        """Drive a call to its end."""
        sent: Any = None
        thrown: BaseException | None = None
        while True:
            try:
                effect = steps.send(sent) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                result: _T = end.value
                return result
            sent = thrown = None
            try:
                sent = await self._perform(effect)
            except BaseException as raised:
                thrown = raised

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case NewsWait():
                await self._wait_for_news(effect)
                return None
            case CallAnswer():
                # asyncio.wait leaves the future of a cancelled call alone: the background side completes it.
                # asyncio.wait_for would lose a cancellation that comes with the answer (Python 3.11).
                answer = answer_of(effect.future)
                done, _ = await asyncio.wait({answer}, timeout=effect.wait_s(now_ms()))
                if not done:
                    raise TimedOut("the call did not end")
                return answer.result()
            case UserCall():
                result = effect.function(*effect.arguments)
                if asyncio.iscoroutine(result) or isinstance(result, asyncio.Future):
                    return await self._finish(result, effect.deadline_ms)
                return result

    async def _finish(self, coroutine: Any, deadline_ms: float | None) -> Any:
        """Wait for a coroutine of the user; past the deadline it is cancelled, and not waited for."""
        if deadline_ms is None:
            return await coroutine
        task = asyncio.ensure_future(coroutine)
        done, _ = await asyncio.wait({task}, timeout=max(deadline_ms - now_ms(), 0.0) / 1000)
        if not done:
            task.cancel()
            raise TimedOut("a callback did not end in time")
        return task.result()

    async def _wait_for_news(self, effect: NewsWait) -> None:
        seconds = (effect.until_ms - now_ms()) / 1000
        if self._require().background.background_events or seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiters.add(waiter)
        timer = loop.call_later(seconds, _set, waiter)
        if effect.future is not None:
            effect.future.add_done_callback(lambda _: _set(waiter))
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.discard(waiter)

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            _set(waiter)


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _ms(timeout: float | None) -> float | None:
    return None if timeout is None else timeout * 1000


def _offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None,
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    if offsets is None:
        return None
    return {
        at: OffsetAndMetadata(offset) if isinstance(offset, int) else offset for at, offset in offsets.items()
    }
