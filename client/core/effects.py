"""The requests of the application side to the flavour that drives it.

Calls of a consumer that may wait are generators, which yield effects and are sent their results. So each
call is written once; asyncio and threads differ in how they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

GRACE_S: Final = 1.0
"""The background side has this long after a call's time limit to end the call itself."""


class UserCall(NamedTuple):
    """Call the user's function, and wait for it if it is a coroutine function. Sends what it returns."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    deadline_ms: float | None = None
    """TimedOut is thrown if the function has not returned by then."""


class NewsWait(NamedTuple):
    """Wait until the background side has sent an event, until a call has ended, or until the time."""

    until_ms: float
    future: Future[Any] | None = None


class CallAnswer(NamedTuple):
    """Wait for the end of a call. Sends its result, or throws its error."""

    future: Future[Any]
    deadline_ms: float
    """The background side keeps it; the flavour only makes sure of it."""

    def wait_s(self, now_ms: float) -> float:
        """Return the seconds for which a flavour waits."""
        return max(self.deadline_ms - now_ms, 0.0) / 1000 + GRACE_S


Effect = UserCall | NewsWait | CallAnswer
_T = TypeVar("_T")
Steps = Generator[Effect, Any, _T]
"""A call in steps, with its result."""
