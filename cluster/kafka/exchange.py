"""One request and the reply that it waits for.

An exchange is the place in a connection's queue that a reply must take: Kafka clients match replies by order,
so a reply that is ready early waits here as bytes until those before it have gone.

What must stay true: a reply is given at most once; after the connection is gone it goes nowhere, and nothing
that is held elsewhere (a shard that waits for the disk, a timer) keeps the connection alive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cluster.kafka.counters import KafkaCounters
from cluster.kafka.node_view import FastEntry
from cluster.node_info import ClientInfo
from raftlog.host import Timer
from wire.apis import ApiKey, api_name
from wire.protocol import encode_response

if TYPE_CHECKING:
    from cluster.kafka.connection import Connection
    from cluster.kafka.listener import KafkaListener

LOG = logging.getLogger("quorate.kafka")

NOBODY = ClientInfo()


class Exchange:
    """`body -> bytes -> its place in the queue`. `data` is None until the reply is there."""

    __slots__ = (
        "api_key",
        "api_version",
        "client",
        "connection",
        "correlation_id",
        "data",
        "entry",
        "on_drop",
        "started_ms",
        "tail",
        "timer",
    )

    def __init__(self, connection: Connection, started_ms: float) -> None:
        self.connection: Connection | None = connection
        self.started_ms = started_ms
        self.api_key = -1
        self.api_version = -1
        self.correlation_id = 0
        self.client = NOBODY
        self.data: bytes | None = None
        self.entry: FastEntry | None = None  # taken before the heartbeat was handled, see `connection`
        self.tail = b""  # the heartbeat's bytes after its correlation id
        self.timer: Timer | None = None  # of a reply that waits for time to pass; ended with the connection
        self.on_drop: Callable[[], object] | None = None  # gives back what the wait had taken

    @property
    def listener(self) -> KafkaListener | None:
        """None once the connection is gone."""
        return None if self.connection is None else self.connection.listener

    def encode(self, body: Any) -> bytes:
        """The whole reply frame, for a reply that is sent later with `send`."""
        return encode_response(self.api_key, self.api_version, self.correlation_id, body)

    def reply(self, body: object) -> None:
        """Answers with a response dataclass of this API."""
        connection = self.connection
        if connection is None:
            return
        try:
            data = self.encode(body)
        except Exception:  # ours, not the client's: say so, and do not leave it waiting
            LOG.exception(
                "the reply to %s version %d cannot be encoded", api_name(self.api_key), self.api_version
            )
            connection.refuse("failed", "the node failed to answer; its log says why")
            return
        count_errors(connection.listener.counters, self.api_key, body)
        if self.entry is not None:
            connection.remember(self, body, data)
        self.send(data)

    def be_patient(self, end: Callable[[], None]) -> None:
        """Waits of its own accord, until `end` is called because a request behind it cannot (`waiting`)."""
        if self.connection is not None:
            self.connection.patient[self] = end

    def send(self, data: bytes) -> None:
        """Answers with a whole frame."""
        connection = self.connection
        if connection is None:
            return
        if self.data is not None:
            raise RuntimeError(f"API {self.api_key} was answered twice")
        if connection.patient:
            connection.patient.pop(self, None)
        self.data = data
        connection.answered(self)

    def drop(self) -> None:
        """The connection is gone: whoever still answers talks to nobody."""
        self.connection = None
        self.entry = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.on_drop is not None:
            self.on_drop()
            self.on_drop = None


_NESTED_ERRORS: dict[int, tuple[str, ...]] = {
    ApiKey.PRODUCE: ("responses", "partition_responses"),
    ApiKey.FETCH: ("responses", "partitions"),
    ApiKey.LIST_OFFSETS: ("topics", "partitions"),
    ApiKey.METADATA: ("topics",),
    ApiKey.OFFSET_COMMIT: ("topics", "partitions"),
    ApiKey.OFFSET_FETCH: ("groups",),
    ApiKey.FIND_COORDINATOR: ("coordinators",),
    ApiKey.DESCRIBE_GROUPS: ("groups",),
    ApiKey.CREATE_TOPICS: ("topics",),
    ApiKey.DELETE_TOPICS: ("responses",),
    ApiKey.CREATE_PARTITIONS: ("results",),
    ApiKey.DESCRIBE_CONFIGS: ("results",),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("responses",),
    ApiKey.DELETE_GROUPS: ("results",),
    ApiKey.OFFSET_DELETE: ("topics", "partitions"),
    ApiKey.LEAVE_GROUP: ("members",),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("groups",),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ("topics",),
}
"""Where a response has its error codes, besides at the top."""


def count_errors(counters: KafkaCounters, api_key: int, body: Any) -> None:
    """Counts every error code of a response, one per group, topic or partition that has one."""
    code = getattr(body, "error_code", 0)
    if code:
        counters.errors[api_key, code] += 1
    path = _NESTED_ERRORS.get(api_key)
    if path is None:
        return
    items = getattr(body, path[0], None) or ()
    for name in path[1:]:
        items = [inner for item in items for inner in getattr(item, name, None) or ()]
    for item in items:
        code = getattr(item, "error_code", 0)
        if code:
            counters.errors[api_key, code] += 1
