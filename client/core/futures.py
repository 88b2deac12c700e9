"""Completes the futures of calls. One that was completed or cancelled meanwhile is left alone.

The application side may give a call up at any moment, in another thread too.
"""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any


def complete(future: Future[Any] | None, result: Any = None) -> None:
    """Give a call its result."""
    if future is not None:
        with suppress(InvalidStateError):
            future.set_result(result)


def fail(future: Future[Any] | None, error: Exception) -> None:
    """Let a call raise `error`."""
    if future is not None:
        with suppress(InvalidStateError):
            future.set_exception(error)
