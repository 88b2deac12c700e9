"""One request and the reply that it waits for.

An exchange is a reply's place in the queue of a connection: Kafka clients match replies by order, so a reply
that is ready early waits here as bytes until those before it have gone.

Invariants: a reply is given at most once; after the connection is gone it is dropped, and nothing
held elsewhere (by a shard that waits for the disk, by a timer) keeps the connection alive. An answer may have
a hundred thousand elements, so it is made and encoded in slices (`runtime.slices`), and its sources must not
change meanwhile: whoever answers collects them first, and passes on nothing that is changed later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, Protocol

from cluster.kafka.counters import KafkaCounters
from cluster.kafka.node_view import HeartbeatEntry
from cluster.node_info import ClientInfo
from cluster.runtime.slices import Slices
from raftlog.env.host import Timer
from wire.apis import HEARTBEATS, ApiKey, api_name
from wire.encoding import PIECE_BYTES
from wire.errors import ErrorCode
from wire.protocol import encode_response, encode_response_in_pieces
from wire.refusals import refuse

LOG = logging.getLogger("quorate.kafka")

NOBODY = ClientInfo()

FAILED: Final = "the node failed to handle the request because of an internal error; its log has the details"
ELEMENTS_AT_ONCE: Final = 1_000
"""Elements of an answer that are made or checked in one step: about a millisecond."""

Answer = Generator[None, None, object]
"""Makes the body of a response, which it returns, in steps of about `ELEMENTS_AT_ONCE`."""


class ReplyFault(Protocol):
    """The effect of a fault on a reply (`injecting`)."""

    def changed(self, body: Any) -> Any: ...
    def holds(self, exchange: Exchange, data: bytes) -> bool: ...


class Requester(Protocol):
    """The connection that a request came by, as its exchange and the handlers of requests see it."""

    slices: Slices
    counters: KafkaCounters
    deferred: dict[Exchange, Callable[[], None]]
    peer: str

    def client_named(self, client_id: str | None) -> ClientInfo: ...
    def uses(self, group_id: str) -> None: ...
    def queue(self, exchange: Exchange) -> None: ...
    def serve_alone(self, exchange: Exchange) -> None: ...
    def remember(self, exchange: Exchange, body: Any, data: bytes) -> None: ...
    def answered(self, exchange: Exchange) -> None: ...
    def may_wait_with(self, num_bytes: int) -> bool: ...
    def waits_with(self, exchange: Exchange, num_bytes: int) -> None: ...
    def fall_silent(self, why: str) -> None: ...
    def refuse(self, why: str, message: str, *, at_once: bool = False) -> None: ...


class Exchange:
    """`body -> bytes -> its place in the queue`. `data` is None until the reply is ready."""

    __slots__ = (
        "api_key",
        "api_version",
        "asked_bytes",
        "client",
        "connection",
        "correlation_id",
        "data",
        "entry",
        "fault",
        "is_answered",
        "num_requests",
        "on_drop",
        "started_ms",
        "tail",
        "timer",
    )

    def __init__(self, connection: Requester, started_ms: float) -> None:
        self.connection: Requester | None = connection
        self.started_ms = started_ms
        self.api_key = -1
        self.api_version = -1
        self.num_requests = 1
        self.asked_bytes = 0  # of its frame, until it is answered
        self.correlation_id = 0
        self.client = NOBODY
        self.data: bytes | None = None
        self.is_answered = False  # or is being answered, if `data` is None
        self.entry: HeartbeatEntry | None = None  # taken before the heartbeat was handled, see `connection`
        self.fault: ReplyFault | None = None
        self.tail = b""  # the heartbeat's bytes after its correlation id
        self.timer: Timer | None = None  # of a reply that waits for time to pass; ends with the connection
        self.on_drop: Callable[[], object] | None = None  # releases what the wait occupies

    def reply(self, body: object) -> None:
        """Answer with a response dataclass of this API, which must not change any more."""
        if (connection := self._begin()) is None:
            return
        if self.fault is not None:
            body = self.fault.changed(body)
        if not self.is_short(body) or not connection.slices.at_once(self._encode, body):
            self._make(connection, self._encoding(body, self.send))

    def reply_in_slices(self, answer: Answer, deliver: Callable[[bytes], None] | None = None) -> None:
        """Answer with the response that `answer` makes, within this turn if that is short.

        With `deliver`, that function gets the whole frame and calls `send` with it later.
        """
        if (connection := self._begin()) is not None:
            self._make(connection, self._making(answer, deliver or self.send))

    def work_in_slices(self, work: Iterator[None]) -> None:
        """Do what precedes the answer, within this turn if that is short."""
        if self.connection is not None:
            self._make(self.connection, self._working(work))

    def _working(self, work: Iterator[None]) -> Iterator[None]:
        try:
            yield from work
        except Exception:
            self._failed()

    def _begin(self) -> Requester | None:
        """Note that the answer has begun; return the connection, or None if it is gone."""
        if self.connection is None:
            return None
        if self.is_answered:
            raise RuntimeError(f"API {self.api_key} got a second response")
        self.is_answered = True
        return self.connection

    def is_short(self, body: Any) -> bool:
        """Whether the response is certainly short: no assignment, or no longer than its short request."""
        if self.api_key in HEARTBEATS:
            return self.api_key == ApiKey.HEARTBEAT or body.assignment is None
        return self.api_key == ApiKey.OFFSET_COMMIT and self.asked_bytes <= PIECE_BYTES

    def _make(self, connection: Requester, work: Iterator[None]) -> None:
        if not connection.slices.run(work, self._is_wanted) and self.connection is not None:
            self.connection.serve_alone(self)  # one answer in the making for each connection

    def _is_wanted(self) -> bool:
        return self.connection is not None

    def _making(self, answer: Answer, deliver: Callable[[bytes], None]) -> Iterator[None]:
        try:
            body = yield from answer
            if self.fault is not None:
                body = self.fault.changed(body)
        except Exception:
            self._failed()
        else:
            yield from self._encoding(body, deliver)

    def _encoding(self, body: Any, deliver: Callable[[bytes], None]) -> Iterator[None]:
        try:
            data = yield from encode_response_in_pieces(
                self.api_key, self.api_version, self.correlation_id, body
            )
            if (connection := self.connection) is not None:
                yield from count_errors(connection.counters, self.api_key, body)
            self._encoded(body, data, deliver)
        except Exception:
            self._failed()

    def _encode(self, body: Any) -> None:
        """Encode a short response in a single call, and send it."""
        try:
            data = encode_response(self.api_key, self.api_version, self.correlation_id, body)
            self._count_errors(body)
            self._encoded(body, data, self.send)
        except Exception:
            self._failed()

    def _count_errors(self, body: Any) -> None:
        if (connection := self.connection) is not None:
            for _ in count_errors(connection.counters, self.api_key, body):
                pass

    def _encoded(self, body: Any, data: bytes, deliver: Callable[[bytes], None]) -> None:
        if self.entry is not None and (connection := self.connection) is not None:
            connection.remember(self, body, data)
        deliver(data)

    def _failed(self) -> None:
        """Log an exception of our own, and do not leave the client waiting."""
        LOG.exception(
            "the response to %s version %d could not be sent", api_name(self.api_key), self.api_version
        )
        if (connection := self.connection) is not None:
            connection.refuse(
                "failed", "the node failed to respond because of an internal error; its log has the details"
            )

    def fail(self, body: Any, code: ErrorCode, message: str = FAILED) -> None:
        """Answer the request with an error in the API's own shape, unless there was an answer already."""
        if self.connection is not None and not self.is_answered:
            self.entry = None
            self.reply(refuse(self.api_key, self.api_version, body, code, message))

    def be_patient(self, end: Callable[[], None]) -> None:
        """Wait voluntarily, until `end` is called because a later request must not be delayed (`waiting`)."""
        if self.connection is not None:
            self.connection.deferred[self] = end

    def send(self, data: bytes) -> None:
        """Answer with a whole frame."""
        connection = self.connection
        if connection is None:
            return
        if self.data is not None:
            raise RuntimeError(f"API {self.api_key} got a second response")
        self.is_answered = True
        if connection.deferred:
            connection.deferred.pop(self, None)
        if self.fault is not None and self.fault.holds(self, data):
            return
        self.data = data
        connection.answered(self)

    def drop(self) -> None:
        """Detach from a connection that is gone: whatever is answered later is dropped."""
        self.connection = None
        self.entry = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.on_drop is not None:
            self.on_drop()
            self.on_drop = None


