"""Requests that wait of their own accord: for a leader, or (a fetch) for time to pass.

A client that asks for a coordinator in the middle of an election is better served by an answer half a second
later than by an error, after which it waits longer than that by itself. But replies leave a connection in
the order of its requests, so whatever waits here holds up what comes behind it. Hence two rules: no wait is
longer than its bound, and a request that cannot do with waiting ends the waits before it (`hurry`).

What must stay true: an election costs one timer and one bounded list, however many clients ask.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftlog.host import Timer
from wire.apis import ApiKey

if TYPE_CHECKING:
    from cluster.kafka.connection import Connection
    from cluster.kafka.exchange import Exchange
    from cluster.kafka.listener import KafkaListener

LOG = logging.getLogger("quorate.kafka")

LEADER_WAIT_MS = 1_000
"""Twice what a failover takes. Clients time out and ask elsewhere only after seconds."""

LEADER_POLL_MS = 10
"""How often the nodes' leaders are looked at while somebody waits: small beside an election."""

LEADER_WAITS_MAX = 8_192
"""What all waiting requests together may ask about, each counting one and the groups or topics that it names:
a request with one group for each connection by default. Beyond it the answer, an error that clients try
again on, comes at once, so that no election fills the memory."""

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
"""Requests that may stand behind one that waits for a leader. Heartbeats and commits may not: their members'
time is running."""


@dataclass(frozen=True, slots=True)
class _Wait:
    deadline_ms: float
    shards: frozenset[int]
    weight: int
    then: Callable[[], None]


class LeaderWaits:
    """The requests of one listener that wait until every shard that they ask about has a leader."""

    def __init__(self, listener: KafkaListener) -> None:
        self._listener = listener
        self._waits: dict[Exchange, _Wait] = {}
        self._weight = 0
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._waits)

    def when_led(
        self, exchange: Exchange, shards: Iterable[int], num_named: int, then: Callable[[], None]
    ) -> None:
        """Runs `then` when all of `shards` have leaders, at once if they do, after LEADER_WAIT_MS at most.

        `num_named` is how many groups or topics the request names: what it costs to keep it.
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
            self._timer = self._listener.host.call_later(LEADER_POLL_MS, self._look)

    def _are_led(self, shards: frozenset[int]) -> bool:
        leader_of = self._listener.node.leader_of
        return all(leader_of(shard) is not None for shard in shards)

    def _look(self) -> None:
        self._timer = None
        now_ms = self._listener.host.monotonic_ms()
        are_led: dict[frozenset[int], bool] = {}
        for exchange, wait in list(self._waits.items()):
            if wait.shards not in are_led:
                are_led[wait.shards] = self._are_led(wait.shards)
            if are_led[wait.shards] or now_ms >= wait.deadline_ms:
                self._end(exchange)
        if self._waits and self._timer is None:
            self._timer = self._listener.host.call_later(LEADER_POLL_MS, self._look)

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
            connection.refuse("failed", "the node failed to answer; its log says why")

    def _forget(self, exchange: Exchange) -> _Wait | None:
        wait = self._waits.pop(exchange, None)
        if wait is not None:
            self._weight -= wait.weight
        return wait


def hurry(connection: Connection, api_key: int) -> None:
    """Ends the waits that a request of this API must not stand behind.

    A fetch that waits for messages that never come holds up nobody but another fetch: two on one connection
    would else chase each other in a busy loop.
    """
    if api_key == ApiKey.FETCH:
        return
    if api_key in PATIENT_APIS:
        end_fetches(connection)
        return
    for end in list(connection.patient.values()):
        end()


def end_fetches(connection: Connection) -> None:
    """Empty fetches of this connection do not wait any longer."""
    for exchange, end in list(connection.patient.items()):
        if exchange.api_key == ApiKey.FETCH:
            end()
