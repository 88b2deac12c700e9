"""Requests about transactions that wait for what other nodes and shards do.

EndTxn is answered when the transaction is complete: clients then begin the next one at once, instead of
asking again and again. TxnOffsetCommit is decided on the committed catalog of the group's node; if that does
not have the producer's transaction, it may only be late, so the request waits until the catalog is known to
be as new as the request. Both waits are bounded. A client whose transaction is then neither known nor known
to be foreign has to ask again: the codes of a foreign transaction would end its producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from cluster.runtime.pending_replies import PendingReply, Reply
from coordinator.transactions import DECIDED, TransactionsView
from raftlog.env.host import Host, Timer
from records import TransactionValue
from wire.messages.end_txn import EndTxnResponse

if TYPE_CHECKING:
    from cluster.runtime.committed_catalog import CommittedCatalog

COMPLETION_MAX_MS: Final = 1_000.0
"""EndTxn waits at most this long for group shards. The decision is durable, and it is carried out; the next
transaction is answered CONCURRENT_TRANSACTIONS until then, as in Kafka."""

KNOWN_LOOK_MS: Final = 10.0
"""Delay between two checks whether the catalog is new enough: a leader's heartbeats come every 50 ms."""

KNOWN_MAX_MS: Final = 1_000.0
"""Longest wait for a newer catalog."""

WAITING_MAX: Final = 1_000
"""At most this many requests wait for a newer catalog; the clients of others have to ask again."""


class EndReply(PendingReply):
    """The pending reply to an EndTxn that, if it decided the transaction, waits until that is complete."""

    __slots__ = ("_completions", "_transactional_id")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        request: object,
        reply: Reply,
        transactional_id: str,
        completions: Completions,
    ) -> None:
        super().__init__(api_key, api_version, request, reply)
        self._transactional_id = transactional_id
        self._completions = completions

    def answer(self, response: object) -> None:
        passed_on = partial(PendingReply.answer, self, response)
        if self.has_written and isinstance(response, EndTxnResponse) and not response.error_code:
            self._completions.wait(self._transactional_id, passed_on)
        else:
            passed_on()


class Completions:
    """The replies that wait until a transaction is complete. `view` returns the committed transactions."""

    def __init__(self, host: Host, view: Callable[[], TransactionsView]) -> None:
        self._host = host
        self._view = view
        self._waiting: dict[str, tuple[Timer, list[Callable[[], None]]]] = {}

    def wait(self, transactional_id: str, then: Callable[[], None]) -> None:
        """Call `then` once the id's decided transaction is complete, or after `COMPLETION_MAX_MS`."""
        if transactional_id not in self._view().decided:
            then()
            return
        if transactional_id not in self._waiting:
            timer = self._host.call_later(COMPLETION_MAX_MS, self._end, transactional_id)
            self._waiting[transactional_id] = timer, []
        self._waiting[transactional_id][1].append(then)

    def learned(self, changes: Iterable[tuple[str, TransactionValue]]) -> None:
        """Follow committed records of transactional ids."""
        for transactional_id, value in changes:
            if value.state not in DECIDED:
                self._end(transactional_id)

    def end_all(self) -> None:
        """Stop waiting: another node leads, and completes what is decided."""
        for transactional_id in list(self._waiting):
            self._end(transactional_id)

    def _end(self, transactional_id: str) -> None:
        waiting = self._waiting.pop(transactional_id, None)
        if waiting is not None:
            timer, fns = waiting
            timer.cancel()
            for then in fns:
                then()


class KnownWaits:
    """Requests that wait until the committed catalog is as new as they are."""

    def __init__(self, host: Host, committed: CommittedCatalog) -> None:
        self._host = host
        self._committed = committed
        self._num_waiting = 0

    def when_known(self, then: Callable[[], None], unknown: Callable[[], None]) -> None:
        """Call `then` when everything committed by now is known here; `unknown` after `KNOWN_MAX_MS`, or if
        too many requests wait."""
        asked_ms = self._host.monotonic_ms()
        if self._committed.known_ms >= asked_ms:
            then()
        elif self._num_waiting >= WAITING_MAX:
            unknown()
        else:
            self._num_waiting += 1
            self._host.call_later(KNOWN_LOOK_MS, self._look, asked_ms, then, unknown)

    def _look(self, asked_ms: float, then: Callable[[], None], unknown: Callable[[], None]) -> None:
        self._committed.observe_horizon()
        is_known = self._committed.known_ms >= asked_ms
        if not is_known and self._host.monotonic_ms() - asked_ms < KNOWN_MAX_MS:
            self._host.call_later(KNOWN_LOOK_MS, self._look, asked_ms, then, unknown)
            return
        self._num_waiting -= 1
        (then if is_known else unknown)()
