"""The background side: one pass takes the application's events, asks the managers, and sends.

`run_once` is the whole loop body. It does no I/O and never waits, so the asyncio backend, a thread and the
simulator drive it alike: call it when an event was added, when the network brought something, and when the
time that it returned is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from client.core.errors import BackgroundFailed
from client.core.events import (
    ApplicationEvent,
    ApplicationEventType,
    BackgroundEvent,
    CloseEvent,
    ErrorEvent,
)
from client.core.futures import complete, fail
from client.core.network.delegate import NetworkDelegate
from client.core.requests import FOREVER, RequestManager

EVENTS_PER_PASS_MAX: Final = 1_000
"""Limit on application events that one pass takes; the next pass follows at once."""


EventHandler = Callable[[Any, float], None]
"""Handles an application event of one type at a time in ms."""


class Background:
    """The managers of one consumer, in the order in which they are polled."""

    def __init__(
        self,
        managers: Sequence[RequestManager],
        handlers: dict[ApplicationEventType, EventHandler],
        delegate: NetworkDelegate,
        background_events: deque[BackgroundEvent],
    ) -> None:
        self.application_events: deque[ApplicationEvent] = deque()
        """Filled by `add`."""
        self.background_events = background_events
        """Filled by the managers and emptied by the application side."""
        self.managers = managers
        self._handlers: dict[ApplicationEventType, EventHandler] = {
            ApplicationEventType.NOOP: lambda event, now_ms: None,
            ApplicationEventType.CLOSE: self._close,
            **handlers,
        }
        self._delegate = delegate
        self._failure: BackgroundFailed | None = None

    def add(self, event: ApplicationEvent) -> None:
        """Hand over an event of the application side, in any thread, before the backend is woken."""
        self.application_events.append(event)
        if self._failure is not None:
            self._refuse_events(self._failure)

    def fail(self, error: Exception) -> None:
        """End: no pass follows one that raised. Calls fail from now on, and do not wait for their time."""
        told = BackgroundFailed(f"the consumer's background side failed, which is a bug of it: {error!r}")
        told.__cause__ = error
        self._failure = told
        self._refuse_events(told)
        self.background_events.append(ErrorEvent(error=told, is_fatal=True))

    def _refuse_events(self, failure: BackgroundFailed) -> None:
        with suppress(IndexError):  # another thread may empty it as well
            while True:
                fail(self.application_events.popleft().future, failure)

    def run_once(self, now_ms: float) -> float:
        """Make one pass. Returns the number of ms after which the next one is due."""
        for _ in range(min(len(self.application_events), EVENTS_PER_PASS_MAX)):
            event = self.application_events.popleft()
            self._handlers[event.type](event, now_ms)
        wait_ms = 0.0 if self.application_events else FOREVER
        for manager in self.managers:
            wanted = manager.poll(now_ms)
            for request in wanted.requests:
                self._delegate.add(request, now_ms)
            wait_ms = min(wait_ms, wanted.wait_ms)
        return min(wait_ms, self._delegate.poll(now_ms))

    def _close(self, event: CloseEvent, now_ms: float) -> None:
        self._delegate.close(now_ms)
        complete(event.future)
