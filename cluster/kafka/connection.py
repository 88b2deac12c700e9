"""One client's connection: frames in, replies out in the order of their requests, everything bounded.

A read may hold many frames. They are served in shares of the turns of the loop (`runtime.slices`), so that
clients that pipeline thousands of requests, however many there are, do not delay the others. The replies of
one turn leave in one write.

Invariants:

- Replies leave in the order of the requests, whenever they become ready (`reply_queue`).
- Memory is bounded: every byte kept for a connection counts towards its bound and the listener's. These are
  bytes read and not served (`unserved`, at most one read's worth), what `reply_queue` keeps, replies
  that the client does not read, and cached heartbeats. At the first bound the connection is no longer read;
  at the last it is closed.
- Requests after one that may be decided in several parts, or whose answer is made in slices, wait until that
  is answered (`serve_alone`): a later commit must not overtake the rest of an earlier one, and a connection
  has only one long answer in the making.
- A connection with frames to serve is either in one lane of the slices, or blocked until a reply unblocks it;
  until then it is not read.
- After a planned hand-over of a shard that it used (`drain`) a connection takes no more requests, delivers
  the outstanding replies, and closes, so that its client looks for the new coordinator at once.
- An error while the bytes of a connection are read or its replies written ends that connection and no other.
- The fast path (a heartbeat equal to an earlier one after its correlation id) repeats the answer of the slow
  path while the coordinator's entry, taken *before* the slow path ran, is still valid. So nothing changed in
  between, and the cached reply, itself sent only once it was durable, reports committed state. While a fault
  is set (`injecting`), nothing is cached, so every heartbeat can meet it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from cluster.kafka import dispatch
from cluster.kafka.commit_runs import commits_at, serve_commits
from cluster.kafka.connection_table import ConnectionTable
from cluster.kafka.context import ListenerContext
from cluster.kafka.exchange import Exchange
from cluster.kafka.reply_queue import ReplyQueue
from cluster.kafka.steady import CORRELATION_END, TAIL_BEGIN, FastReplies, FastReply
from cluster.kafka.unserved import UnservedFrames
from cluster.kafka.waiting import cut_waits_short
from cluster.kafka.written import LONG_BYTES, WrittenReplies
from cluster.node_info import ClientInfo
from cluster.runtime.slices import MORE, SOON
from raftlog.env.errors import in_one_line
from raftlog.env.host import Stream
from records import shard_of
from wire.apis import ApiKey
from wire.errors import MalformedFrame

P = ParamSpec("P")

LITTLE_BYTES = 16_384
"""A client that sends more than this at once has much more work for the node than one share, and waits in the
lane `more`. Four commits of a hundred partitions each are less."""

COUNTED_BYTES_MIN = 4096
"""A connection that keeps less counts as keeping nothing: its own objects and buffers take as much."""

LINGER_MS = 5_000
"""Milliseconds for a closed connection to deliver what was written before it is aborted."""

FIRST_BYTES = 4
"""Bytes by which other protocols are recognised: as many as the length of a frame has."""


def _own_end(call: Callable[Concatenate[Connection, P], None]) -> Callable[Concatenate[Connection, P], None]:
    """Decorate a call that concerns only this connection: an exception in it ends the connection."""

    @functools.wraps(call)
    def called(self: Connection, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            call(self, *args, **kwargs)
        except Exception as error:
            self.failed(error)

    return called


class Connection:
    """An `asyncio.Protocol` in shape; see `raftlog.env.host.StreamHandler`."""

    __slots__ = (
        "_context",
        "_draining",
        "_fast",
        "_first_bytes",
        "_flush_due",
        "_is_new",
        "_is_queued",
        "_last_group",
        "_num_shards",
        "_pause_bytes",
        "_reading",
        "_ready",
        "_replies",
        "_table",
        "_transport",
        "_unanswered",
        "_unread",
        "_unserved",
        "_written",
        "active_ms",
        "client",
        "closed",
        "counters",
        "deferred",
        "kept_bytes",
        "peer",
        "shards_used",
        "slices",
    )

    def __init__(self, context: ListenerContext, table: ConnectionTable[Connection]) -> None:
        settings = context.settings
        self._context = context
        self.counters = context.counters
        self.slices = context.slices
        self._table = table
        self.peer = "?"
        self.client = ClientInfo()
        self.active_ms = 0.0
        self.kept_bytes = 0  # as last reported to the listener
        self.closed = False
        self.deferred: dict[Exchange, Callable[[], None]] = {}  # waiting voluntarily, and how to end it
        self.shards_used = 0  # a bit for each shard of a group that it named
        self._last_group: str | None = None
        self._num_shards = settings.cluster_shards
        self._draining = ""  # why it closes once everything is answered
        self._transport: Stream
        self._pause_bytes = settings.connection_buffered_pause_bytes
        self._unserved = UnservedFrames(context.frame_bytes_max)
        self._replies = ReplyQueue(settings.connection_requests_max, self._pause_bytes)
        self._unanswered = self._replies.unanswered  # its own deque: looked at for every request
        self._ready: list[bytes] = []  # replies for the next write
        self._written: WrittenReplies | None = None  # if there are long ones
        self._fast = FastReplies()
        self._is_queued = False  # in a lane of the slices
        self._flush_due = False
        self._reading = True
        self._unread = False  # the client leaves more than the pause bound unread
        self._first_bytes = b""  # until the first whole frame: to recognise other protocols
        self._is_new = True

    # Called by the host.

    @_own_end
    def connection_made(self, transport: Stream) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if peer else "?"
        self.peer = f"{address}:{peer[1]}" if peer else "?"
        self.client = ClientInfo(host=f"/{address}")
        self.active_ms = self._context.host.monotonic_ms()
        transport.set_write_buffer_limits(high=self._pause_bytes, low=self._pause_bytes // 2)
        if not self._table.opened(self):
            self.closed = True
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        try:
            self._let_go()
        except Exception as error:  # otherwise the listener would count it for ever
            self._context.host.fatal(f"closing the connection of {self.peer} failed: {in_one_line(error)}")

    def _let_go(self) -> None:
        for exchange in self._unanswered:
            self._context.long_reads.pop(exchange, None)
            exchange.drop()
        self._replies.clear()
        self._ready.clear()
        self._unserved.drop()
        self._written = None
        self._fast.clear()
        self.deferred.clear()
        self._table.lost(self)

    def eof_received(self) -> bool | None:
        return None

    @_own_end
    def pause_writing(self) -> None:
        self._unread = True

    @_own_end
    def resume_writing(self) -> None:
        self._unread = False
        self._serve_soon()

    def data_received(self, data: bytes) -> None:
        if self.closed or self._draining:
            return
        try:
            self.counters.bytes_received += len(data)
            fast = self._fast
            hit = fast.by_tail.get(data[TAIL_BEGIN:]) if len(data) <= fast.frame_bytes_max else None
            if hit is not None and data.startswith(hit.frame_head) and self._is_at_rest():
                if hit.entry.is_valid():
                    self._answer_alone(hit, data)
                    return
                self._fast.forget(data[TAIL_BEGIN:])
            if self._is_new:
                self._first_bytes = (self._first_bytes + data)[:FIRST_BYTES]
            unserved = self._unserved
            if self._is_queued:  # earlier frames come first
                unserved.read_behind(data)
                self._read(False)
            elif unserved.read(data):
                if self._is_new:
                    self._is_new = False
                    self._table.asked(self)
                self._is_queued = True
                is_little = len(data) <= LITTLE_BYTES and not unserved.has_more
                if self.slices.submit(self, SOON if is_little else MORE):
                    return
                unserved.put_off(unserved.frames)
            self._count()
        except MalformedFrame as error:
            hint = dispatch.hint_of_first_bytes(self._first_bytes) if self._is_new else ""
            self.refuse("malformed", f"{error}{hint}")
        except Exception as error:
            self.failed(error)

    # Requests.

    def _is_at_rest(self) -> bool:
        """Whether nothing is read in part, waiting, or to be sent: a request may be answered out of hand."""
        return not (
            self._unserved.rest or self._is_queued or self._unanswered or self._flush_due or self._unread
        )

    def _answer_alone(self, hit: FastReply, data: bytes) -> None:
        """Answer a read that is one cached heartbeat, as nearly all reads of consumers are.

        This takes less time than the read did, so it is done at once, whatever the slices have to do.
        """
        context = self._context
        counters = self.counters
        self.active_ms = now_ms = context.host.monotonic_ms()
        context.node.observe_clock(now_ms)
        hit.entry.touch(now_ms, context.node.clock.wall_at(now_ms))
        counters.fast_heartbeats += 1
        reply = hit.length + data[8:TAIL_BEGIN] + hit.rest
        counters.bytes_sent += len(reply)
        self._transport.write(reply)
        if self.kept_bytes or self._transport.get_write_buffer_size():
            self._count()
        counters.serving_ms += context.host.monotonic_ms() - now_ms

    @property
    def is_long(self) -> bool:
        return False

    def go_on(self, now_ms: float, end_ms: float) -> float | None:
        """Serve frames in order until a bound or the end of this connection's share (`slices.Work`)."""
        self._is_queued = False
        if self.closed:
            return now_ms
        unserved = self._unserved
        try:
            frames = unserved.take()
        except MalformedFrame as error:
            self.refuse("malformed", str(error))
            return now_ms
        context = self._context
        self.active_ms = now_ms
        context.node.observe_clock(now_ms)
        self._flush_due = True
        num_served = self._serve(frames, now_ms, end_ms)
        if num_served is None:
            return context.host.monotonic_ms()
        if num_served < len(frames):
            unserved.put_off(frames[num_served:])
        if unserved.frames or unserved.has_more:
            self._is_queued = not self._is_blocked()
            self._read(False)
        is_done = not self._is_queued
        self._flush()
        done_ms = context.host.monotonic_ms()
        self.counters.serving_ms += done_ms - now_ms
        return done_ms if is_done else None

    def _serve(self, frames: list[bytes], now_ms: float, end_ms: float) -> int | None:
        """Serve frames and return how many could be served; None if the connection was closed on one."""
        host = self._context.host
        wall_ms = self._context.node.clock.wall_at(now_ms)
        fast = self._fast.by_tail
        unanswered = self._unanswered
        is_blocked = self._is_blocked()
        run_end = 0
        for number, payload in enumerate(frames):
            if number < run_end:
                continue
            if is_blocked or now_ms > end_ms:
                return number
            hit = fast.get(payload[CORRELATION_END:]) if fast else None
            if hit is not None and payload.startswith(hit.head):
                entry = hit.entry
                if entry.is_valid():
                    entry.touch(now_ms, wall_ms)
                    self._answer_fast(hit, payload, now_ms)
                    if unanswered:
                        is_blocked = self._is_blocked()
                    continue
                self._fast.forget(payload[CORRELATION_END:])
            run_end = number + (
                self._serve_run(frames, number, now_ms) or self._serve_slowly(payload, now_ms)
            )
            if self.closed:
                return None
            now_ms = host.monotonic_ms()
            is_blocked = self._is_blocked()
        return len(frames)

    def _answer_fast(self, hit: FastReply, payload: bytes, now_ms: float) -> None:
        self.counters.fast_heartbeats += 1
        if self.deferred:
            cut_waits_short(self, ApiKey.CONSUMER_GROUP_HEARTBEAT)
        data = hit.length + payload[4:CORRELATION_END] + hit.rest
        if not self._unanswered:
            self._ready.append(data)
            return
        exchange = Exchange(self, now_ms)
        exchange.data = data
        self._replies.add(exchange)

    def _serve_slowly(self, payload: bytes, now_ms: float) -> int:
        """Serve one frame; return that number."""
        exchange = Exchange(self, now_ms)
        exchange.asked_bytes = len(payload)
        self._replies.add(exchange)
        dispatch.serve(self._context, self, exchange, payload)
        return 1

    def _serve_run(self, frames: list[bytes], at: int, now_ms: float) -> int:
        """Serve the commits from `at` on that can be served in one call; return how many.

        0 if there are not two, and while a fault is set, so that each can meet it."""
        run = commits_at(frames, at, self._replies.num_free)
        if not run or self._context.faults.is_set:
            return 0
        return serve_commits(self._context, self, run, now_ms)

    def queue(self, exchange: Exchange) -> None:
        """Give a request its place among the replies."""
        self._replies.add(exchange)

    def serve_alone(self, exchange: Exchange) -> None:
        """Leave the client's later requests unread until this one is answered."""
        self._replies.serve_alone(exchange)

    def uses(self, group_id: str) -> None:
        """Remember the shard of a group that a request names."""
        if group_id != self._last_group:
            self._last_group = group_id
            self.shards_used |= 1 << shard_of(group_id, self._num_shards)

    def remember(self, exchange: Exchange, body: Any, data: bytes) -> None:
        """Cache the reply to a steady heartbeat if its group has not changed since before it was handled."""
        entry, exchange.entry = exchange.entry, None
        if entry is None or body.error_code or not exchange.is_short(body) or not entry.is_valid():
            return
        if self._context.faults.is_set or exchange.fault is not None:
            return
        self._fast.put(exchange, data, entry)

    def forget_cached(self) -> None:
        """Drop the cached heartbeats: a fault has been set, and may concern the next ones."""
        self._fast.clear()

    def client_named(self, client_id: str | None) -> ClientInfo:
        """Return the sender of a request; the same object as long as the client id is the same."""
        if (client_id or "") != self.client.client_id:
            self.client = ClientInfo(client_id=client_id or "", host=self.client.host)
        return self.client

    # Replies.

    def answered(self, exchange: Exchange) -> None:
        """Take the bytes of a reply, and send those that are ready in this turn's one write."""
        self._context.observe(exchange)
        self._replies.answered(exchange, self._ready)
        if self._draining and not self._unanswered:
            self.close(self._draining)
        else:
            self._flush_soon()

    def may_wait_with(self, num_bytes: int) -> bool:
        """Whether a reply of this size may wait for time to pass: one may, several if they are small."""
        return self._replies.may_wait_with(num_bytes)

    def waits_with(self, exchange: Exchange, num_bytes: int) -> None:
        """Count a reply that waits for time to pass; a negative number ends the wait."""
        self._replies.waits_with(exchange, num_bytes)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._context.host.call_soon(self._flush_in_time)

    @_own_end
    def _flush_in_time(self) -> None:
        self._flush()

    def _flush(self) -> None:
        self._flush_due = False
        if self.closed:
            return
        if self._ready:
            data = self._ready[0] if len(self._ready) == 1 else b"".join(self._ready)
            self._ready.clear()
            self.counters.bytes_sent += len(data)
            self._transport.write(data)
            if len(data) >= LONG_BYTES:
                self._written = self._written or WrittenReplies()
                self._written.wrote(len(data))
        if not self._reading or self._unanswered or self._unread or self._draining:
            self._serve_soon()
        self._count()

    # Memory.

    def unread_bytes(self) -> int:
        """Return the number of bytes of replies written that the client has not taken yet."""
        return self._transport.get_write_buffer_size()

    def kept_now(self, *, is_whole: bool = True) -> int:
        """Return the number of bytes that the node keeps for this connection.

        A reply that has been sent in part counts as a whole, or with its unread bytes.
        """
        unread = self._transport.get_write_buffer_size()
        if is_whole and self._written is not None:
            unread = self._written.num_kept(unread)
        num_bytes = len(self._unserved.rest) + self._unserved.put_off_bytes + self._fast.num_bytes + unread
        if self._unanswered:
            num_bytes += self._replies.num_bytes
        return num_bytes if num_bytes >= COUNTED_BYTES_MIN else 0

    def _count(self) -> None:
        num_bytes = self.kept_now()
        if num_bytes != self.kept_bytes:
            self._table.keeps(self, num_bytes)

    def give_up(self, how: str) -> None:
        """Close the connection at once, with everything kept for it, because that is too much."""
        unread = self.unread_bytes()
        unserved = len(self._unserved.rest) + self._unserved.put_off_bytes
        waiting = self._replies.reply_bytes
        why = "flooding" if unserved > unread + waiting else "slow"
        self.refuse(
            why,
            f"the node keeps {self.kept_bytes} bytes for it, {how}: {unread} of replies that are unread, "
            f"{waiting} of replies that wait, {unserved} that are not served yet, of an unfinished "
            f"frame or behind others; read faster or ask for less",
            at_once=True,
        )

    # Flow control.

    def _is_blocked(self) -> bool:
        if self._unread or self._draining:
            return True
        return bool(self._unanswered) and self._replies.is_full()

    def _serve_soon(self) -> None:
        """Continue serving, or reading if nothing is left to serve, unless the connection is blocked."""
        if self.closed or self._is_queued:
            return
        if self._is_blocked():
            if not self._draining:
                self._read(False)
        elif self._unserved.frames or self._unserved.has_more:
            self._is_queued = True
            self._read(False)
            self.slices.submit(self, MORE)
        elif not self._reading:
            self._read(True)

    def _read(self, wanted: bool) -> None:
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # Closing.

    @property
    def num_unserved(self) -> int:
        """The number of requests read whole that have not been served yet."""
        return len(self._unserved.frames)

    @property
    def is_waiting(self) -> bool:
        """Whether a reply is outstanding: such a connection is not idle."""
        return bool(self._unanswered)

    def drain(self, why: str) -> None:
        """Take no more requests, deliver the outstanding replies, then close; all within LINGER_MS.

        What the client still sends is read and dropped: a socket that is closed with unread bytes resets its
        peer, which may then lose the last replies.
        """
        if self.closed or self._draining:
            return
        self._draining = why
        self._unserved.drop()
        for end in list(self.deferred.values()):
            end()
        if not self._unanswered:
            self.close(why)
            return
        if not self._unread:
            self._read(True)
        self._context.host.call_later(LINGER_MS, self.close, why)

    def fall_silent(self, why: str) -> None:
        """Take no more requests and leave those that wait unanswered, but notice when the client goes."""
        if self.closed or self._draining:
            return
        self._draining = why
        self._unserved.drop()
        if not self._unread:
            self._read(True)

    def failed(self, error: Exception) -> None:
        """Close after an exception while bytes were read or replies written (`slices.Work`)."""
        self.refuse("failed", f"internal error: {in_one_line(error)}")

    def refuse(self, why: str, message: str, *, at_once: bool = False) -> None:
        """Close because of what the client did; `why` is counted, `message` is logged."""
        if self.closed:
            return
        name = f", client id {self.client.client_id[:80]!r}" if self.client.client_id else ""
        self._context.limited_log.warning(
            "client", "%s", f"closing the connection of {self.peer}{name}: {message}"
        )
        self.close(why, at_once=at_once)

    def close(self, why: str, *, at_once: bool = False) -> None:
        """Deliver the replies that are ready, then close; a client that does not read is cut off."""
        if self.closed:
            return
        self.closed = True
        self.counters.connections_closed[why] += 1
        if self._unread or self._is_new or at_once:  # a new one has nothing to be delivered
            self._transport.abort()
            return
        if self._ready:
            self._transport.write(b"".join(self._ready))
            self._ready.clear()
        self._transport.close()
        self._context.host.call_later(LINGER_MS, self._transport.abort)
