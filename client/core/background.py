"""The background side: one pass takes the application's events, asks the managers, and sends.

`run_once` is the whole loop body. It does no I/O and never waits, so the asyncio backend, a thread and the
simulator drive it alike: call it when an event was added, when the network brought something, and when the
time that it returned is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from client.core.events import ApplicationEvent, ApplicationEventType, BackgroundEvent, CloseEvent
from client.core.futures import complete
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
        """Filled by the application side, which wakes the backend afterwards."""
        self.background_events = background_events
        """Filled by the managers and emptied by the application side."""
        self.managers = managers
        self._handlers: dict[ApplicationEventType, EventHandler] = {
            ApplicationEventType.NOOP: lambda event, now_ms: None,
            ApplicationEventType.CLOSE: self._close,
            **handlers,
        }
        self._delegate = delegate

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
