"""Requests that wait voluntarily: for a leader, or (a fetch) for time to pass.

A client that looks for a coordinator in the middle of an election is better served by an answer half a second
later than by an error, after which it would wait even longer. But replies leave a connection in the order of
its requests, so whatever waits here delays later requests. Hence two rules: no wait is longer than its bound,
and a request that cannot wait ends the waits before it (`cut_waits_short`).

Invariants: an election costs one timer and one bounded list, however many clients ask.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cluster.kafka.exchange import Exchange, Requester
from cluster.kafka.node_view import KafkaNode
from raftlog.env.host import Host, Timer
from wire.apis import ApiKey

LOG = logging.getLogger("quorate.kafka")

LEADER_WAIT_MS = 1_000
"""Longest wait for a leader: twice what a failover takes. Clients time out only after seconds."""

LEADER_POLL_MS = 10
"""Milliseconds between two checks for leaders while requests wait: little compared with an election."""

LEADER_WAITS_MAX = 8_192
"""Bound on the waiting requests, where each counts one plus the groups or topics that it names; enough for a
request with one group on each connection by default. Beyond it the answer, an error that clients retry, comes
at once, so that an election cannot fill the memory."""

PATIENT_APIS = frozenset(
    (
        ApiKey.API_VERSIONS,
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.LIST_OFFSETS,
        ApiKey.FETCH,
        ApiKey.PRODUCE,
    )
)
"""Requests that may queue after one that waits for a leader. Heartbeats and commits may not: the sessions of
their members are running out."""


@dataclass(frozen=True, slots=True)
class _Wait:
    deadline_ms: float
    shards: frozenset[int]
    weight: int
    then: Callable[[], None]


class LeaderWaits:
    """The requests of one listener that wait until every shard that they need has a leader."""

    def __init__(self, host: Host, node: KafkaNode) -> None:
        self._host = host
        self._node = node
        self._waits: dict[Exchange, _Wait] = {}
        self._weight = 0
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._waits)

    def when_led(
        self, exchange: Exchange, shards: Iterable[int], num_named: int, then: Callable[[], None]
    ) -> None:
        """Run `then` when all of `shards` have leaders: at once if they do, and after LEADER_WAIT_MS at most.

        `num_named` is how many groups or topics the request names, which is the cost of keeping it.
        """
        asked, weight = frozenset(shards), 1 + num_named
        if self._are_led(asked) or self._weight + weight > LEADER_WAITS_MAX:
            then()
            return
        self._weight += weight
        self._waits[exchange] = _Wait(exchange.started_ms + LEADER_WAIT_MS, asked, weight, then)
        exchange.on_drop = functools.partial(self._forget, exchange)
        exchange.be_patient(lambda: self._end(exchange))
        if self._timer is None:
            self._timer = self._host.call_later(LEADER_POLL_MS, self._look)

    def _are_led(self, shards: frozenset[int]) -> bool:
        """Whether all have leaders, and this node has met the others: a client keeps what it is told."""
        leader_of = self._node.leader_of
        return self._node.has_met_all and all(leader_of(shard) is not None for shard in shards)

    def _look(self) -> None:
        self._timer = None
        now_ms = self._host.monotonic_ms()
        are_led: dict[frozenset[int], bool] = {}
        for exchange, wait in list(self._waits.items()):
            if wait.shards not in are_led:
                are_led[wait.shards] = self._are_led(wait.shards)
            if are_led[wait.shards] or now_ms >= wait.deadline_ms:
                self._end(exchange)
        if self._waits and self._timer is None:
            self._timer = self._host.call_later(LEADER_POLL_MS, self._look)

    def _end(self, exchange: Exchange) -> None:
        wait = self._forget(exchange)
        if wait is None:
            return
        exchange.on_drop = None
        connection = exchange.connection
        assert connection is not None
        try:
            wait.then()
        except Exception:
            LOG.exception("a request that waited for a leader failed")
            connection.refuse(
                "failed", "the node failed to respond because of an internal error; its log has the details"
            )

    def _forget(self, exchange: Exchange) -> _Wait | None:
        wait = self._waits.pop(exchange, None)
        if wait is not None:
            self._weight -= wait.weight
        return wait


def cut_waits_short(connection: Requester, api_key: int) -> None:
    """End the waits that must not delay a request of this API.

    A fetch ends no wait, not even that of an earlier fetch: two on one connection would otherwise end each
    other in a busy loop.
    """
    if api_key == ApiKey.FETCH:
        return
    if api_key in PATIENT_APIS:
        end_fetches(connection)
        return
    for end in list(connection.deferred.values()):
        end()


def end_fetches(connection: Requester) -> None:
    """End the waits of this connection's empty fetches."""
    for exchange, end in list(connection.deferred.items()):
        if exchange.api_key == ApiKey.FETCH:
            end()
