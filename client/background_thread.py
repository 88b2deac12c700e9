"""Runs the background side of a consumer in a thread of its own, with an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from os import getpid
from threading import Condition, RLock, Thread, current_thread
from typing import Any, Final, TypeVar

from client.aio.loop import BackgroundDriver, now_ms, real_environment
from client.aio.transport import AsyncioConnections, tls_context
from client.core.assembly import ConsumerAssembly, assemble
from client.core.effects import CallAnswer, Effect, NewsWait, Steps, UserCall
from client.core.errors import IllegalState, TimedOut
from client.core.settings import ConsumerSettings

JOIN_S: Final = 5.0
"""Limit on waiting for the thread to end; it is a daemon, so the process can end in any case."""

_T = TypeVar("_T")


class BackgroundThread:
    """The thread, and the driver of the application side's calls in the threads that make them.

    Steps of calls exclude each other; while a call waits, or runs the user's code, other threads may call."""

    def __init__(self, settings: ConsumerSettings) -> None:
        tls_context(settings)  # what is wrong with it is raised here
        self.assembly: ConsumerAssembly
        self._settings = settings
        self._process_id = getpid()
        self._driver: BackgroundDriver
        self._steps = RLock()
        self._news = Condition()
        self._loop = asyncio.new_event_loop()
        begun: Future[None] = Future()
        self._thread = Thread(target=self._run, args=(begun,), name="quorate-consumer", daemon=True)
        self._thread.start()
        begun.result()

    def call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Make a call that never waits."""
        self._check_process()
        with self._steps:
            return function(*arguments)

    def drive(self, steps: Steps[_T]) -> _T:
        """Drive a call to its end."""
        self._check_process()
        sent: Any = None
        thrown: BaseException | None = None
        while True:
            try:
                with self._steps:
                    effect = steps.send(sent) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                result: _T = end.value
                return result
            sent = thrown = None
            try:
                sent = self._perform(effect)
            except BaseException as raised:
                thrown = raised

    def _check_process(self) -> None:
        if getpid() != self._process_id:
            raise IllegalState("the consumer was made before a fork: make one in each process")

    def stop(self) -> None:
        """End the thread."""
        self.abandon()
        if current_thread() is not self._thread:
            self._thread.join(JOIN_S)
        self._notify()

    def abandon(self) -> None:
        """Let the thread end, without waiting for it. A forked process does not have it."""
        if not self._loop.is_closed() and getpid() == self._process_id:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case NewsWait():
                self._wait_for_news(effect)
                return None
            case CallAnswer():
                try:
                    return effect.future.result(effect.wait_s(now_ms()))
                except TimeoutError as error:
                    raise error if isinstance(error, TimedOut) else TimedOut("the call did not end") from None
            case UserCall():
                result = effect.function(*effect.arguments)
                if asyncio.iscoroutine(result):
                    result.close()
                    raise TypeError(
                        f"{effect.function!r} is a coroutine function, which SyncConsumer cannot call"
                    )
                return result

    def _wait_for_news(self, effect: NewsWait) -> None:
        seconds = (effect.until_ms - now_ms()) / 1000
        future = effect.future
        with self._news:
            if future is not None:
                future.add_done_callback(lambda _: self._notify())
            has_news = self.assembly.background.background_events or (future is not None and future.done())
            if not has_news and seconds > 0:
                self._news.wait(seconds)

    def _run(self, begun: Future[None]) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._begin())
            begun.set_result(None)
        except BaseException as error:
            begun.set_exception(error)
            return
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._connections.stop())
            self._loop.close()

    async def _begin(self) -> None:
        self._driver = BackgroundDriver(self._notify)
        self._connections = AsyncioConnections(self._settings, self._driver)
        self.assembly = assemble(self._settings, real_environment(), self._connections, self._wake)
        self._connections.start(self.assembly.delegate, self.assembly.background)

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._driver.wake_from_thread()

    def _notify(self) -> None:
        with self._news:
            self._news.notify_all()