_NESTED_ERRORS: dict[int, tuple[str, str]] = {
    ApiKey.PRODUCE: ("responses", "partition_responses"),
    ApiKey.FETCH: ("responses", "partitions"),
    ApiKey.LIST_OFFSETS: ("topics", "partitions"),
    ApiKey.METADATA: ("topics", ""),
    ApiKey.OFFSET_COMMIT: ("topics", "partitions"),
    ApiKey.OFFSET_FETCH: ("groups", ""),
    ApiKey.FIND_COORDINATOR: ("coordinators", ""),
    ApiKey.DESCRIBE_GROUPS: ("groups", ""),
    ApiKey.CREATE_TOPICS: ("topics", ""),
    ApiKey.DELETE_TOPICS: ("responses", ""),
    ApiKey.CREATE_PARTITIONS: ("results", ""),
    ApiKey.DESCRIBE_CONFIGS: ("results", ""),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("responses", ""),
    ApiKey.DELETE_GROUPS: ("results", ""),
    ApiKey.OFFSET_DELETE: ("topics", "partitions"),
    ApiKey.LEAVE_GROUP: ("members", ""),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("groups", ""),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ("topics", ""),
    ApiKey.DELETE_RECORDS: ("topics", "partitions"),
}
"""Fields whose items, or the items within those, have error codes, besides a response's own code at the
top."""


def count_errors(counters: KafkaCounters, api_key: int, body: Any) -> Iterator[None]:
    """Count every error code of a response, one per group, topic or partition that has one."""
    code = getattr(body, "error_code", 0)
    if code:
        counters.errors[api_key, code] += 1
    path = _NESTED_ERRORS.get(api_key)
    if path is None:
        return
    outer, inner = path
    number = 0
    for whole in getattr(body, outer, None) or ():
        for item in (getattr(whole, inner, None) or ()) if inner else (whole,):
            if item.error_code:
                counters.errors[api_key, item.error_code] += 1
            number += 1
            if not number % ELEMENTS_AT_ONCE:
                yield
