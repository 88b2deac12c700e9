"""The duties of a node towards the metadata shard: the committed catalog, replies that wait, transactions.

The answer to a change of topics or configs waits, for a second at most, until every node in contact has the
change, so that a client finds a new topic on whichever node it asks next. So does that to AddOffsetsToTxn,
after which the client asks the group's node. CreateTopics waits until its names are free (`committed_catalog`
says why), and EndTxn until the transaction is complete (`transaction_waits`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from cluster.node_info import ClientInfo
from cluster.runtime.answers import Unavailable
from cluster.runtime.committed_catalog import CommittedCatalog
from cluster.runtime.due_work import DueWork
from cluster.runtime.pending_replies import PendingReply, ReadBarrier, Reply
from cluster.runtime.shard_runtime import ShardRuntime
from cluster.runtime.transaction_waits import Completions, EndReply, KnownWaits
from coordinator.api import Context, Decision, Job
from coordinator.catalog.shard import CatalogShard
from coordinator.transactions import DECIDED
from raftlog.env.obstacles import Obstacle
from records import (
    Cause,
    FormatLevelKey,
    FormatLevelValue,
    LeadershipKey,
    LeadershipValue,
    RawRecord,
    Record,
    TransactionValue,
    Trigger,
    encode_record,
)
from wire.apis import ApiKey
from wire.messages.create_topics import CreateTopicsRequest
from wire.messages.end_txn import EndTxnRequest

SPREAD_MAX_MS: Final = 1_000
"""An admin reply waits at most this long for nodes that are in contact but slow."""

NAME_LOOK_MS: Final = 20.0
"""Delay between two checks whether a topic's name is free; other nodes mostly learn of a deletion sooner."""

NAMES_WAITING_MAX: Final = 1_000
"""At most this many CreateTopics requests wait for a name."""


OWN_NODE_SUFFICES: Final = frozenset({ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN})
"""Changes after which clients ask this node again, and no other."""


class SpreadReply(PendingReply):
    """A pending reply that, if it was held for a change, waits for the other nodes once that is committed."""

    __slots__ = ("_duties",)

    def __init__(
        self, api_key: int, api_version: int, request: object, reply: Reply, duties: CatalogDuties
    ) -> None:
        super().__init__(api_key, api_version, request, reply)
        self._duties = duties

    def answer(self, response: object) -> None:
        if self.has_written and self.index:
            self._duties.spread(self.index, partial(PendingReply.answer, self), response)
        else:
            PendingReply.answer(self, response)


