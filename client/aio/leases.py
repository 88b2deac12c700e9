"""`lease()`: partitions to work on, each with a fencing token, on the event loop that it is used on."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self

from client.aio.loop import BackgroundDriver, answer_of, now_ms, real_environment
from client.aio.transport import AsyncioConnections
from client.core.cluster_view import ClusterView
from client.core.errors import IllegalState, KafkaError, TimedOut
from client.core.events import UpdateMetadataEvent
from client.core.lease_assembly import LeaseAssembly, assemble_leases
from client.core.leases import LeaseChange, check_lease_settings
from client.core.member.member import MemberExplanation
from client.core.metadata import MISSING
from client.core.settings import read_settings
from client.core.types import Lease
from wire.errors import ErrorCode

LEAVE_S: Final = 15.0
"""The time limit of leaving the group."""

NOT_JOINED_S: Final = 2.0
"""The same for a member that was not admitted, whose join the coordinator may have heard nevertheless."""

CLOSE_S: Final = 1.0
"""The time limit of ending all connections, which no node can prolong."""

TOPIC_S: Final = 5.0
"""A topic that does not exist may have been created just now, and not be known to all nodes yet."""

TOPIC_AGAIN_S: Final = 0.2

_log = logging.getLogger("quorate.leases")

Worker = Callable[[Lease], Awaitable[Any]]


def lease(group: str, *topics: str, config: Mapping[str, Any] | None = None, **settings: Any) -> Leases:
    """Share out the partitions of topics among the processes of a group, without reading messages.

        async with quorate.lease("billing", "tenants", bootstrap_servers="localhost:9092") as partitions:
            await partitions.run(work)  # a coroutine function of a Lease: topic, partition, token

    Settings are those of `Consumer`, without those of messages and offsets. docs/leases.md has the contract.
    """
    return Leases(group, topics, config or {}, settings)


class Leases(Collection[Lease]):
    """The leases that this process holds now: a live view, and the changes of it.

    A `Lease` is in the view from the moment in which the coordinator gave it until it has to be given back,
    or was lost. `run()` keeps one worker for each. Who iterates over the changes instead ends the work of
    `change.ended` in the body of the loop: asking for the next change says that it has ended.

    Calls raise `ConsumerError`: `FatalError` when the member cannot go on, `TimedOut` if the coordinator did
    not admit it within default.api.timeout.ms.
    """

    def __init__(
        self, group: str, topics: Collection[str], config: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> None:
        read = read_settings({"group_id": group}, config, settings, fetches=False)
        check_lease_settings(read)
        self._settings = dataclasses.replace(read, allow_auto_create_topics=False)
        self._topics = frozenset(topics)
        self._assembly: LeaseAssembly | None = None
        self._news: set[asyncio.Future[None]] = set()
        """The calls that wait for something to happen."""
        self._current: LeaseChange | None = None
        """The change that the body of the loop handles."""
        self._is_taken = False
        """Whether somebody takes the changes."""
        self._running: asyncio.Task[Any] | None = None
        """The task that runs run()."""
        self._closed: asyncio.Event | None = None

    # The view.

    def __iter__(self) -> Iterator[Lease]:
        """Iterate over what is held now, by topic and partition."""
        return iter(sorted(self._require().holder.held.values()))

    def __len__(self) -> int:
        """Return the number of partitions that are held now."""
        return len(self._require().holder.held)

    def __contains__(self, lease: object) -> bool:
        """Whether a lease is held now."""
        return isinstance(lease, Lease) and self._require().holder.is_held(lease)

    def explain(self) -> MemberExplanation:
        """Say which state the member is in, why, what it waits for, and since when."""
        return self._require().explain()

    # The changes.

    async def run(self, work: Worker) -> None:
        """Run `work(lease)` for each lease as long as it is held, until an error or a cancellation.

        When a lease must be given back, or was lost, its worker is cancelled, and the coordinator is told
        when the worker has ended. A worker that returns leaves its lease held and idle. One that raises ends
        the others, and run() raises its error. After that run() may be called again: it begins with what is
        still held."""
        cancelled: set[Lease] = set()
        changes: list[LeaseChange] = []
        holder = self._require().holder
        self._take_changes()
        workers = {lease: _begin(work, lease) for lease in holder.told()}
        self._running = asyncio.current_task()
        try:
            while True:
                changes = self._acknowledge_ended(changes, workers)
                change = holder.take()
                if change is None:
                    await self._next_news(workers.values())
                    cancelled &= _drop_ended(workers)
                    continue
                for lease in change.gained:
                    workers[lease] = _begin(work, lease)
                for lease in workers.keys() & set(change.ended) - cancelled:
                    workers[lease].cancel()
                    cancelled.add(lease)
                changes.append(change)
        finally:
            for lease, worker in workers.items():
                if lease not in cancelled:
                    worker.cancel()
            try:
                await _all_ended(workers.values())
            finally:
                self._acknowledge_ended(changes, ())
                self._is_taken, self._running = False, None

    def _acknowledge_ended(self, changes: list[LeaseChange], workers: Collection[Lease]) -> list[LeaseChange]:
        """Acknowledge the changes whose work has ended, and return the others."""
        rest = []
        for change in changes:
            if any(lease in workers for lease in change.ended):
                rest.append(change)
            else:
                self.acknowledge(change)
        return rest

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LeaseChange:
        """Return the next change; the work of what ended in the one before has ended. Ends when closed."""
        if self._current is not None:
            self.acknowledge(self._current)
            self._current = None
        try:
            self._current = await self.next_change()
        except IllegalState:
            if self._closed is not None:
                raise StopAsyncIteration from None
            raise
        return self._current

    async def next_change(self) -> LeaseChange:
        """Return the next change, which is to be acknowledged when the work of what has ended is over.

        This is what run() and iteration are made of, for schedulers of other kinds. While a revocation is not
        acknowledged yet, the next change may say that all is lost."""
        holder = self._require().holder
        self._take_changes()
        try:
            while (change := holder.take()) is None:
                await self._next_news()
        finally:
            self._is_taken = False
        return change

    def acknowledge(self, change: LeaseChange) -> None:
        """Say that the work of what ended in a change is over. Others may get its partitions."""
        self._require().holder.acknowledge(change)

    def _take_changes(self) -> None:
        if self._is_taken:
            raise IllegalState("the changes are taken already, by run() or in another task")
        self._is_taken = True

    async def _next_news(self, tasks: Collection[asyncio.Task[Any]] = ()) -> None:
        """Wait until the background side has something to tell, or one of these tasks has ended."""
        news = asyncio.get_running_loop().create_future()
        self._news.add(news)
        try:
            await asyncio.wait({news, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._news.discard(news)

    def _tell(self) -> None:
        """Bring the view up to date, and wake who waits."""
        if self._assembly is not None:
            self._assembly.holder.receive()
        for news in self._news:
            if not news.done():
                news.set_result(None)

    # The beginning and the end.

    async def __aenter__(self) -> Self:
        """Join the group. Returns when the coordinator has admitted the member."""
        if self._assembly is not None:
            raise IllegalState("a lease is opened once")
        driver = BackgroundDriver(self._tell)
        self._connections = AsyncioConnections(self._settings, driver)
        assembly = assemble_leases(self._settings, real_environment(), self._connections, driver.wake)
        self._assembly = assembly
        self._connections.start(assembly.delegate, assembly.background)
        try:
            await self._join(assembly)
        except BaseException:
            await self.close(NOT_JOINED_S)
            raise
        return self

    async def _join(self, assembly: LeaseAssembly) -> None:
        timeout_s = self._settings.default_api_timeout_ms / 1000
        admitted = assembly.holder.open(self._topics)
        admitted.add_done_callback(lambda _: self._tell())
        loop = asyncio.get_running_loop()
        overdue = loop.call_later(timeout_s, self._tell)
        until_s = loop.time() + timeout_s
        try:
            while not admitted.done():
                if self._closed is not None:
                    raise IllegalState("the lease was closed before it had joined")
                if loop.time() >= until_s:
                    raise TimedOut(f"the coordinator did not admit the member in time. {assembly.explain()}")
                assembly.holder.raise_errors()
                await self._next_news()
        finally:
            overdue.cancel()
        admitted.result()
        await self._check_topics(assembly)

    async def _check_topics(self, assembly: LeaseAssembly) -> None:
        """Raise `KafkaError` for a topic that does not exist: nobody would ever get a partition of it."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + TOPIC_S
        timeout_s = self._settings.default_api_timeout_ms / 1000
        while True:
            asked: Future[ClusterView] = Future()
            deadline_ms = now_ms() + timeout_s * 1000
            assembly.holder.ask(
                UpdateMetadataEvent(topics=self._topics, future=asked, deadline_ms=deadline_ms)
            )
            view = await asyncio.wait_for(asyncio.wrap_future(asked), timeout_s + CLOSE_S)
            for topic in view.topics.values():
                if topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                    raise KafkaError(topic.error_code, f"{topic.name!r} is not a name that a topic can have")
            missing = [topic for topic in view.topics.values() if topic.error_code in MISSING]
            if not missing:
                return
            if loop.time() >= until_s:
                words = f"topic {missing[0].name!r} does not exist; create it first"
                raise KafkaError(missing[0].error_code, words)
            await asyncio.sleep(TOPIC_AGAIN_S)

    async def release(self, timeout: float = LEAVE_S) -> bool:
        """Ask for everything back, as a revocation of all, and leave the group when it is acknowledged.

        Returns whether the member has left within the time limit."""
        left = answer_of(self._require().holder.release(10 * timeout * 1000))
        done, _ = await asyncio.wait({left}, timeout=timeout)
        return bool(done)

    async def close(self, timeout: float = LEAVE_S, *, for_good: bool = False, leaves: bool = True) -> None:
        """End run(), give everything back, and leave the group. Ends within the time limit.

        All work must have ended. If workers of run() do not end in time, the member does not leave, and its
        session ends instead; so it is if not `leaves`. A static member keeps its partitions for its session,
        to find them again after a restart; `for_good` gives them to others at once."""
        if self._closed is not None or self._assembly is None:
            if self._closed is not None:
                await self._closed.wait()
            return
        self._closed = asyncio.Event()
        holder = self._assembly.holder
        try:
            if leaves and await self._end_run(timeout):
                left = holder.leave(timeout * 1000, stays=not for_good)
                self._tell()
                await asyncio.wait({answer_of(left)}, timeout=timeout + CLOSE_S)
            holder.end()
            self._tell()
            await asyncio.wait({answer_of(holder.disconnect())}, timeout=CLOSE_S)
        finally:
            holder.end()  # close() may have been cancelled, and no heartbeat is sent from now on
            self._tell()
            self._closed.set()
            await self._connections.stop()

    async def _end_run(self, timeout: float) -> bool:
        """End the run() of another task. Returns whether its workers have ended."""
        running = self._running
        if running is None or running is asyncio.current_task():
            return True
        running.cancel()
        done, _ = await asyncio.wait({running}, timeout=timeout)
        if not done:
            _log.warning("a worker did not end within %g s; the group waits for the session's end", timeout)
        return bool(done)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _require(self) -> LeaseAssembly:
        if self._assembly is None:
            raise IllegalState("use `async with lease(…) as partitions`")
        return self._assembly


async def _all_ended(workers: Collection[asyncio.Task[Any]]) -> None:
    """Wait for workers that were cancelled. Further cancellations are raised when all have ended.

    They do not reach the workers, which may be cleaning up."""
    cancellation: asyncio.CancelledError | None = None
    while not all(worker.done() for worker in workers):
        try:
            await asyncio.wait(workers)
        except asyncio.CancelledError as error:
            cancellation = error
    for worker in workers:
        if not worker.cancelled():
            worker.exception()  # as gather() does: it is known, and not logged at the end of the process
    if cancellation is not None:
        raise cancellation


def _begin(work: Worker, lease: Lease) -> asyncio.Task[Any]:
    """Start the worker of a lease; what it returns may be anything that can be awaited."""

    async def run() -> Any:
        return await work(lease)

    return asyncio.ensure_future(run())


def _drop_ended(workers: dict[Lease, asyncio.Task[Any]]) -> set[Lease]:
    """Forget the workers that have ended, and return the others' leases. Raises what a worker raised."""
    for lease, worker in list(workers.items()):
        if worker.done():
            del workers[lease]
            if not worker.cancelled():
                worker.result()
    return set(workers)
