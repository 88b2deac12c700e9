"""Errors that wait for a poll(), which raises one with each call; a fatal one is raised by every call."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from client.core.events import ErrorEvent

ERRORS_MAX: Final = 1_000
"""Limit on the errors that wait because calls are made that raise none; further ones go to the log."""

_log = logging.getLogger("quorate.consumer")


class UnraisedErrors:
    """The errors of one consumer, in their order."""

    def __init__(self) -> None:
        self._errors: deque[Exception] = deque()
        self._fatal: Exception | None = None

    def add(self, event: ErrorEvent) -> None:
        if event.is_fatal:
            self._fatal = event.error
        elif len(self._errors) < ERRORS_MAX:
            self._errors.append(event.error)
        else:
            log_unraised(event.error)

    def raise_next(self) -> None:
        """Raise the fatal error, or else the oldest, if there is one."""
        if self._fatal is not None:
            raise self._fatal
        if self._errors:
            raise self._errors.popleft()

    def raise_fatal(self) -> None:
        """Raise the fatal error, if there is one. The others, which the member survives, go to the log."""
        while self._errors:
            _log.warning("%s", self._errors.popleft())
        if self._fatal is not None:
            raise self._fatal


def log_unraised(error: Exception) -> None:
    """Log an error for which there is no room."""
    _log.warning("the application does not poll; this error is not raised: %s", error)