class CatalogDuties:
    """A node's work for the metadata shard beside deciding its requests (`ShardDuties`)."""

    def __init__(self, shard: ShardRuntime[CatalogShard, Any]) -> None:
        self._shard = shard
        self._host = shard.host
        self.committed = self.listener = CommittedCatalog(shard)
        self._spreading: dict[int, tuple[Reply, object]] = {}
        self._num_spread = 0
        self._num_waiting_for_names = 0
        self._due_work = DueWork(shard, _no_jobs)
        self._completions = Completions(self._host, lambda: self.committed.view.transactions)
        self.known_waits = KnownWaits(self._host, self.committed)

    # Nothing but its log keeps a node from leading the metadata shard, or a request from being decided.

    def catalog_version(self) -> int:
        return self._shard.machine.view.version

    def may_serve(self) -> bool:
        return True

    def lacks(self, now_ms: float) -> Obstacle:
        return Obstacle.NONE

    def report_lack(self) -> None:
        """Log nothing: nothing is ever lacking."""

    def begin(self) -> Iterator[None]:
        """Yield the steps that start the timers of all transactional ids."""
        shard = self._shard
        yield from shard.machine.becoming_ready(self._context)
        for number, decided in shard.node.followed_decisions():
            shard.machine.decisions_followed(number, decided)
        self._due_work.arm()

    def refuses(self, api_key: int, api_version: int, now_ms: float) -> Unavailable | None:
        return None

    def _context(self) -> Context:
        return self._shard.requests.context(self._host.monotonic_ms())

    def appended(self, index: int, records: list[RawRecord]) -> None:
        self.committed.applied(index, records)

    def decided(self, pending: PendingReply, decision: Decision, ctx: Context) -> None:
        self._due_work.arm()

    def shift_deadlines(self, gap_ms: float) -> None:
        """Move the deadlines after the loop stood still for `gap_ms`."""
        self._shard.machine.timers.shift(gap_ms)

    def advance(self, ms: int) -> None:
        """Bring the timeouts of transactions nearer, for tests of applications."""
        self._shard.machine.timers.shift(-ms)
        self._due_work.arm()

    # Transactions.

    def on_transactions_changed(self, changes: Sequence[tuple[str, TransactionValue]]) -> None:
        """Answer requests that waited for a completion, and send decisions to the other nodes at once."""
        shard = self._shard
        self._completions.learned(changes)
        if shard.is_ready and not shard.is_alone and any(value.state in DECIDED for _, value in changes):
            shard.replica.leadership.when_everywhere(shard.commit_index, SPREAD_MAX_MS, _nothing)

    def on_decisions_followed(self, number: int, decided: int) -> None:
        """Complete the transactions for which only this group shard was missing."""
        if self._shard.is_ready:
            self._shard.machine.decisions_followed(number, decided)
            self._due_work.arm()

    # Requests.

    def submit(
        self, api_key: int, api_version: int, request: object, client: ClientInfo, reply: Reply
    ) -> None:
        """Submit a request, CreateTopics once its names are free; `reply` is called exactly once."""
        shard = self._shard
        pending: PendingReply
        if isinstance(request, EndTxnRequest):
            pending = EndReply(
                api_key, api_version, request, reply, request.transactional_id, self._completions
            )
        elif shard.is_alone or api_key in OWN_NODE_SUFFICES:
            pending = PendingReply(api_key, api_version, request, reply)
        else:
            pending = SpreadReply(api_key, api_version, request, reply, self)
        if not isinstance(request, CreateTopicsRequest) or not shard.is_ready or self._are_free(request):
            shard.requests.submit(pending, client)
        elif self._num_waiting_for_names >= NAMES_WAITING_MAX:
            pending.refuse(Unavailable.OVERLOADED)
        else:
            self._num_waiting_for_names += 1
            self._host.call_later(
                NAME_LOOK_MS, self._submit_again, api_key, api_version, request, client, reply
            )

    def _submit_again(self, *asked: Any) -> None:
        self._num_waiting_for_names -= 1
        self.submit(*asked)

    def _are_free(self, request: CreateTopicsRequest) -> bool:
        """Whether no other node still takes one of the names for a deleted topic.

        Each node either knows of the deletion or has a catalog so old that it refuses requests by name.
        """
        known = self.committed.known_everywhere()
        return all(self._shard.machine.view.deleted_at(topic.name) <= known for topic in request.topics)

    # Replies that wait for the other nodes.

    def spread(self, index: int, reply: Reply, response: object) -> None:
        """Pass a reply on: at once, or if it reports a committed change, when the other nodes have it."""
        if index > self._shard.commit_index or not self._shard.is_ready:
            reply(response)
            return

        self._num_spread += 1
        self._spreading[self._num_spread] = reply, response
        self._shard.replica.leadership.when_everywhere(
            index, SPREAD_MAX_MS, partial(self._has_spread, self._num_spread)
        )

    def _has_spread(self, number: int) -> None:
        """Release a reply. The log and the end of leadership both call this; the first call counts."""
        if (waiting := self._spreading.pop(number, None)) is not None:
            reply, response = waiting
            reply(response)

    def resigned(self) -> None:
        """End the timers, and release replies that only wait for other nodes or shards: their changes are
        committed, whoever leads now."""
        self._due_work.cancel()
        self._shard.free_incrementally(self._shard.machine.timers.clear())
        self._completions.end_all()
        for number in list(self._spreading):
            self._has_spread(number)

    # Changes that operators make.

    def raise_format_level(self, level: int, done: Callable[[str | None], None]) -> None:
        """Let all nodes write records of `level` from now on; `done` gets None, or the reason why not."""
        record = Record(FormatLevelKey(), FormatLevelValue(level=level))
        self._write(record, Cause(trigger=Trigger.FORMAT_RAISED), done)

    def ask_leadership(self, asked: LeadershipValue, detail: str, done: Callable[[str | None], None]) -> None:
        """Let all nodes follow `asked`; `done` gets None, or the reason why not."""
        if asked == self._shard.machine.view.leadership:
            done(None)
            return
        cause = Cause(trigger=Trigger.LEADERSHIP_ASKED, detail=detail)
        self._write(Record(LeadershipKey(), asked), cause, done)

    def _write(self, record: Record, cause: Cause, done: Callable[[str | None], None]) -> None:
        """Write a record; `done` gets None once all nodes in contact have it, or the reason why not."""
        shard, requests, now_ms = self._shard, self._shard.requests, self._host.monotonic_ms()
        requests.observe_room(now_ms)
        if (why := requests.why_not()) is not None:
            done(why.value)
            return
        ctx = requests.context(now_ms)
        records = [encode_record(record)]
        shard.machine.apply_all(records, ctx.next_index)
        requests.append(Decision(cause=cause, records=records), ctx)

        def told(why: object) -> None:
            done(why.value if isinstance(why, Unavailable) else None)

        told_when_spread = told if shard.is_alone else partial(self.spread, ctx.next_index, told)
        shard.hold(now_ms, ReadBarrier(told_when_spread), None, has_written=True)


def _no_jobs(jobs: list[Job]) -> None:
    raise AssertionError("the metadata shard has no jobs")


def _nothing() -> None:
    """Do nothing when the other nodes have the commit."""


CatalogRuntime = ShardRuntime[CatalogShard, CatalogDuties]
