"""Requests on their way: the managers make them, the network delegate sends them and brings the answers.

A request manager does no I/O. On each pass of the background side it is asked for the requests that it wants
to send and for the time until it has something to do without being told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from wire.apis import ApiKey
from wire.schema import Message

FOREVER: Final = math.inf
"""The wait of a manager that has nothing to do until an event or an answer arrives."""


NO_REPLICA: Final = -1
"""The replica id of a consumer, in requests that replicas make too."""


class Destination(Enum):
    """A node that is not named by its id."""

    ANY = "the least loaded node that is connected or may be tried"
    COORDINATOR = "the group's coordinator; the request waits until it is known"


class RequestFailure(Enum):
    """The reason why a request has no answer."""

    DISCONNECTED = "the connection ended before the answer arrived"
    TIMED_OUT = "the request timed out"
    UNREACHABLE = "no connection to the node could be made"
    UNSUPPORTED_VERSION = "the node serves no version of the API that this client speaks"
    MALFORMED = "the answer could not be decoded"
    AUTHENTICATION = "the node refused to authenticate the client"
    CANCELLED = "the consumer is closing"


class ClientResponse(NamedTuple):
    """The end of a request: a decoded body, or the reason why there is none."""

    body: Any
    failure: RequestFailure | None
    version: int
    """The version that was sent; -1 if none was."""
    node_id: int
    received_ms: float
    words: str = ""
    """The exact failure, in words for people."""


@dataclass(slots=True)
class UnsentRequest:
    """A request without a connection yet."""

    api: ApiKey
    build: Callable[[int], Message]
    """Makes the body for a version of the API, when the request is sent."""
    to: int | Destination
    """A node id, or a target."""
    then: Callable[[ClientResponse], None]
    """Called exactly once, in a later step of the background side than the one that made the request."""
    timeout_ms: float
    """Counts from the moment in which the manager made it, so it includes the time to connect."""
    versions: tuple[int, int] | None = None
    """The versions that may be used, if not all that this client speaks."""
    is_beside: bool = False
    """Whether it has a connection beside that to the node, where a Fetch may wait for records."""
    is_wanted: Callable[[], bool] = lambda: True
    """Whether it may still be sent; otherwise it fails with CANCELLED while it waits for a connection."""
    made_ms: float = -1.0


class PollResult(NamedTuple):
    """A manager's answer to being polled."""

    requests: Sequence[UnsentRequest]
    wait_ms: float
    """The manager has nothing to do for this long unless it hears something."""


NOTHING: Final = PollResult((), FOREVER)


class RequestManager(Protocol):
    """A maker of requests of one kind."""

    def poll(self, now_ms: float) -> PollResult:
        """Return the requests to send now. Called once on each pass."""
